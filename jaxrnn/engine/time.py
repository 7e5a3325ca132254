"""The time axis: moving it, and reading a sequence from its end."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine.starts import flip_starts
from jaxrnn.types import Carry, Flags, Key, Layer, Params, Reset, Rollout, Steps


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

    def unroll(params: Params, carry: Carry, steps: Steps, key: Key) -> Rollout:
        flipped = Steps(flip(steps.xs), flip(steps.mask), flip_reset(steps.reset))
        rollout = layer.unroll(params, flip_starts(carry, steps.reset), flipped, key)
        flags = None if rollout.flags is None else _flip_flags(rollout.flags, steps.reset)
        return rollout._replace(outputs=flip(rollout.outputs), flags=flags)

    return layer._replace(unroll=unroll, causal=False)


def _flip_flags(flags: Flags, reset: Reset) -> Flags:
    """The flags of outputs that were read from their end, and the reset flags of the inputs."""
    flipped = flip_reset(flags.reset)
    if flipped is not None and reset is not None and len(flipped) and len(reset):
        # No boundary comes before step 0 when it is read last, so the layer could not return it.
        flipped = flipped.at[0].set(reset[0])
    return Flags(flip(flags.mask), flipped)
