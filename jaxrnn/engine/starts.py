"""The carries that the sequences of a row start from, where each has one of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine.masking import Restart, expand_mask, taken
from jaxrnn.types import Array, Carry, Reset, Steps


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Started:
    """What the sequences of a row start from, which a layer is given in place of its carry.

    Attributes:
        carry: the carry before the first step that is read; None: the start of its sequence.
        starts: leaves `[S + 1, *batch, ...]`. Entry 0 is the start of the steps before the first
            reset, entry k that of the sequence which the k-th reset begins, as they are read.
    """

    carry: Carry
    starts: Carry


class StartsRefused(ValueError):
    """A layer cannot take starts, and says why."""


def first_carry(carry: Carry) -> Carry:
    """The carry before the first step that is read."""
    if not isinstance(carry, Started):
        return carry
    if carry.carry is not None:
        return carry.carry
    return jax.tree.map(lambda leaf: leaf[0], carry.starts)


def starts_of(carry: Carry) -> Carry:
    """The starts `[S + 1, *batch, ...]`, or None where there are none."""
    return carry.starts if isinstance(carry, Started) else None


def with_starts(carry: Carry, starts: Carry) -> Carry:
    """The carry with the starts of another; the carry itself where these are None."""
    return carry if starts is None else Started(carry, starts)


def parts_of(carry: Carry) -> Sequence[Carry]:
    """The entries of a carry that is a tuple or a list, each with its starts."""
    if not isinstance(carry, Started):
        return carry
    return [_part(carry, lambda tree, i=i: tree[i]) for i in range(len(carry.starts))]


def _part(carry: Started, pick: Callable[[Any], Any]) -> Carry:
    starts = pick(carry.starts)
    # A layer without memory has nothing to start from, and returns the carry that it is given.
    if not jax.tree.leaves(starts):
        return starts
    return Started(None if carry.carry is None else pick(carry.carry), starts)


def flip_starts(carry: Carry, reset: Reset) -> Carry:
    """The carry for the sequence read backwards, where the last sequence of a row is the first.

    Args:
        carry: a carry or a `Started`.
        reset: the flags before they are flipped.

    Returns:
        The carry with its starts in the other order, row by row.
    """
    if not isinstance(carry, Started) or reset is None:
        return carry
    last = jax.tree.leaves(carry.starts)[0].shape[0] - 1
    index = reset.sum(0) - jnp.arange(last + 1).reshape(-1, *[1] * (reset.ndim - 1))
    return Started(carry.carry, taken(carry.starts, jnp.clip(index, 0, last)))


def numbered(carry: Carry, steps: Steps) -> Steps:
    """The steps whose resets know their start, where there are starts."""
    if not isinstance(carry, Started) or steps.reset is None or isinstance(steps.reset, Restart):
        return steps
    last = jax.tree.leaves(carry.starts)[0].shape[0] - 1
    number = jnp.minimum(jnp.cumsum(steps.reset, axis=0, dtype=jnp.int32), last)
    return steps._replace(reset=Restart(steps.reset, number))


def at_every_step(carry: Carry, steps: Steps) -> tuple[Carry, Carry, Steps]:
    """`(carry, starts, steps)` for an evaluator that holds a carry for every step anyway.

    Args:
        carry: a carry or a `Started`.
        steps: the steps.

    Returns:
        The carry before the first step; None, or leaves `[T, *batch, ...]`, what a reset at each
        step returns to; the steps with flags for resets.
    """
    steps = numbered(carry, steps)
    if not isinstance(steps.reset, Restart):
        return first_carry(carry), None, steps
    starts = taken(carry.starts, steps.reset.number)
    return first_carry(carry), starts, steps._replace(reset=steps.reset.flag)


def refuse_starts(carry: Carry, name: str) -> None:
    """Raises for a layer that takes none."""
    if isinstance(carry, Started):
        raise StartsRefused(
            f"starts cannot be given to {name}, whose carry holds a source: unroll each sequence "
            "with its own carry, or see encoder_decoder for packed sources."
        )


def nan_without_start(tree: Any, number: Array, num_starts: int) -> Any:
    """NaN in the floating leaves where a sequence has a number above that of the last start."""

    def poisoned(leaf):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return jnp.where(expand_mask(number > num_starts, leaf), jnp.nan, leaf)

    return jax.tree.map(poisoned, tree)
