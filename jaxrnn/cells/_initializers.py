"""Initial values of recurrent parameters.

Numbers are drawn in promote(dtype, float32) and then cast, because there is no bfloat16 QR
decomposition.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks

_LECUN = jax.nn.initializers.lecun_normal()


def input_kernel(
    key: Any,
    num_inputs: int,
    num_outputs: int,
    dtype: Any = jnp.float32,
    draw: Callable[..., Any] = _LECUN,
) -> Any:
    """A kernel that keeps the variance of its input, Wᵢⱼ ~ N(0, 1/D) truncated (LeCun).

    Args:
        key: PRNG key.
        num_inputs: D.
        num_outputs: number of columns; gates are side by side and share the variance 1/D.
        dtype: dtype of the result.
        draw: another initialiser of `jax.nn.initializers`, for models whose papers name one.

    Returns:
        `[D, num_outputs]`.

    Raises:
        TypeError: `dtype` is not real and floating, or `num_inputs` is not an int.
        ValueError: `num_inputs` is below 1.

    Example:
        >>> input_kernel(jax.random.key(0), 3, 8).shape
        (3, 8)
    """
    checks.positive(num_inputs, "num_inputs")
    return draw(key, (num_inputs, num_outputs), draw_dtype(dtype)).astype(dtype)


def orthogonal_per_gate(
    key: Any, num_inputs: int, num_units: int, num_gates: int, dtype: Any = jnp.float32
) -> Any:
    """Recurrent kernels in which the block of every gate is orthogonal.

        Uᵍᵀ Uᵍ = I for each gate g  (Uᵍ Uᵍᵀ = I with fewer rows than columns)

    One orthogonal `[H, G*H]` matrix would have orthonormal rows, but blocks that are far from
    orthogonal (Saxe et al. 2014, arXiv:1312.6120, is about each square map).

    Args:
        key: PRNG key.
        num_inputs: number of rows, H (or the projected width of an LSTMP).
        num_units: H, number of columns of each block.
        num_gates: G.
        dtype: dtype of the result.

    Returns:
        `[num_inputs, G*H]`.

    Raises:
        TypeError: `dtype` is not real and floating.

    Example:
        >>> kernel = orthogonal_per_gate(jax.random.key(0), 4, 4, 3)
        >>> block = kernel[:, 4:8]
        >>> bool(jnp.allclose(block.T @ block, jnp.eye(4), atol=1e-5))
        True
    """
    draw = jax.nn.initializers.orthogonal()
    blocks = [
        draw(gate_key, (num_inputs, num_units), draw_dtype(dtype))
        for gate_key in jax.random.split(key, num_gates)
    ]
    return jnp.concatenate(blocks, axis=1).astype(dtype)


def diagonals(key: Any, num_units: int, num_diagonals: int, dtype: Any = jnp.float32) -> Any:
    """Diagonals of square matrices, u ~ N(0, 1/H), which is Xavier's variance of the whole matrix.

    Glorot and Bengio 2010; Danieli et al. 2025 (arXiv:2510.21450) for diagonals.

    Args:
        key: PRNG key.
        num_units: H.
        num_diagonals: number of diagonals, which are side by side.
        dtype: dtype of the result.

    Returns:
        `[num_diagonals * H]`.

    Raises:
        TypeError: `dtype` is not real and floating.

    Example:
        >>> diagonals(jax.random.key(0), 4, 3).shape
        (12,)
    """
    draw = jax.random.normal(key, (num_diagonals * num_units,), draw_dtype(dtype))
    return (draw / num_units**0.5).astype(dtype)


def chrono_bias(key: Any, num_units: int, longest: int, dtype: Any = jnp.float32) -> Any:
    """Forget-gate biases for memories of up to `longest` steps, b_f = log u, u ~ U(1, longest - 1).

    Tallec and Ollivier 2018, arXiv:1804.11188; the input gate has b_i = -b_f.

    Args:
        key: PRNG key.
        num_units: H.
        longest: the longest dependency expected, in steps; at least 3.
        dtype: dtype of the result.

    Returns:
        `[H]`.

    Raises:
        TypeError: `dtype` is not real and floating.
        ValueError: `longest` is below 3.

    Example:
        >>> bias = chrono_bias(jax.random.key(0), 100, longest=50)
        >>> bool((bias >= 0).all() and (bias <= jnp.log(49.0)).all())
        True
    """
    if longest < 3:
        raise ValueError(f"longest must be at least 3 steps, got {longest}.")
    steps = jax.random.uniform(key, (num_units,), draw_dtype(dtype), 1.0, longest - 1.0)
    return jnp.log(steps).astype(dtype)


def draw_dtype(dtype: Any) -> Any:
    """The dtype to draw in, promote(dtype, float32); raises TypeError unless it is real."""
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"param_dtype must be real and floating, got {dtype}.")
    return jnp.promote_types(dtype, jnp.float32)
