"""The quotients that several norms share."""

from typing import Any

from jax import lax


def divided_by_rms(xs: Any, epsilon: float) -> Any:
    """x / √(mean(x²) + ε) over the last axis, in the dtype of x."""
    return xs * lax.rsqrt((xs * xs).mean(axis=-1, keepdims=True) + epsilon)


def standardized(xs: Any, epsilon: float) -> Any:
    """(x - μ) / √(mean((x - μ)²) + ε) with μ = mean(x), all over the last axis.

    The variance takes two passes, because E[x²] - μ² cancels in float32.
    """
    return divided_by_rms(xs - xs.mean(axis=-1, keepdims=True), epsilon)
