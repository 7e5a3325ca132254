"""The linear recurrence with a real diagonal matrix."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import check_radii, ring
from jaxrnn.cells._linear import linear_cell
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell

_POSITIVE, _SIGNED = (0, 1), (-1, 1)


class DiagonalRNNParams(NamedTuple):
    """`kernel [D, H]`, `bias [H]`, `eigenvalue_logit [H]`, `eigenvalue_kernel [D, H]` or None."""

    kernel: Any
    bias: Any
    eigenvalue_logit: Any
    eigenvalue_kernel: Any = None
    roles = {
        "kernel": "input",
        "bias": "input",
        "eigenvalue_logit": "ssm",
        "eigenvalue_kernel": "input",
    }


@model_factory
def diagonal_rnn(
    num_units: int,
    eigenvalue_range: tuple[int, int] = _POSITIVE,
    *,
    selective: bool = False,
    r_min: float = 0.0,
    r_max: float = 0.99,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The diagonal linear recurrence with real eigenvalues.

        hₜ = λ ⊙ hₜ₋₁ + xₜ W + b,  yₜ = hₜ
        λ = σ(u) in (0, 1)  or  2 σ(u) - 1 = tanh(u / 2) in (-1, 1),  u = eigenvalue_logit

    `selective` makes the eigenvalues depend on the input, u = xₜ W_λ + eigenvalue_logit; the
    recurrence stays linear in h. With eigenvalues of both signs such a cell can track a state: a
    step with λ = -1 flips the sign of h, which computes parity. With eigenvalues in (0, 1) no such
    cell can do that for every length in finite precision (Grazzi et al. 2024, arXiv:2411.12537).

    |λ| starts as in the LRU, uniform over the area of the ring r_min <= |λ| <= r_max, with a random
    sign where both are allowed. W starts normal with columns of variance (1 - λ²) / D, so that
    white noise of variance 1 gives states of variance 1.

    Args:
        num_units: H.
        eigenvalue_range: (0, 1) or (-1, 1).
        selective: whether the eigenvalues depend on the input.
        r_min: the smallest initial |λ|.
        r_max: the largest initial |λ|.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `LinearCarry(h [..., H])`.

    Raises:
        TypeError: `num_units` is not an int, or `selective` is not a bool.
        ValueError: `num_units` is below 1, `eigenvalue_range` is another pair, or
            0 <= r_min < r_max <= 1 does not hold.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.diagonal_rnn(1)
        >>> params = jr.cells.DiagonalRNNParams(jnp.ones((1, 1)), jnp.zeros(1), jnp.zeros(1))
        >>> jr.unroll(cell, params, jnp.array([[1.0], [2.0], [0.0]])).outputs[:, 0]
        Array([1.  , 2.5 , 1.25], dtype=float32)
    """
    checks.positive(num_units, "num_units")
    checks.boolean(selective, "selective")
    check_radii(r_min, r_max)
    if eigenvalue_range not in (_POSITIVE, _SIGNED, [*_POSITIVE], [*_SIGNED]):
        raise ValueError(f"eigenvalue_range must be (0, 1) or (-1, 1), got {eigenvalue_range}.")
    signed = tuple(eigenvalue_range) == _SIGNED

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        wide = initializers.draw_dtype(param_dtype)
        rates = ring(keys[0], num_units, r_min, r_max, wide)
        kernel = initializers.input_kernel(keys[1], num_inputs, num_units, wide)
        eigenvalue_kernel = initializers.input_kernel(keys[2], num_inputs, num_units, param_dtype)
        return DiagonalRNNParams(
            kernel=(jnp.sqrt(-jnp.expm1(-2 * rates)) * kernel).astype(param_dtype),
            bias=jnp.zeros(num_units, param_dtype),
            eigenvalue_logit=_logits(keys[3], rates, signed).astype(param_dtype),
            eigenvalue_kernel=eigenvalue_kernel if selective else None,
        )

    def project(params, x):
        checks.width(x, params.kernel)
        logit = params.eigenvalue_logit
        if selective:
            logit = x @ params.eigenvalue_kernel + logit
        eigenvalues = jnp.tanh(logit / 2) if signed else jax.nn.sigmoid(logit)
        return eigenvalues, x @ params.kernel + params.bias

    return linear_cell(init, project, (num_units,), lambda num_inputs: num_units)


def _logits(key, rates, signed):
    """The logits u for |λ| = exp(-rates), with a random sign if signed."""
    log_missing = jnp.log(-jnp.expm1(-rates))
    if not signed:
        return -rates - log_missing
    sign = jax.random.rademacher(key, rates.shape, rates.dtype)
    return sign * (jnp.log1p(jnp.exp(-rates)) - log_missing)
