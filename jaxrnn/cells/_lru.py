"""The linear recurrent unit: complex eigenvalues in a ring."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import check_radii, open_uniform, ring
from jaxrnn.cells._linear import complex_product, linear_cell, real_product
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell


class LRUParams(NamedTuple):
    """λ = exp(-exp(nu_log) + i exp(theta_log)) and γ = exp(gamma_log), `[N]` each.

    The matrices B = kernel_real + i kernel_imag `[D, N]`, C = output_kernel_real +
    i output_kernel_imag `[N, H]`, and D = skip_kernel `[D, H]`, which is real.
    """

    nu_log: Any
    theta_log: Any
    gamma_log: Any
    kernel_real: Any
    kernel_imag: Any
    output_kernel_real: Any
    output_kernel_imag: Any
    skip_kernel: Any
    roles = {
        "nu_log": "ssm",
        "theta_log": "ssm",
        "gamma_log": "ssm",
        "kernel_real": "input",
        "kernel_imag": "input",
        "output_kernel_real": "readout",
        "output_kernel_imag": "readout",
        "skip_kernel": "readout",
    }


def project(params: LRUParams, x: Any) -> tuple[Any, Any]:
    """a = λ `[N]` and b = γ ⊙ (x B) `[..., N]`."""
    checks.width(x, params.kernel_real)
    eigenvalues = jnp.exp(lax.complex(-jnp.exp(params.nu_log), jnp.exp(params.theta_log)))
    scale = jnp.exp(params.gamma_log)
    return eigenvalues, scale * complex_product(x, params.kernel_real, params.kernel_imag)


def emit(params: LRUParams, h: Any, x: Any) -> Any:
    """y = Re(h C) + x D, `[..., H]`."""
    read = real_product(h, params.output_kernel_real, params.output_kernel_imag)
    return read + x @ params.skip_kernel


@model_factory
def lru(
    num_units: int,
    state_size: int,
    *,
    r_min: float = 0.0,
    r_max: float = 1.0,
    max_phase: float = 2 * jnp.pi,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The linear recurrent unit.

        λ = exp(-exp(nu_log) + i exp(theta_log)),  γ = exp(gamma_log)
        hₜ = λ ⊙ hₜ₋₁ + γ ⊙ (xₜ B),  yₜ = Re(hₜ C) + xₜ D

    Orvieto et al. 2023, "Resurrecting recurrent neural networks for long sequences"
    (arXiv:2303.06349). |λ| < 1 for any nu_log. λ starts uniform over the ring r_min <= |λ| <= r_max
    with phases in (0, max_phase), and γ² starts as 1 - |λ|², so that white noise of variance 1
    gives states of variance 1; γ is then trained. B and C start normal with E|Bᵢⱼ|² = 1/D and
    E|Cᵢⱼ|² = 2/N. Complex matrices are pairs of real ones, which any optimiser can handle. D is the
    matrix of the paper's equations; its code has only the diagonal, which needs as many outputs as
    inputs. Train nu_log, theta_log and gamma_log (the label "ssm" of `parameter_labels`) without
    weight decay and with a smaller learning rate.

    Args:
        num_units: H, number of real outputs.
        state_size: N, number of complex states.
        r_min: the inner radius.
        r_max: the outer radius; 0.9 to 0.999 for long sequences.
        max_phase: the largest initial phase; small for slow signals and long sequences.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32), complex.

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `LinearCarry(h [..., N])`, complex.

    Raises:
        TypeError: A size is not an int.
        ValueError: A size is below 1, or 0 <= r_min < r_max <= 1 or 0 < max_phase <= 2π does not
            hold.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.lru(8, 16, r_min=0.9, r_max=0.99)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> radii = jnp.exp(-jnp.exp(params.nu_log))
        >>> bool((radii > 0.9).all() and (radii < 0.99).all())
        True
        >>> jr.unroll(cell, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 8)
    """
    checks.positive(num_units, "num_units")
    checks.positive(state_size, "state_size")
    check_radii(r_min, r_max)
    if not 0 < max_phase <= 2 * jnp.pi:
        raise ValueError(f"max_phase must lie in (0, 2π], got {max_phase}.")

    def init(key, num_inputs):
        keys = jax.random.split(key, 5)
        rates = ring(keys[0], state_size, r_min, r_max, initializers.draw_dtype(param_dtype))
        phases = max_phase * open_uniform(keys[1], (state_size,), param_dtype)
        kernel = initializers.input_kernel(keys[2], num_inputs, 2 * state_size, param_dtype)
        output_kernel = initializers.input_kernel(keys[3], state_size, 2 * num_units, param_dtype)
        kernel_real, kernel_imag = jnp.split(kernel / jnp.sqrt(2).astype(param_dtype), 2, axis=1)
        output_kernel_real, output_kernel_imag = jnp.split(output_kernel, 2, axis=1)
        return LRUParams(
            nu_log=jnp.log(rates).astype(param_dtype),
            theta_log=jnp.log(phases).astype(param_dtype),
            gamma_log=(0.5 * jnp.log(-jnp.expm1(-2 * rates))).astype(param_dtype),
            kernel_real=kernel_real,
            kernel_imag=kernel_imag,
            output_kernel_real=output_kernel_real,
            output_kernel_imag=output_kernel_imag,
            skip_kernel=initializers.input_kernel(keys[4], num_inputs, num_units, param_dtype),
        )

    return linear_cell(
        init, project, (state_size,), lambda num_inputs: num_units, emit, is_complex=True
    )
