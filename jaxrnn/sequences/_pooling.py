"""From a sequence to one vector: pooling over the real steps.

Every function pools every leaf of a tree. A sequence without a real step (length 0, or T = 0)
gives zeros. Values in masked steps, NaN included, affect neither results nor gradients; NaN in a
real step stays visible.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask, expand_mask, zero_masked


def last_valid(ys: Any, mask: Any = None) -> Any:
    """The last real step of each sequence, for any pattern of the mask.

    Args:
        ys: a tree of arrays with the axes of `mask` and then any feature axes; without a mask
            `[..., T, D]`.
        mask: `[..., T]`, True where a step is real. None: all steps are.

    Returns:
        A tree like `ys` without the axis T; zeros where no step is real.

    Raises:
        TypeError: The mask is not an array of bools, ints or floats.
        ValueError: A leaf does not start with the axes of the mask, or has no time axis.

    Example:
        >>> ys = jnp.array([[1.0], [2.0], [3.0]])
        >>> last_valid(ys, jnp.array([1, 1, 0]))
        Array([2.], dtype=float32)
    """
    return _pool(_last, ys, mask)


def mean_valid(ys: Any, mask: Any = None) -> Any:
    """The mean over the real steps of each sequence, accumulated in at least float32.

        Σₜ mₜ yₜ / Σₜ mₜ

    Args:
        ys: a tree of floating or complex arrays with the axes of `mask` and then any feature axes;
            without a mask `[..., T, D]`.
        mask: `[..., T]`, True where a step is real. None: all steps are.

    Returns:
        A tree like `ys` without the axis T, in its dtypes; zeros where no step is real.

    Raises:
        TypeError: A leaf is neither floating nor complex, or the mask is not an array of flags.
        ValueError: A leaf does not start with the axes of the mask, or has no time axis.

    Example:
        >>> ys = jnp.array([[1.0], [2.0], [30.0]])
        >>> mean_valid(ys, jnp.array([1, 1, 0]))
        Array([1.5], dtype=float32)
    """
    return _pool(_mean, ys, mask)


def max_valid(ys: Any, mask: Any = None) -> Any:
    """The largest value of each feature over the real steps of each sequence.

    Args:
        ys: a tree of floating arrays with the axes of `mask` and then any feature axes; without a
            mask `[..., T, D]`.
        mask: `[..., T]`, True where a step is real. None: all steps are.

    Returns:
        A tree like `ys` without the axis T; zeros where no step is real.

    Raises:
        TypeError: A leaf is not floating, or the mask is not an array of flags.
        ValueError: A leaf does not start with the axes of the mask, or has no time axis.

    Example:
        >>> ys = jnp.array([[-5.0], [-2.0], [0.0]])
        >>> max_valid(ys, jnp.array([1, 1, 0]))
        Array([-2.], dtype=float32)
    """
    return _pool(_max, ys, mask)


def _pool(pool: Callable[[jax.Array, jax.Array], jax.Array], ys: Any, mask: Any) -> Any:
    def pool_leaf(leaf):
        flags = _leaf_mask(mask, leaf)
        if flags.shape[-1] == 0:
            return jnp.zeros(flags.shape[:-1] + leaf.shape[flags.ndim :], leaf.dtype)
        pooled = pool(leaf, flags)
        return zero_masked(flags.any(-1), pooled)

    return jax.tree.map(pool_leaf, checks.arrays(ys, "ys"))


def _leaf_mask(mask, leaf):
    if mask is None:
        if leaf.ndim < 2:
            raise ValueError(f"ys must be [..., T, D] without a mask, got the shape {leaf.shape}.")
        return jnp.ones(leaf.shape[:-1], bool)
    if np.ndim(mask) == 0:
        raise ValueError("mask must have a time axis, got a scalar.")
    return as_mask(mask, leaf.shape[: np.ndim(mask)])


def _last(leaf, mask):
    axis, num_steps = mask.ndim - 1, mask.shape[-1]
    last = num_steps - 1 - jnp.argmax(jnp.flip(mask, -1), axis=-1, keepdims=True)
    return jnp.take_along_axis(leaf, expand_mask(last, leaf), axis=axis).squeeze(axis)


def _mean(leaf, mask):
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        raise TypeError(f"ys must be floating or complex to have a mean, got {leaf.dtype}.")
    axis = mask.ndim - 1
    wide = zero_masked(mask, leaf).astype(jnp.promote_types(leaf.dtype, jnp.float32))
    count = jnp.maximum(expand_mask(mask, leaf).sum(axis), 1)
    return (wide.sum(axis) / count).astype(leaf.dtype)


def _max(leaf, mask):
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise TypeError(f"ys must be floating to have a maximum, got {leaf.dtype}.")
    return jnp.where(expand_mask(mask, leaf), leaf, -jnp.inf).max(mask.ndim - 1)
