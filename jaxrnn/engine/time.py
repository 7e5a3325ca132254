"""Reading a sequence from its end."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def flip(tree: Any) -> Any:
    """Turns the time axis (axis 0) of every leaf round; None stays None."""
    return jax.tree.map(lambda leaf: jnp.flip(leaf, 0), tree)


def flip_reset(reset: Any) -> Any:
    """The reset flags of the sequence read backwards.

    reset[t] says that a boundary lies between t - 1 and t. Read backwards that boundary stands
    in front of step t - 1, so the flags turn round and move by one; what stood in front of step 0
    lies behind the last step and has no step to act on.

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
    return jnp.roll(jnp.flip(reset, 0).at[-1].set(False), 1, axis=0)


def in_reverse(run: Callable[..., Any], xs: Any, mask: Any, reset: Any) -> Any:
    """Runs `run(xs, mask, reset) -> Rollout` backwards in time, outputs in the order of `xs`."""
    rollout = run(flip(xs), flip(mask), flip_reset(reset))
    return rollout._replace(outputs=flip(rollout.outputs))
