"""From a sequence to one vector: pooling over the real steps.

Every function pools every leaf of a tree. A sequence without a real step (length 0, or T = 0)
gives zeros. Values in masked steps, NaN included, affect neither results nor gradients; NaN in a
real step stays visible.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.loss_arguments import as_weights, wide
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


def mean_valid(ys: Any, mask: Any = None, *, weights: Any = None) -> Any:
    """The mean over the real steps of each sequence, accumulated in at least float32.

        Σₜ mₜ wₜ yₜ / Σₜ mₜ wₜ

    A masked step counts nothing, whatever its weight; a weight of 0 does not hide NaN. A mask has
    one flag a step: for flags of features, pool `jnp.swapaxes(ys, -1, -2)` with the flags turned in
    the same way.

    Args:
        ys: a tree of floating or complex arrays with the axes of `mask` and then any feature axes;
            without a mask `[..., T, D]`.
        mask: `[..., T]`, True where a step is real. None: all steps are.
        weights: how much a step counts, `[..., T]`, or each of its numbers, of the shape of a leaf;
            finite and not negative. None: 1 everywhere.

    Returns:
        A tree like `ys` without the axis T, in its dtypes; zeros where no step is real, or the
        weights of all real steps are 0.

    Raises:
        TypeError: A leaf is neither floating nor complex, the mask is not an array of flags, or
            weights are not numbers.
        ValueError: A leaf does not start with the axes of the mask, or has no time axis; or weights
            have another shape, or a concrete one of a real step is negative or not finite.

    Example:
        >>> ys = jnp.array([[1.0], [2.0], [30.0]])
        >>> mean_valid(ys, jnp.array([1, 1, 0]))
        Array([1.5], dtype=float32)
        >>> mean_valid(ys, weights=jnp.array([1.0, 3.0, 0.0]))
        Array([1.75], dtype=float32)
    """
    return _pool(functools.partial(_mean, weights=weights), ys, mask)


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


def attention_valid(ys: Any, scores: Any, mask: Any = None) -> Any:
    """The mean over the real steps of each sequence with weights that are a softmax of scores.

        Σₜ αₜ yₜ,  αₜ = mₜ exp(scoreₜ) / Σₛ mₛ exp(scoreₛ)

    The scores are the caller's, from parameters of its own: `ys @ query` with a learned query, or
    the hidden layer of Yang et al. 2016 (Hierarchical Attention Networks), as in the example.
    Computed in at least float32.

    Args:
        ys: a tree of floating or complex arrays `[..., T, D]`: the axes of `scores` and then any
            feature axes.
        scores: `[..., T]`, floating.
        mask: `[..., T]`, True where a step is real. None: all steps are.

    Returns:
        A tree like `ys` without the axis T, in its dtypes; zeros where no step is real.

    Raises:
        TypeError: A leaf is neither floating nor complex, `scores` is not floating, or the mask is
            not an array of flags.
        ValueError: A leaf or the mask does not have the axes of `scores`, or these have no time
            axis.

    Example:
        >>> ys = jnp.array([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
        >>> params = {"kernel": jnp.eye(2), "query": jnp.array([1.0, 1.0])}
        >>> scores = jnp.tanh(ys @ params["kernel"]) @ params["query"]
        >>> attention_valid(ys, scores, jnp.array([1, 1, 0]))
        Array([0.5, 0.5], dtype=float32)
    """
    ys, scores = checks.arrays(ys, "ys"), checks.array(scores, "scores")
    if not jnp.issubdtype(scores.dtype, jnp.floating):
        raise TypeError(f"scores must be floating, got the dtype {scores.dtype}.")
    if scores.ndim == 0:
        raise ValueError("scores must have a time axis, got a scalar.")
    for leaf in jax.tree.leaves(ys):
        if np.shape(leaf)[: scores.ndim] != scores.shape:
            raise ValueError(
                f"scores must have the axes that ys starts with, got {scores.shape} "
                f"for {np.shape(leaf)}."
            )
    flags = jnp.ones(scores.shape, bool) if mask is None else as_mask(mask, scores.shape)
    return _pool(functools.partial(_attended, shares=_shares(scores, flags)), ys, flags)


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


def _mean(leaf, mask, weights):
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        raise TypeError(f"ys must be floating or complex to have a mean, got {leaf.dtype}.")
    axis = mask.ndim - 1
    terms = wide(zero_masked(mask, leaf))
    counts = expand_mask(mask, leaf)
    if weights is not None:
        counts = as_weights(weights, mask, (mask.shape, leaf.shape), terms.real.dtype)
        terms = terms * counts
    total = counts.sum(axis)
    return (terms.sum(axis) / jnp.where(total == 0, 1, total)).astype(leaf.dtype)


def _max(leaf, mask):
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise TypeError(f"ys must be floating to have a maximum, got {leaf.dtype}.")
    return jnp.where(expand_mask(mask, leaf), leaf, -jnp.inf).max(mask.ndim - 1)


def _shares(scores, mask):
    """The softmax of the scores of real steps, zero elsewhere and where no step is real."""
    # Before anything is computed, so that NaN in padding reaches no gradient either.
    scores = jnp.where(mask, wide(scores), -jnp.inf)
    highest = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    # Without a real step the highest is -inf, and -inf - -inf is NaN.
    shares = jnp.exp(scores - lax.stop_gradient(jnp.where(jnp.isneginf(highest), 0, highest)))
    total = shares.sum(-1, keepdims=True)
    return shares / jnp.where(total == 0, 1, total)


def _attended(leaf, mask, shares):
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        raise TypeError(f"ys must be floating or complex to have a mean, got {leaf.dtype}.")
    terms = wide(zero_masked(mask, leaf)) * expand_mask(shares, leaf)
    return terms.sum(mask.ndim - 1).astype(leaf.dtype)
