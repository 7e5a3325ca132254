"""Losses of single steps, and three ways to reduce them. No reduction is a default.

Masked values are replaced before anything is computed: NaN in padding affects neither values nor
gradients, and NaN in a real step stays visible. Results have at least float32.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask, concrete, zero_masked

_NUMBERS = (jnp.floating, jnp.integer, jnp.bool_)


def sum_over_steps(losses: Any, mask: Any = None) -> jax.Array:
    """The sum over all real steps of all sequences.

        Σ mₜ ℓₜ

    With a mask that is True only at the last real step this is a final-state objective.

    Args:
        losses: `[..., T]`, floating or bool.
        mask: `[..., T]`, True where a step counts. None: all steps do.

    Returns:
        A scalar, float32 or wider; 0 when no step counts.

    Raises:
        TypeError: `losses` is neither floating nor bool, or the mask is not an array of flags.
        ValueError: The shapes differ, or `losses` has no time axis.

    Example:
        >>> sum_over_steps(jnp.array([1.0, 2.0, 4.0]), jnp.array([1, 1, 0]))
        Array(3., dtype=float32)
    """
    losses, _ = _masked_losses(losses, mask)
    return losses.sum()


def mean_over_steps(losses: Any, mask: Any = None, *, empty: Any = None) -> jax.Array:
    """The mean over all real steps of all sequences: each step has the same weight.

        Σ mₜ ℓₜ / Σ mₜ

    Args:
        losses: `[..., T]`, floating or bool.
        mask: `[..., T]`, True where a step counts. None: all steps do.
        empty: the value when no step counts; None raises, or gives NaN if the mask is traced.

    Returns:
        A scalar, float32 or wider. Without a step that counts: `empty`, or NaN when the mask is
        traced and there is no `empty`; the gradient is zero.

    Raises:
        TypeError: `losses` is neither floating nor bool, or the mask is not an array of flags.
        ValueError: The shapes differ, `losses` has no time axis, or no step counts, the mask is
            concrete and there is no `empty`.

    Example:
        A sequence of three steps and one of a single step:

        >>> losses = jnp.array([[1.0, 1.0, 1.0], [5.0, 0.0, 0.0]])
        >>> mask = jnp.array([[1, 1, 1], [1, 0, 0]])
        >>> mean_over_steps(losses, mask)  # (1 + 1 + 1 + 5) / 4
        Array(2., dtype=float32)
        >>> mean_over_sequences(losses, mask)  # ((1 + 1 + 1) / 3 + 5) / 2
        Array(3., dtype=float32)
    """
    losses, flags = _masked_losses(losses, mask)
    _check_not_empty(losses, mask, empty)
    return _ratio(losses.sum(), flags.sum(), empty)


def mean_over_sequences(losses: Any, mask: Any = None, *, empty: Any = None) -> jax.Array:
    """The mean over sequences of their means over steps: each sequence has the same weight.

        (1/B) Σ_b (Σₜ mₜ ℓₜ / Σₜ mₜ)

    A sequence without a step that counts (length 0) has no mean and is left out of B.

    Args:
        losses: `[..., T]`, floating or bool; without leading axes one sequence.
        mask: `[..., T]`, True where a step counts. None: all steps do.
        empty: the value when no step counts; None raises, or gives NaN if the mask is traced.

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
    losses, flags = _masked_losses(losses, mask)
    _check_not_empty(losses, mask, empty)
    means = losses.sum(-1) / jnp.maximum(flags.sum(-1), 1)
    return _ratio(means.sum(), flags.any(-1).sum(), empty)


def cross_entropy(logits: Any, labels: Any, mask: Any = None) -> jax.Array:
    """The cross-entropy of each step with a single label.

        ℓₜ = log Σ_c exp(logitsₜ[c]) − logitsₜ[labelₜ]

    Args:
        logits: `[..., T, C]`, floating.
        labels: ints `[..., T]` in 0 ... C - 1 where the mask is True.
        mask: `[..., T]`, True where a step is real. None: all steps are.

    Returns:
        `[..., T]`, float32 or wider; 0 where masked, NaN where a traced label is out of range.

    Raises:
        TypeError: A dtype is not as above.
        ValueError: The shapes differ, or a concrete real label is out of range.

    Example:
        >>> logits = jnp.zeros((3, 4))
        >>> print(cross_entropy(logits, jnp.array([0, 3, -1]), jnp.array([1, 1, 0])))
        [1.3862944 1.3862944 0.       ]
    """
    (logits,), flags = _as_predictions(mask, logits=logits)
    *leading, num_classes = logits.shape
    labels = _as_labels(labels, mask, (jnp.integer,), tuple(leading), num_classes - 1)
    logits, labels = zero_masked(flags, (logits, labels))
    inside = (labels >= 0) & (labels < num_classes)
    losses = optax.losses.softmax_cross_entropy_with_integer_labels(logits, labels)
    return zero_masked(flags, jnp.where(inside, losses, jnp.nan))


def binary_cross_entropy(logits: Any, labels: Any, mask: Any = None) -> jax.Array:
    """The cross-entropy of each step with D binary labels, summed over them.

        ℓₜ = −Σ_d yₜ log σ(logitsₜ) + (1 − yₜ) log(1 − σ(logitsₜ))

    Args:
        logits: `[..., T, D]`, floating.
        labels: `[..., T, D]`, bool, or in 0 ... 1 where the mask is True; probabilities are
            allowed.
        mask: `[..., T]`, True where a step is real. None: all steps are.

    Returns:
        `[..., T]`, float32 or wider; 0 where masked, NaN where a traced label is out of range.

    Raises:
        TypeError: A dtype is not as above.
        ValueError: The shapes differ, or a concrete real label is out of range.

    Example:
        >>> logits = jnp.zeros((2, 1))
        >>> print(binary_cross_entropy(logits, jnp.array([[1], [0]]), jnp.array([1, 0])))
        [0.6931472 0.       ]
    """
    (logits,), flags = _as_predictions(mask, logits=logits)
    labels = _as_labels(labels, mask, _NUMBERS, logits.shape, 1)
    logits, labels = zero_masked(flags, (logits, labels))
    inside = (labels >= 0) & (labels <= 1)
    losses = optax.losses.sigmoid_binary_cross_entropy(logits, labels)
    return zero_masked(flags, jnp.where(inside, losses, jnp.nan).sum(-1))


