"""Checks of what losses and reductions are given: predictions, labels, targets and weights.

Where values are concrete, a wrong one raises. Where they are traced it becomes NaN, so that it
shows.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask, concrete, zero_masked
from jaxrnn.types import Mask

NUMBERS = (jnp.floating, jnp.integer, jnp.bool_)


def as_predictions(mask: Mask, **predictions: Any) -> tuple[list[jax.Array], Mask]:
    """Predictions `[..., T, D]` of one shape, in at least float32, and the mask as bools or None.

    Args:
        mask: flags `[..., T]`, or None.
        **predictions: floating arrays by the names that errors call them.

    Returns:
        `(predictions, mask)`, the predictions in the order in which they were given.
    """
    shape = np.shape(next(iter(predictions.values())))
    if len(shape) < 2:
        raise ValueError(f"{next(iter(predictions))} must be [..., T, D], got the shape {shape}.")
    arrays = [
        wide(as_array(values, name, (jnp.floating,), shape)) for name, values in predictions.items()
    ]
    return arrays, None if mask is None else as_mask(mask, shape[:-1])


def as_labels(
    labels: Any, mask: Mask, dtypes: tuple[Any, ...], shape: tuple[int, ...], highest: int
) -> jax.Array:
    """Labels of the given shape in at least 32 bits, in 0 ... highest on real steps if concrete."""
    array = as_array(labels, "labels", dtypes, shape)
    real = _real_values(labels, mask)
    if real is not None:
        _refuse(real, (real >= 0) & (real <= highest), f"labels must lie in 0 ... {highest}")
    # At least 32 bits, because the labels' own dtype may be too narrow for `highest`.
    return array.astype(jnp.result_type(array, jnp.int32))


def as_weights(weights: Any, mask: Mask, shapes: tuple[tuple[int, ...], ...], dtype: Any) -> Any:
    """Weights as an array of the largest of some shapes, zero where masked.

    The number of axes says what is weighed. Sizes are exact: an axis of size 1 is not repeated.

    Args:
        weights: numbers of one of the shapes.
        mask: flags `[..., T]`, or None. Where T is no axis of the weights, a sequence with a real
            step is real.
        shapes: the shapes that are allowed, each a leading part of the next, such as those of
            sequences, steps and features, `[...]`, `[..., T]` and `[..., T, D]`.
        dtype: real dtype of the result.

    Returns:
        An array of the last shape; NaN where a traced weight of a real step is negative.

    Raises:
        TypeError: The weights are not real numbers.
        ValueError: They have another shape, or a concrete weight of a real step is negative or not
            finite.

    Example:
        >>> print(as_weights([1.0, 0.5], None, ((2,), (2, 3)), jnp.float32))
        [[1.  1.  1. ]
         [0.5 0.5 0.5]]
    """
    array = as_array(weights, "weights", NUMBERS).astype(dtype)
    if array.shape not in shapes:
        wanted = " or ".join(str(shape) for shape in dict.fromkeys(reversed(shapes)))
        raise ValueError(f"weights must have the shape {wanted}, got {array.shape}.")
    real = _real_values(weights, mask)
    if real is not None:
        _refuse(real, np.isfinite(real) & (real >= 0), "weights must be finite and not below 0")
    shape = shapes[-1]
    array = jnp.broadcast_to(jnp.expand_dims(array, tuple(range(array.ndim, len(shape)))), shape)
    flags = None if mask is None else _any_real(as_mask(mask, np.shape(mask)), len(shape))
    return zero_masked(flags, jnp.where(array < 0, jnp.nan, array))


def as_array(
    values: Any, name: str, dtypes: tuple[Any, ...], shape: tuple[int, ...] | None = None
) -> jax.Array:
    """The values as an array, with one of the kinds of dtype and, where given, the shape."""
    array = checks.array(values, name)
    if not any(jnp.issubdtype(array.dtype, dtype) for dtype in dtypes):
        wanted = " or ".join(dtype.__name__ for dtype in dtypes)
        raise TypeError(f"{name} must be {wanted}, got the dtype {array.dtype}.")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}.")
    return array


def wide(array: jax.Array) -> jax.Array:
    """The array in promote(dtype, float32)."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def _real_values(values, mask):
    """The concrete values of real steps, or None when values or mask are traced."""
    known, flags = concrete(values), None if mask is None else concrete(mask)
    if known is None or (mask is not None and flags is None):
        return None
    return known if flags is None else known[_any_real(flags != 0, known.ndim)]


def _any_real(flags, num_axes):
    """Whether a step is real, or, where `num_axes` leaves out time, a step of the sequence."""
    return flags.any(axis=tuple(range(num_axes, flags.ndim)))


def _refuse(values, right, rule):
    if not right.all():
        raise ValueError(f"{rule} on real steps, got {values[~right][0]}.")
