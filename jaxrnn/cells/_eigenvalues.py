"""Initial eigenvalues and step sizes of linear cells, which set how long they remember."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.cells._initializers import draw_dtype

# Distance of draws from the ends of [0, 1], where logarithms of rates are infinite.
_MARGIN = 1e-6


def ring(key: Any, num: int, r_min: float, r_max: float, dtype: Any = jnp.float32) -> Any:
    """Decay rates ν for which exp(-ν) is uniform over the area of a ring.

        u ~ U(0, 1),  1 - r² = (1 - r_max²) + u (r_max² - r_min²),  ν = -log r

    Orvieto et al. 2023, arXiv:2303.06349. ν is computed from 1 - r², which is accurate near r = 1.

    Args:
        key: PRNG key.
        num: number of rates.
        r_min: the inner radius, at least 0.
        r_max: the outer radius, at most 1.
        dtype: dtype of the result.

    Returns:
        `[num]`, positive and finite.

    Raises:
        ValueError: 0 <= r_min < r_max <= 1 does not hold.

    Example:
        >>> radii = jnp.exp(-ring(jax.random.key(0), 100, 0.5, 0.9))
        >>> bool((radii > 0.5).all() and (radii < 0.9).all())
        True
    """
    check_radii(r_min, r_max)
    u = open_uniform(key, (num,), dtype)
    missing = (1 - r_max**2) + u * (r_max**2 - r_min**2)
    return (-0.5 * jnp.log1p(-missing)).astype(dtype)


def open_uniform(key: Any, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Any:
    """Uniform numbers that stay away from 0 and 1, in promote(dtype, float32)."""
    wide = draw_dtype(dtype)
    return jax.random.uniform(key, shape, wide, _MARGIN, 1 - _MARGIN)


def check_radii(r_min: float, r_max: float) -> None:
    """Raises unless 0 <= r_min < r_max <= 1."""
    if not 0 <= r_min < r_max <= 1:
        raise ValueError(
            f"r_min and r_max must satisfy 0 <= r_min < r_max <= 1, got {r_min} and {r_max}."
        )


def log_steps(
    key: Any, shape: tuple[int, ...], step_min: float, step_max: float, dtype: Any = jnp.float32
) -> Any:
    """Logarithms of step sizes Δ, log Δ ~ U(log step_min, log step_max), for even time scales.

    Args:
        key: PRNG key.
        shape: shape of the result.
        step_min: the smallest Δ.
        step_max: the largest Δ.
        dtype: dtype of the result.

    Returns:
        An array of `shape`.

    Example:
        >>> steps = jnp.exp(log_steps(jax.random.key(0), (100,), 0.001, 0.1))
        >>> bool((steps > 0.00099).all() and (steps < 0.101).all())
        True
    """
    low, high = math.log(step_min), math.log(step_max)
    return (low + (high - low) * open_uniform(key, shape, dtype)).astype(dtype)


def softplus_bias(key: Any, num_units: int, dtype: Any = jnp.float32) -> Any:
    """Biases b `[num_units]` for which the steps softplus(b) are log-uniform in 0.001 ... 0.1.

    The steps of Mamba start like that (arXiv:2312.00752); b = log(exp(Δ) - 1) without overflow.
    """
    steps = jnp.exp(log_steps(key, (num_units,), 1e-3, 1e-1, draw_dtype(dtype)))
    return (steps + jnp.log(-jnp.expm1(-steps))).astype(dtype)


def log_rates(key: Any, num_units: int, dtype: Any = jnp.float32) -> Any:
    """Logarithms of rates from U(1, 16), `[num_units]`, the initial rates of Mamba-2's heads."""
    return jnp.log(1 + 15 * open_uniform(key, (num_units,), dtype)).astype(dtype)


def check_steps(step_min: float, step_max: float) -> None:
    """Raises unless 0 < step_min <= step_max."""
    if not 0 < step_min <= step_max:
        raise ValueError(
            f"step_min and step_max must satisfy 0 < step_min <= step_max, "
            f"got {step_min} and {step_max}."
        )
