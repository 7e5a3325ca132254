"""The diagonal state-space model S4D: one recurrence of N states for each input feature."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import check_steps, log_steps
from jaxrnn.cells._hippo import diagonal_eigenvalues
from jaxrnn.cells._linear import bilinear, linear_cell, zero_order_hold
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell

_DISCRETIZATIONS = {"zoh": zero_order_hold, "bilinear": bilinear}


class S4DParams(NamedTuple):
    """λ = -exp(decay_log) + i eigenvalue_imag `[D, M]` and Δ = exp(step_log) `[D]`.

    C = output_kernel_real + i output_kernel_imag `[D, M]`, and `skip [D]`. M = N / 2 conjugate
    pairs; for real eigenvalues M = N and both imaginary parts are None.
    """

    decay_log: Any
    eigenvalue_imag: Any
    step_log: Any
    output_kernel_real: Any
    output_kernel_imag: Any
    skip: Any
    roles = {
        "decay_log": "ssm",
        "eigenvalue_imag": "ssm",
        "step_log": "ssm",
        "output_kernel_real": "readout",
        "output_kernel_imag": "readout",
        "skip": "readout",
    }


def eigenvalues_of(params: S4DParams) -> Any:
    """λ `[D, M]`."""
    decay = -jnp.exp(params.decay_log)
    return decay if params.eigenvalue_imag is None else lax.complex(decay, params.eigenvalue_imag)


def emit(params: S4DParams, h: Any, x: Any) -> Any:
    """y = 2 Re(Σₙ Cₙ hₙ) + skip ⊙ x (Σₙ Cₙ hₙ for real states), `[..., D]`."""
    if params.output_kernel_imag is None:
        return (params.output_kernel_real * h).sum(-1) + params.skip * x
    read = params.output_kernel_real * h.real - params.output_kernel_imag * h.imag
    return 2 * read.sum(-1) + params.skip * x


@model_factory
def s4d(
    state_size: int = 64,
    eigenvalues: str = "legs",
    *,
    discretization: str = "zoh",
    step_rescale: float = 1.0,
    step_min: float = 0.001,
    step_max: float = 0.1,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """S4D: every input feature drives N states of its own, whose weighted sum is its output.

        h' = λ ⊙ h + x,  y = 2 Re(C · h) + skip x          in continuous time, for each feature
        hₜ = ā ⊙ hₜ₋₁ + b̄ xₜ,  yₜ = 2 Re(C · hₜ) + skip xₜ   in steps of Δ
        Δ = step_rescale · exp(step_log)
        "zoh":      ā = exp(Δλ),                    b̄ = (exp(Δλ) - 1) / λ
        "bilinear": ā = (1 + Δλ/2) / (1 - Δλ/2),    b̄ = Δ / (1 - Δλ/2)

    Gu et al. 2022, "On the parameterization and initialization of diagonal state space models"
    (arXiv:2206.11893). Only the product of the input and the output vector matters, so the input
    vector is 1, as in the paper's simplest form. The factor 2 is there because each state
    represents a conjugate pair. λ starts as one of the paper's S4D initialisations, the same for
    every feature, Δ log-uniform for each feature, and C and skip normal. Re λ < 0 for any
    parameters. Train decay_log, eigenvalue_imag and step_log (the label "ssm" of
    `parameter_labels`) without weight decay and with a smaller learning rate. Features do not mix;
    a dense layer after the cell can mix them.

    Args:
        state_size: N, number of real states of each feature; even, except for "real".
        eigenvalues: initial λ: "lin", "inv", "legs", or "real" for N real states.
        discretization: "zoh" (the input is constant over a step) or "bilinear".
        step_rescale: factor of every Δ, for the same parameters at another sampling rate: 2 for
            every second sample.
        step_min: the smallest initial Δ.
        step_max: the largest initial Δ; 1 / Δ is the memory in steps.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32), complex.

    Returns:
        The cell, `[..., D] -> [..., D]`, carry `LinearCarry(h [..., D, N / 2])`, complex, or
        `[..., D, N]`, real.

    Raises:
        TypeError: `state_size` is not an int, or `step_rescale` is not a float.
        ValueError: `state_size` is below 1 or odd, `eigenvalues` or `discretization` is not one
            of these words, `step_rescale` is not above 0, or 0 < step_min <= step_max does not
            hold.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.s4d(16)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(cell, params, jnp.ones((2, 5, 3)))
        >>> rollout.outputs.shape, rollout.carry.h.shape
        ((2, 5, 3), (2, 3, 8))
    """
    checks.positive(state_size, "state_size")
    check_steps(step_min, step_max)
    checks.above_zero(step_rescale, "step_rescale")
    if discretization not in _DISCRETIZATIONS:
        raise ValueError(
            f"discretization must be one of {tuple(_DISCRETIZATIONS)}, got {discretization!r}."
        )
    start = diagonal_eigenvalues(eigenvalues, state_size)
    is_complex = np.iscomplexobj(start)
    discretize = _DISCRETIZATIONS[discretization]

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        shape = (num_inputs, len(start))
        wide = initializers.draw_dtype(param_dtype)
        # A complex normal number of variance 1 has parts of variance 1/2.
        part = np.sqrt(0.5) if is_complex else 1.0

        def filled(values):
            return jnp.broadcast_to(jnp.asarray(values, param_dtype), shape)

        def drawn(key, shape, deviation=1.0):
            return (deviation * jax.random.normal(key, shape, wide)).astype(param_dtype)

        return S4DParams(
            decay_log=filled(np.log(-np.real(start))),
            eigenvalue_imag=filled(np.imag(start)) if is_complex else None,
            step_log=log_steps(keys[0], (num_inputs,), step_min, step_max, param_dtype),
            output_kernel_real=drawn(keys[1], shape, part),
            output_kernel_imag=drawn(keys[2], shape, part) if is_complex else None,
            skip=drawn(keys[3], (num_inputs,)),
        )

    def project(params, x):
        checks.width(x, params.step_log)
        step = step_rescale * jnp.exp(params.step_log)
        a, gain = discretize(eigenvalues_of(params), step[:, None])
        return a, gain * x[..., None]

    return linear_cell(
        init,
        project,
        lambda params: params.decay_log.shape,
        lambda num_inputs: num_inputs,
        emit,
        is_complex=is_complex,
    )
