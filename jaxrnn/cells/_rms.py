"""Division by the root of the mean square, which several norms share."""

from typing import Any

from jax import lax


def divided_by_rms(xs: Any, epsilon: float) -> Any:
    """x / √(mean(x²) + ε) over the last axis, in the dtype of x."""
    return xs * lax.rsqrt((xs * xs).mean(axis=-1, keepdims=True) + epsilon)
