"""Layers whose recurrence has a form in which all pairs of steps of a chunk meet."""

from typing import Any

import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.chunked import chunked
from jaxrnn.engine.evaluators.nan_shield import shielded
from jaxrnn.engine.evaluators.sequential.sequential import sequential
from jaxrnn.types import Cell, Evaluator, Layer


def layer_of_pairs(cell: Cell, all_pairs: Evaluator, chunk_size: int | None) -> Layer:
    """The layer of a cell: recurrent, all pairs at once, or at once in chunks.

    Args:
        cell: The recurrence.
        all_pairs: An evaluator of this cell that gives the same, with O(T²) work.
        chunk_size: Steps of a chunk; 1 is the recurrent form and None one chunk for all T. T = 1
            is always recurrent.

    Returns:
        The layer.

    Raises:
        TypeError: `chunk_size` is neither None nor an int.
        ValueError: `chunk_size` is below 1.
    """
    if chunk_size is not None:
        checks.positive(chunk_size, "chunk_size")
    # Each chunk by itself: an overflow in one must end at a reset in the next.
    at_once = shielded(all_pairs)
    if chunk_size is not None:
        at_once = chunked(chunk_size, at_once)

    def unroll(params, carry, xs, mask, reset, key):
        del key
        evaluate = sequential() if chunk_size == 1 or xs.shape[0] == 1 else at_once
        return evaluate(cell, params, carry, xs, mask, reset)

    return Layer(cell.init, cell.initial_carry, unroll, cell.num_outputs)


def seen_steps(mask: Any, reset: Any, num_steps: int) -> tuple[Any, Any]:
    """The steps and the carry that each step reads: real, not later, of the same sequence.

    Args:
        mask: None or bool `[T, *batch]`.
        reset: None or bool `[T, *batch]`.
        num_steps: T.

    Returns:
        bool `seen [*batch, 1, T, T]` (step t reads step s) and `from_carry [*batch, 1, T]`; the
        batch axes are missing without flags, the axis of 1 is for heads.
    """
    seen = jnp.tril(jnp.ones((1, num_steps, num_steps), bool))
    from_carry = jnp.ones((1, num_steps), bool)
    if mask is not None:
        seen = seen & by_head(mask)[..., None, :]
    if reset is not None:
        segment = by_head(jnp.cumsum(reset, axis=0))
        seen = seen & (segment[..., :, None] == segment[..., None, :])
        from_carry = segment == 0
    return seen, from_carry


def by_head(flags: Any) -> Any:
    """`[T, *batch] -> [*batch, 1, T]`."""
    return jnp.moveaxis(flags, 0, -1)[..., None, :]


def sums_between(terms: Any) -> Any:
    """termₛ₊₁ + … + termₜ for s <= t, `[..., T] -> [..., T, T]`.

    Differences of sums from the start would cancel.
    """
    num_steps = terms.shape[-1]
    behind = jnp.tril(jnp.ones((num_steps, num_steps), bool), -1)
    return jnp.cumsum(jnp.where(behind, terms[..., :, None], 0), axis=-2)
