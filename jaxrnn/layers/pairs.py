"""Which steps of a chunk a step reads, for layers that let all pairs of steps meet."""

from typing import Any

import jax.numpy as jnp


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
