"""Losses of single steps, and three ways to reduce them. No reduction is a default.

Masked values are replaced before anything is computed: NaN in padding affects neither values nor
gradients, and NaN in a real step stays visible. Results have at least float32.

Weights say how much a sequence `[...]`, a step `[..., T]` or, in a loss with D terms a step, a
feature `[..., T, D]` counts. The number of axes says which of the three it is, and sizes are exact.
A loss is multiplied by its weights; a mean over steps also divides by their sum. So class weights,
`class_weights[labels]`, belong to the mean, and not to the loss as well. A masked step counts
nothing, whatever its weight; a weight of 0 is a number, not a mask, and does not hide NaN.

In packed rows `[R, L]` the row is what these functions call a sequence. Weights of packed sequences
are given step by step, `weights[packed.segment_ids]`; with one over the length of the sequence of
each step, `mean_over_steps` is the mean over the sequences.

A mask has one flag a step. For flags of features, `[..., T, D]`, make the features steps of their
own, `squared_error(predictions[..., None], targets[..., None], flags)`: the losses are then
`[..., T, D]`, and `sum_over_steps` and `mean_over_steps` take them with the same flags.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrnn.engine import checks
from jaxrnn.engine.loss_arguments import (
    NUMBERS,
    as_array,
    as_labels,
    as_predictions,
    as_weights,
    wide,
)
from jaxrnn.engine.masking import as_mask, concrete, zero_masked


def sum_over_steps(losses: Any, mask: Any = None, *, weights: Any = None) -> jax.Array:
    """The sum over all real steps of all sequences.

        Σ mₜ wₜ ℓₜ

    With a mask that is True only at the last real step this is a final-state objective.

    Args:
        losses: `[..., T]`, floating or bool.
        mask: `[..., T]`, True where a step counts. None: all steps do.
        weights: `[..., T]` or `[...]`, finite and not negative. None: 1 everywhere.

    Returns:
        A scalar, float32 or wider; 0 when no step counts.

    Raises:
        TypeError: `losses` is neither floating nor bool, the mask is not an array of flags, or
            weights are not numbers.
        ValueError: The shapes do not fit, `losses` has no time axis, or a concrete weight of a real
            step is negative or not finite.

    Example:
        >>> sum_over_steps(jnp.array([1.0, 2.0, 4.0]), jnp.array([1, 1, 0]))
        Array(3., dtype=float32)
    """
    terms, _ = _terms(losses, mask, weights)
    return terms.sum()


def mean_over_steps(
    losses: Any, mask: Any = None, *, weights: Any = None, empty: Any = None
) -> jax.Array:
    """The mean over all real steps of all sequences: steps count alike, or by weight.

        Σ mₜ wₜ ℓₜ / Σ mₜ wₜ

    Args:
        losses: `[..., T]`, floating or bool.
        mask: `[..., T]`, True where a step counts. None: all steps do.
        weights: `[..., T]` or `[...]`, finite and not negative. None: 1 everywhere.
        empty: the value when no step counts; None raises, or gives NaN if that cannot be seen.

    Returns:
        A scalar, float32 or wider. Without a step that counts, which is a real one with a weight
        above 0: `empty`, or NaN under `jit` and without `empty`; the gradient is zero.

    Raises:
        TypeError: `losses` is neither floating nor bool, the mask is not an array of flags, or
            weights are not numbers.
        ValueError: The shapes do not fit, `losses` has no time axis, a concrete weight of a real
            step is negative or not finite, or there is no `empty` and it can be seen that no step
            counts: the mask is concrete and False, or the weights are concrete and 0.

    Example:
        A sequence of three steps and one of a single step:

        >>> losses = jnp.array([[1.0, 1.0, 1.0], [5.0, 0.0, 0.0]])
        >>> mask = jnp.array([[1, 1, 1], [1, 0, 0]])
        >>> mean_over_steps(losses, mask)  # (1 + 1 + 1 + 5) / 4
        Array(2., dtype=float32)
        >>> mean_over_sequences(losses, mask)  # ((1 + 1 + 1) / 3 + 5) / 2
        Array(3., dtype=float32)
        >>> mean_over_steps(jnp.array([1.0, 2.0, 4.0]), weights=[1, 0.5, 0.25])  # 3 / 1.75
        Array(1.7142857, dtype=float32)
    """
    terms, counts = _terms(losses, mask, weights)
    _check_not_empty(terms.shape, mask, weights, empty)
    return _ratio(terms.sum(), counts.sum(), empty)


def mean_over_sequences(
    losses: Any, mask: Any = None, *, weights: Any = None, empty: Any = None
) -> jax.Array:
    """The mean over sequences of their means over steps: sequences count alike, or by weight.

        (1/B) Σ_b (Σₜ mₜ wₜ ℓₜ / Σₜ mₜ wₜ),  or  Σ_b w_b (Σₜ mₜ ℓₜ / Σₜ mₜ) / Σ_b w_b

    A sequence without a step that counts (length 0) has no mean and is left out of both sums.

    Args:
        losses: `[..., T]`, floating or bool; without leading axes one sequence.
        mask: `[..., T]`, True where a step counts. None: all steps do.
        weights: `[..., T]`, shares in the mean of a sequence, or `[...]`, shares of the sequences;
            finite and not negative. None: 1 everywhere.
        empty: the value when no step counts; None raises, or gives NaN if that cannot be seen.

    Returns:
        A scalar, as in `mean_over_steps`.

    Raises:
        TypeError: As in `mean_over_steps`.
        ValueError: As in `mean_over_steps`.

    Example:
        A sequence of three steps and one of a single step; see `mean_over_steps`:

        >>> losses = jnp.array([[1.0, 1.0, 1.0], [5.0, 0.0, 0.0]])
        >>> mean_over_sequences(losses, jnp.array([[1, 1, 1], [1, 0, 0]]))
        Array(3., dtype=float32)
    """
    of_sequences = weights is not None and np.ndim(weights) < np.ndim(losses)
    terms, counts = _terms(losses, mask, None if of_sequences else weights)
    means, shares = _ratio(terms.sum(-1), counts.sum(-1), empty=0), counts.sum(-1) != 0
    if of_sequences:
        shares = zero_masked(shares, as_weights(weights, mask, (means.shape,), means.dtype))
    _check_not_empty(terms.shape, mask, weights, empty)
    return _ratio((means * shares).sum(), shares.sum(), empty)


def cross_entropy(logits: Any, labels: Any, mask: Any = None, *, weights: Any = None) -> jax.Array:
    """The cross-entropy of each step with a single label.

        ℓₜ = log Σ_c exp(logitsₜ[c]) − logitsₜ[labelₜ]

    Args:
        logits: `[..., T, C]`, floating.
        labels: ints `[..., T]` in 0 ... C - 1 where the mask is True.
        mask: `[..., T]`, True where a step is real. None: all steps are.
        weights: `[..., T]` or `[...]`, factors of the losses, finite and not negative. None: 1.

    Returns:
        `[..., T]`, float32 or wider; 0 where masked, NaN where a traced label is out of range.

    Raises:
        TypeError: A dtype is not as above.
        ValueError: The shapes do not fit, or a concrete label or weight of a real step is out of
            range.

    Example:
        >>> logits = jnp.zeros((3, 4))
        >>> print(cross_entropy(logits, jnp.array([0, 3, -1]), jnp.array([1, 1, 0])))
        [1.3862944 1.3862944 0.       ]
    """
    (logits,), flags = as_predictions(mask, logits=logits)
    *leading, num_classes = logits.shape
    labels = as_labels(labels, mask, (jnp.integer,), tuple(leading), num_classes - 1)
    logits, labels = zero_masked(flags, (logits, labels))
    inside = (labels >= 0) & (labels < num_classes)
    losses = optax.losses.softmax_cross_entropy_with_integer_labels(logits, labels)
    return _weighted(jnp.where(inside, losses, jnp.nan), flags, mask, weights)


def binary_cross_entropy(
    logits: Any, labels: Any, mask: Any = None, *, weights: Any = None
) -> jax.Array:
    """The cross-entropy of each step with D binary labels, summed over them.

        ℓₜ = −Σ_d yₜ log σ(logitsₜ) + (1 − yₜ) log(1 − σ(logitsₜ))

    Args:
        logits: `[..., T, D]`, floating.
        labels: `[..., T, D]`, bool, or in 0 ... 1 where the mask is True; probabilities are
            allowed.
        mask: `[..., T]`, True where a step is real. None: all steps are.
        weights: `[..., T, D]`, `[..., T]` or `[...]`, factors of the terms, finite and not
            negative. None: 1.

    Returns:
        `[..., T]`, float32 or wider; 0 where masked, NaN where a traced label is out of range.

    Raises:
        TypeError: A dtype is not as above.
        ValueError: The shapes do not fit, or a concrete label or weight of a real step is out of
            range.

    Example:
        >>> logits = jnp.zeros((2, 1))
        >>> print(binary_cross_entropy(logits, jnp.array([[1], [0]]), jnp.array([1, 0])))
        [0.6931472 0.       ]
    """
    (logits,), flags = as_predictions(mask, logits=logits)
    labels = as_labels(labels, mask, NUMBERS, logits.shape, 1)
    logits, labels = zero_masked(flags, (logits, labels))
    inside = (labels >= 0) & (labels <= 1)
    losses = optax.losses.sigmoid_binary_cross_entropy(logits, labels)
    return _weighted(
        jnp.where(inside, losses, jnp.nan), flags, mask, weights, num_feature_axes=1
    ).sum(-1)


def squared_error(
    predictions: Any, targets: Any, mask: Any = None, *, weights: Any = None
) -> jax.Array:
    """The squared error of each step, summed over the features.

        ℓₜ = Σ_d (predictionₜ − targetₜ)²

    Args:
        predictions: `[..., T, D]`, floating.
        targets: `[..., T, D]`, floating, ints or bool.
        mask: `[..., T]`, True where a step is real. None: all steps are.
        weights: `[..., T, D]`, `[..., T]` or `[...]`, factors of the terms, finite and not
            negative. None: 1.

    Returns:
        `[..., T]`, float32 or wider; 0 where masked.

    Raises:
        TypeError: A dtype is not as above.
        ValueError: The shapes do not fit, or a concrete weight of a real step is out of range.

    Example:
        >>> print(squared_error(jnp.array([[1.0, 2.0]]), jnp.array([[0.0, 4.0]])))
        [5.]

        A flag for each feature, where one is missing: the features become steps of their own.

        >>> predictions, targets = jnp.array([[1.0, 2.0]]), jnp.array([[0.0, jnp.nan]])
        >>> print(squared_error(predictions[..., None], targets[..., None], [[1, 0]]))
        [[1. 0.]]
    """
    (predictions,), flags = as_predictions(mask, predictions=predictions)
    targets = as_array(targets, "targets", NUMBERS, predictions.shape)
    predictions, targets = zero_masked(flags, (predictions, targets))
    losses = optax.losses.squared_error(predictions, targets)
    return _weighted(losses, flags, mask, weights, num_feature_axes=1).sum(-1)


def gaussian_nll(
    means: Any, log_scales: Any, targets: Any, mask: Any = None, *, weights: Any = None
) -> jax.Array:
    """The negative log-likelihood of each step under D independent normal distributions.

        ℓₜ = Σ_d ½ ((targetₜ − meanₜ) / σₜ)² + log σₜ + ½ log 2π,  log σₜ = log_scalesₜ

    Args:
        means: `[..., T, D]`, floating.
        log_scales: `[..., T, D]`, floating, the logarithm of the standard deviation.
        targets: `[..., T, D]`, floating, ints or bool.
        mask: `[..., T]`, True where a step is real. None: all steps are.
        weights: `[..., T, D]`, `[..., T]` or `[...]`, factors of the terms, finite and not
            negative. None: 1.

    Returns:
        `[..., T]`, float32 or wider, in nats; 0 where masked.

    Raises:
        TypeError: A dtype is not as above.
        ValueError: The shapes do not fit, or a concrete weight of a real step is out of range.

    Example:
        >>> print(gaussian_nll(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.ones((1, 1))))
        [1.4189385]
    """
    (means, log_scales), flags = as_predictions(mask, means=means, log_scales=log_scales)
    targets = as_array(targets, "targets", NUMBERS, means.shape)
    means, log_scales, targets = zero_masked(flags, (means, log_scales, targets))
    # Scaled before it is squared: exp(-2 log σ) would overflow for half as small a scale.
    squared = optax.losses.squared_error((targets - means) * jnp.exp(-log_scales))
    losses = 0.5 * squared + log_scales + 0.5 * math.log(2 * math.pi)
    return _weighted(losses, flags, mask, weights, num_feature_axes=1).sum(-1)


def _terms(losses, mask, weights):
    """The terms of a sum over steps, in the accumulator's dtype, and what each step counts."""
    losses = as_array(losses, "losses", (jnp.floating, jnp.bool_))
    if losses.ndim == 0:
        raise ValueError("losses must be [..., T], got a scalar.")
    flags = jnp.ones(losses.shape, bool) if mask is None else as_mask(mask, losses.shape)
    losses = zero_masked(flags, wide(losses))
    if weights is None:
        return losses, flags
    weights = as_weights(weights, mask, (losses.shape[:-1], losses.shape), losses.dtype)
    return losses * weights, weights


