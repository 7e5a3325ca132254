"""The time axis: moving it, and reading a sequence from its end."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine.inside import look_inside, map_runs, rollout_of
from jaxrnn.engine.starts import flip_starts
from jaxrnn.types import Carry, Flags, Inside, Key, Layer, Params, Reset, Steps


def time_first(tree: Any, axis: int) -> Any:
    """Moves the time axis of every leaf from `axis` to the front."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), tree)


def time_back(tree: Any, axis: int) -> Any:
    """Moves the time axis of every leaf from the front to `axis`."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, axis), tree)


def flip(tree: Any) -> Any:
    """Reverses the time axis (axis 0) of every leaf; None stays None."""
    return jax.tree.map(lambda leaf: jnp.flip(leaf, 0), tree)


def flip_reset(reset: Reset) -> Reset:
    """The reset flags of the sequence read backwards.

    reset[t] says that a boundary lies between t - 1 and t. Read backwards that boundary comes
    before step t - 1, so the flags are flipped and shifted by one; the boundary before step 0
    comes after the last step and has no step to act on.

    Args:
        reset: None or bool `[T, *batch]`.

    Returns:
        None or bool `[T, *batch]`.

    Example:
        >>> flip_reset(jnp.array([True, False, True]))
        Array([False,  True, False], dtype=bool)
    """
    if reset is None or reset.shape[0] == 0:
        return reset
    # The flag of step 0 is cleared before the roll, which would bring it to the first step read.
    return jnp.roll(jnp.flip(reset, 0).at[-1].set(False), 1, axis=0)


def backwards(layer: Layer) -> Layer:
    """The layer that reads the sequence from its end; its outputs keep the order of the inputs."""

    def inside(params: Params, carry: Carry, steps: Steps, key: Key) -> Inside:
        flipped = Steps(flip(steps.xs), flip(steps.mask), flip_reset(steps.reset))
        carry = flip_starts(carry, steps.reset)
        return _turned(look_inside(layer, params, carry, flipped, key), steps.reset)

    return layer._replace(unroll=rollout_of(inside), causal=False, inside=inside)


def _turned(inside: Inside, reset: Reset) -> Inside:
    """What is inside of a run on flipped steps, in the order of the steps before."""
    rollout = inside.rollout
    flags = None if rollout.flags is None else _flip_flags(rollout.flags, reset)
    rollout = rollout._replace(outputs=flip(rollout.outputs), flags=flags)

    def layers():
        return map_runs(lambda run: _turned(run, reset), inside.layers())

    return Inside(rollout, lambda: flip(inside.carries()), layers, flip(inside.mask))


def _flip_flags(flags: Flags, reset: Reset) -> Flags:
    """The flags of outputs that were read from their end, and the reset flags of the inputs."""
    flipped = flip_reset(flags.reset)
    if flipped is not None and reset is not None and 0 not in (flipped.shape[0], reset.shape[0]):
        # No boundary comes before step 0 when it is read last, so the layer could not return it.
        flipped = flipped.at[0].set(reset[0])
    return Flags(flip(flags.mask), flipped)