def squared_error(predictions: Any, targets: Any, mask: Any = None) -> jax.Array:
    """The squared error of each step, summed over the features.

        ℓₜ = Σ_d (predictionₜ − targetₜ)²

    Args:
        predictions: `[..., T, D]`, floating.
        targets: `[..., T, D]`, floating, ints or bool.
        mask: `[..., T]`, True where a step is real. None: all steps are.

    Returns:
        `[..., T]`, float32 or wider; 0 where masked.

    Raises:
        TypeError: A dtype is not as above.
        ValueError: The shapes differ.

    Example:
        >>> print(squared_error(jnp.array([[1.0, 2.0]]), jnp.array([[0.0, 4.0]])))
        [5.]
    """
    (predictions,), flags = _as_predictions(mask, predictions=predictions)
    targets = _as_array(targets, "targets", _NUMBERS, predictions.shape)
    predictions, targets = zero_masked(flags, (predictions, targets))
    return optax.losses.squared_error(predictions, targets).sum(-1)


def gaussian_nll(means: Any, log_scales: Any, targets: Any, mask: Any = None) -> jax.Array:
    """The negative log-likelihood of each step under D independent normal distributions.

        ℓₜ = Σ_d ½ ((targetₜ − meanₜ) / σₜ)² + log σₜ + ½ log 2π,  log σₜ = log_scalesₜ

    Args:
        means: `[..., T, D]`, floating.
        log_scales: `[..., T, D]`, floating, the logarithm of the standard deviation.
        targets: `[..., T, D]`, floating, ints or bool.
        mask: `[..., T]`, True where a step is real. None: all steps are.

    Returns:
        `[..., T]`, float32 or wider, in nats; 0 where masked.

    Raises:
        TypeError: A dtype is not as above.
        ValueError: The shapes differ.

    Example:
        >>> print(gaussian_nll(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.ones((1, 1))))
        [1.4189385]
    """
    (means, log_scales), flags = _as_predictions(mask, means=means, log_scales=log_scales)
    targets = _as_array(targets, "targets", _NUMBERS, means.shape)
    means, log_scales, targets = zero_masked(flags, (means, log_scales, targets))
    # Scaled before it is squared: exp(-2 log σ) would overflow for half as small a scale.
    squared = optax.losses.squared_error((targets - means) * jnp.exp(-log_scales))
    losses = 0.5 * squared + log_scales + 0.5 * math.log(2 * math.pi)
    return zero_masked(flags, losses.sum(-1))


def _masked_losses(losses, mask):
    """Losses in the accumulator's dtype, zero where masked, and the mask as bools."""
    losses = _as_array(losses, "losses", (jnp.floating, jnp.bool_))
    if losses.ndim == 0:
        raise ValueError("losses must be [..., T], got a scalar.")
    flags = jnp.ones(losses.shape, bool) if mask is None else as_mask(mask, losses.shape)
    return zero_masked(flags, _wide(losses)), flags


def _check_not_empty(losses, mask, empty):
    if empty is not None:
        return
    flags = None if mask is None else concrete(mask)
    if losses.size == 0 or (flags is not None and not flags.any()):
        raise ValueError(
            "mask must have a real step for a mean, got none: pass empty= to allow that."
        )


def _ratio(total, count, empty):
    if empty is None:
        return total / count
    if np.shape(empty) != ():
        raise ValueError(f"empty must be a scalar, got the shape {np.shape(empty)}.")
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.asarray(empty, total.dtype))


def _as_predictions(mask, **predictions):
    """Predictions `[..., T, D]` of one shape, in at least float32, and the mask or None."""
    shape = np.shape(next(iter(predictions.values())))
    if len(shape) < 2:
        raise ValueError(f"{next(iter(predictions))} must be [..., T, D], got the shape {shape}.")
    arrays = [
        _wide(_as_array(values, name, (jnp.floating,), shape))
        for name, values in predictions.items()
    ]
    return arrays, None if mask is None else as_mask(mask, shape[:-1])


def _as_labels(labels, mask, dtypes, shape, highest):
    array = _as_array(labels, "labels", dtypes, shape)
    _check_range(labels, mask, highest)
    # At least 32 bits, because the labels' own dtype may be too narrow for `highest`.
    return array.astype(jnp.result_type(array, jnp.int32))


def _as_array(values, name, dtypes, shape=None):
    array = checks.array(values, name)
    if not any(jnp.issubdtype(array.dtype, dtype) for dtype in dtypes):
        wanted = " or ".join(dtype.__name__ for dtype in dtypes)
        raise TypeError(f"{name} must be {wanted}, got the dtype {array.dtype}.")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}.")
    return array


def _check_range(labels, mask, highest):
    """Checks the labels of real steps, when labels and mask are concrete."""
    values = concrete(labels)
    flags = None if mask is None else concrete(mask)
    if values is None or (mask is not None and flags is None):
        return
    real = values if flags is None else values[flags != 0]
    wrong = real[~((real >= 0) & (real <= highest))]
    if wrong.size:
        raise ValueError(f"labels must lie in 0 ... {highest} on real steps, got {wrong[0]}.")


def _wide(array):
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
