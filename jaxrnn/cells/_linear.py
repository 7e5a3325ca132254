"""The parts that linear cells share: the carry, the affine step, and discretizations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import precision
from jaxrnn.types import Affine, Cell


class LinearCarry(NamedTuple):
    """The state `h` of a linear cell, real or complex, `[..., H]`, `[..., N]` or `[..., D, N]`."""

    h: Any


class Timed(NamedTuple):
    """Inputs `x [..., D]` and the duration of each, `dt [...]`, in units of the sampling step."""

    x: Any
    dt: Any


def linear_cell(
    init: Callable[[Any, int], Any],
    project: Callable[[Any, Any], tuple[Any, Any]],
    carry_shape: tuple[int, ...] | Callable[[Any], tuple[int, ...]],
    num_outputs: Callable[[int], int],
    emit: Callable[[Any, Any, Any], Any] | None = None,
    *,
    is_complex: bool = False,
    num_feature_axes: Any = 1,
) -> Cell:
    """The cell of hₜ = a ⊙ hₜ₋₁ + b with h₋₁ = 0, whose parameters are read in the carry's dtype.

    Args:
        init: `(key, num_inputs) -> params`.
        project: `(params, x) -> (a, b)`.
        carry_shape: shape of h without batch axes, or `params -> shape`.
        num_outputs: `num_inputs -> int`.
        emit: `(params, h, x) -> y`; None is y = h.
        is_complex: whether h is complex.
        num_feature_axes: as in `Cell`.

    Returns:
        The cell, carry `LinearCarry(h)`.
    """

    def initial_carry(params, batch_shape=()):
        dtype = precision.compute_dtype(params)
        dtype = jnp.promote_types(dtype, jnp.complex64) if is_complex else dtype
        shape = carry_shape(params) if callable(carry_shape) else carry_shape
        return LinearCarry(jnp.zeros((*batch_shape, *shape), dtype))

    def affine(params, x):
        a, b = project(widened(params), x)
        return Affine(LinearCarry(a), LinearCarry(b))

    def advance(params, carry, z):
        del params
        return LinearCarry(z.a.h * carry.h + z.b.h)

    def readout(params, carry, x):
        return carry.h if emit is None else emit(widened(params), carry.h, x)

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=affine,
        advance=advance,
        emit=readout,
        num_outputs=num_outputs,
        num_feature_axes=num_feature_axes,
    )


def complex_product(x: Any, real: Any, imag: Any) -> Any:
    """x (real + i imag) of a real x, by two real products."""
    return lax.complex(x @ real, x @ imag)


def real_product(h: Any, real: Any, imag: Any) -> Any:
    """Re(h (real + i imag)) of a complex h, by two real products."""
    return h.real @ real - h.imag @ imag


def zero_order_hold(eigenvalues: Any, step: Any) -> tuple[Any, Any]:
    """h' = λ h + x over a step Δ in which x is constant: a = exp(Δ λ), b = (exp(Δ λ) - 1) / λ x.

    Args:
        eigenvalues: λ, real or complex.
        step: Δ, real, broadcast against λ.

    Returns:
        a and the factor of x, which is Δ for λ = 0.
    """
    return jnp.exp(step * eigenvalues), step * relative_expm1(step * eigenvalues)


def bilinear(eigenvalues: Any, step: Any) -> tuple[Any, Any]:
    """h' = λ h + x over a step Δ by the trapezoidal rule: a = (1 + Δλ/2) / (1 - Δλ/2).

    |a| < 1 exactly where Re λ < 0.

    Args:
        eigenvalues: λ, real or complex.
        step: Δ, real, broadcast against λ.

    Returns:
        a and the factor of x, Δ / (1 - Δλ/2).
    """
    half = step * eigenvalues / 2
    return (1 + half) / (1 - half), step / (1 - half)


@jax.custom_jvp
def relative_expm1(z: Any) -> Any:
    """(exp(z) - 1) / z for real or complex z, accurate near z = 0, as are its derivatives.

    For |z| > 1/2 each derivative after the first loses some bits to a difference.
    """
    near, small, large = _near_zero(z, 0.1)
    series = jnp.ones_like(z)
    # 1 + z/2 (1 + z/3 (1 + ...)): at |z| = 0.1 the next term is below the rounding of float64.
    for denominator in range(11, 1, -1):
        series = 1 + small / denominator * series
    return jnp.where(near, series, jnp.expm1(large) / large)


# Without a rule, autodiff would go through every term of the series at every step of a scan.
@relative_expm1.defjvp
def _relative_expm1_jvp(primals, tangents):
    (z,), (z_dot,) = primals, tangents
    value = relative_expm1(z)
    # The series is used farther out than for the value: at |z| = 0.1 the quotient loses a digit
    # with each derivative.
    near, small, large = _near_zero(z, 0.5)
    series = jnp.ones_like(z)
    # 1/2 + z 2/3! + z² 3/4! + ...
    for power in range(14, 0, -1):
        series = 1 + small * ((power + 1) / (power * (power + 2))) * series
    slope = jnp.where(near, series / 2, (jnp.exp(large) - value) / large)
    return value, slope * z_dot


def _near_zero(z, limit):
    """`(flag, z where it is near 0 and else 0, z where it is not and else 1)`."""
    # Both branches are computed everywhere, so each gets numbers that are harmless to it.
    near = jnp.abs(z) < limit
    return near, jnp.where(near, z, 0), jnp.where(near, 1, z)


def widened(params: Any) -> Any:
    """The parameters in promote(params, float32), for the sake of exponentials that read them."""
    dtype = precision.compute_dtype(params)
    return jax.tree.map(lambda leaf: leaf.astype(dtype), params)
