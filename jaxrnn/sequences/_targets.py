"""Targets of next-step prediction."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask, zero_masked


class ShiftedTargets(NamedTuple):
    """Targets, and a mask that says where there is one.

    Attributes:
        targets: a tree like xs, `[..., T, *features]`; zeros where the mask is False.
        mask: bool `[..., T]`, True where a step has a target: the mask of the loss, not of
            `unroll`.
    """

    targets: Any
    mask: jax.Array


def shift_targets(
    xs: Any, mask: Any = None, reset: Any = None, *, num_feature_axes: int | None = None
) -> ShiftedTargets:
    """The targets of next-step prediction: after reading x_t, predict x_{t+1}.

        targetₜ = xₜ₊₁,  maskₜ = mₜ ∧ mₜ₊₁ ∧ ¬rₜ₊₁,  False at the end of the row

    The target is the next step in time, never the next real one: where x_{t+1} is a missing
    observation, step t has no target, because skipping it would ask one output for forecasts over
    different distances. A masked step reads nothing and has no target either. If a stream is cut
    into chunks first, each chunk loses its last target: shift first, then cut (`stream_batches`
    takes trees).

    Args:
        xs: a tree of arrays `[..., T, *features]`.
        mask: `[..., T]`, True where a step is real. None: all steps are.
        reset: `[..., T]`, True where a step starts a new sequence. None: each row is one sequence.
        num_feature_axes: number of axes of every leaf after T. None: the axes that mask and reset
            do not have; without those, floating xs are `[..., T, D]`.

    Returns:
        `ShiftedTargets(targets, mask)`.

    Raises:
        TypeError: A flag is not a bool, int or float, or `num_feature_axes` is not an int.
        ValueError: Shapes disagree, or nothing says where the time axis of integer xs is.

    Example:
        >>> tokens = jnp.array([[5, 6, 7, 8, 9]])
        >>> reset = jnp.array([[1, 0, 0, 1, 0]])
        >>> targets, mask = shift_targets(tokens, reset=reset)
        >>> print(targets, mask)
        [[6 7 0 9 0]] [[ True  True False  True False]]
    """
    xs = checks.arrays(xs, "xs")
    leading = _leading(xs, mask, reset, num_feature_axes)
    has_target = _has_target(leading, mask, reset)
    axis = len(leading) - 1
    # The roll moves the first step to the end of the row, which has no target.
    targets = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis), xs)
    return ShiftedTargets(zero_masked(has_target, targets), has_target)


def _has_target(leading, mask, reset):
    real = jnp.ones(leading, bool) if mask is None else as_mask(mask, leading)
    starts = jnp.zeros(leading, bool) if reset is None else as_mask(reset, leading, "reset")
    has_next = real[..., :-1] & real[..., 1:] & ~starts[..., 1:]
    return jnp.concatenate([has_next, jnp.zeros_like(real[..., :1])], axis=-1)


def _leading(xs, mask, reset, num_feature_axes):
    """The axes before the features, with time last, which all leaves share."""
    leaves = jax.tree.leaves(xs)
    if not leaves:
        raise ValueError(f"xs must have at least one array, got {xs!r}.")
    ndim = _num_leading(leaves, mask, reset, num_feature_axes)
    leading = leaves[0].shape[: max(ndim, 0)]
    if not leading:
        raise ValueError(f"xs must have a time axis, got the shape {leaves[0].shape}.")
    for leaf in leaves:
        if leaf.shape[:ndim] != leading:
            raise ValueError(
                f"the leaves of xs must share their leading axes {leading}, "
                f"got the shape {leaf.shape}."
            )
    return leading


def _num_leading(leaves, mask, reset, num_feature_axes):
    if num_feature_axes is not None:
        if isinstance(num_feature_axes, bool) or not isinstance(num_feature_axes, int):
            raise TypeError(f"num_feature_axes must be an int, got {num_feature_axes!r}.")
        return leaves[0].ndim - num_feature_axes
    if mask is not None or reset is not None:
        return np.ndim(reset if mask is None else mask)
    if not all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves):
        raise ValueError(
            "num_feature_axes must be given for integer xs without mask and reset: 0 for tokens "
            f"[..., T], 1 for features [..., T, D]; got xs with the shape {leaves[0].shape}."
        )
    return leaves[0].ndim - 1