def _check_not_empty(shape, mask, weights, empty):
    """Raises if it can be seen that no step counts and there is no value for that."""
    # A symbolic shape of `jax.export` is not empty, and its flags are not known.
    if empty is not None or any(map(checks.is_symbolic, shape)):
        return
    counts = np.asarray(0 not in shape)
    for name, values, what in (
        ("losses", counts, "a step"),
        ("mask", mask, "a real step"),
        ("weights", weights, "a weight above 0 on a real step"),
    ):
        known = None if values is None else concrete(values)
        if known is not None:
            counts = counts & np.expand_dims(known != 0, tuple(range(known.ndim, len(shape))))
        if not counts.any():
            raise ValueError(f"{name} must have {what} for a mean: pass empty= to allow none.")


def _ratio(total, count, empty):
    if np.shape(empty) != ():
        raise ValueError(f"empty must be a scalar, got the shape {np.shape(empty)}.")
    # Divided by 1 where nothing counts, so that the gradient there is zero and not NaN.
    mean = total / jnp.where(count == 0, 1, count)
    return jnp.where(count == 0, jnp.nan if empty is None else jnp.asarray(empty, mean.dtype), mean)


def _weighted(losses, flags, mask, weights, num_feature_axes=0):
    """Losses `[..., T]` or `[..., T, D]` times their weights, zero where masked."""
    losses = zero_masked(flags, losses)
    if weights is None:
        return losses
    fewest = losses.ndim - 1 - num_feature_axes
    shapes = tuple(losses.shape[:axes] for axes in range(fewest, losses.ndim + 1))
    return losses * as_weights(weights, mask, shapes, losses.dtype)
