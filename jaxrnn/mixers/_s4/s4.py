"""The structured state-space model S4, as a convolution or a recurrence."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import check_steps, log_steps
from jaxrnn.cells._hippo import hippo_eigen, hippo_legs
from jaxrnn.cells._linear import widened
from jaxrnn.engine import checks, precision
from jaxrnn.engine.evaluators.convolution import convolution
from jaxrnn.factories import model_factory
from jaxrnn.mixers._s4.dplr import System, advance, conjugate_product, discretized, response
from jaxrnn.types import Cell, Evaluator, Layer


class S4Params(NamedTuple):
    """Λ = -exp(decay_log) + i eigenvalue_imag, P, B and C `[D, M]`; log Δ and skip `[D]`.

    Each of the D features has M = N / 2 conjugate pairs.
    """

    decay_log: Any
    eigenvalue_imag: Any
    low_rank_real: Any
    low_rank_imag: Any
    input_kernel_real: Any
    input_kernel_imag: Any
    output_kernel_real: Any
    output_kernel_imag: Any
    step_log: Any
    skip: Any
    roles = {
        "decay_log": "ssm",
        "eigenvalue_imag": "ssm",
        "low_rank_real": "ssm",
        "low_rank_imag": "ssm",
        "input_kernel_real": "input",
        "input_kernel_imag": "input",
        "output_kernel_real": "readout",
        "output_kernel_imag": "readout",
        "step_log": "ssm",
        "skip": "readout",
    }


class S4Carry(NamedTuple):
    """The states `h [..., D, M]`, complex, with one of each conjugate pair."""

    h: Any


class _SystemAndSkip(NamedTuple):
    system: System
    skip: Any


@model_factory
def s4(
    state_size: int = 64,
    *,
    step_rescale: float = 1.0,
    step_min: float = 0.001,
    step_max: float = 0.1,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """S4: each input feature drives N states, coupled by a diagonal-plus-low-rank matrix.

        h' = A h + B x,  A = Λ - P Pᴴ,  y = 2 Re(C · h) + skip x    in continuous time
        hₜ = Ā hₜ₋₁ + B̄ xₜ,  Ā = (1 - ΔA/2)⁻¹ (1 + ΔA/2),  B̄ = (1 - ΔA/2)⁻¹ Δ B
        Δ = step_rescale · exp(step_log)

    Gu et al. 2021, "Efficiently modeling long sequences with structured state spaces"
    (arXiv:2111.00396). A starts as HiPPO-LegS, whose eigenvectors are numerically useless but which
    is normal up to rank one. Of each conjugate pair one is kept, so Pᴴ h = 2 Re(P̄ · h). A step
    costs O(N) by Woodbury's identity. Features do not mix; a dense layer after this one mixes them.

    T steps at once are a convolution with the kernel Kₗ = 2 Re(C Āˡ B̄). Its transform at a T-th
    root of unity z is, with G(z) = ((2/Δ)(1 - z) - (1 + z) A)⁻¹, the sum

        Σₗ Kₗ zˡ = 2 C (1 - Āᵀ) G(z) B,     G = E - E P (1 + z) Pᴴ E / (1 + (1 + z) Pᴴ E P)

    with the diagonal E(z) = 1 / ((2/Δ)(1 - z) - (1 + z) Λ). The paper divides by 1 + z, which is
    zero for even T; this form does not. The paper trains C (1 - Āᵀ), which fixes T; here C is the
    parameter and Āᵀ comes from repeated squaring, so the model is the same for any T. Outputs,
    carry in and carry out all come from G: O(T N) memory for a feature, whatever the batch, and two
    more products of that size per row for the carries. T = 1 and sequences with resets use the
    recurrence; the two forms agree to the rounding of the largest input of the row, later inputs
    included.

    Args:
        state_size: N, the number of real states of a feature; even.
        step_rescale: factor of every Δ, for the same parameters at another sampling rate: 2 for
            every second sample.
        step_min: smallest initial Δ; 2 / Δ is the memory in steps.
        step_max: largest initial Δ.
        evaluator: how the recurrence is evaluated; None is `convolution()`.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32), complex.

    Returns:
        The layer, `[T, *batch, D] -> [T, *batch, D]`, carry `S4Carry(h [*batch, D, N / 2])`.

    Raises:
        TypeError: `state_size` is not an int, or `step_rescale` is not a float.
        ValueError: `state_size` is below 2 or odd, `step_rescale` is not above 0, or
            0 < step_min <= step_max does not hold.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.s4(16)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 100, 3)))
        >>> rollout.outputs.shape, rollout.carry.h.shape, rollout.info
        ((2, 100, 3), (2, 3, 8), convolution())
    """
    checks.positive(state_size, "state_size")
    check_steps(step_min, step_max)
    checks.above_zero(step_rescale, "step_rescale")
    evaluate = convolution() if evaluator is None else evaluator
    checks.evaluator(evaluate, "evaluator")
    checks.evaluates(evaluate, _CELL)
    if state_size % 2:
        raise ValueError(f"state_size must be even, for conjugate pairs, got {state_size}.")

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        shape = (num_inputs, state_size // 2)
        wide = initializers.draw_dtype(param_dtype)
        eigenvalues, low_rank, input_kernel = _hippo(state_size)

        def filled(values):
            return jnp.broadcast_to(jnp.asarray(values, param_dtype), shape)

        def drawn(key, shape, deviation=1.0):
            return (deviation * jax.random.normal(key, shape, wide)).astype(param_dtype)

        return S4Params(
            decay_log=filled(np.log(-np.real(eigenvalues))),
            eigenvalue_imag=filled(np.imag(eigenvalues)),
            low_rank_real=filled(np.real(low_rank)),
            low_rank_imag=filled(np.imag(low_rank)),
            input_kernel_real=filled(np.real(input_kernel)),
            input_kernel_imag=filled(np.imag(input_kernel)),
            # A complex normal number of variance 1 has parts of variance 1/2.
            output_kernel_real=drawn(keys[0], shape, np.sqrt(0.5)),
            output_kernel_imag=drawn(keys[1], shape, np.sqrt(0.5)),
            step_log=log_steps(keys[2], (num_inputs,), step_min, step_max, param_dtype),
            skip=drawn(keys[3], (num_inputs,)),
        )

    def initial_carry(params, batch_shape=()):
        dtype = jnp.promote_types(precision.compute_dtype(params), jnp.complex64)
        return S4Carry(jnp.zeros((*batch_shape, *params.decay_log.shape), dtype))

    def unroll(params, carry, steps, key):
        del key
        checks.width(steps.xs, params.step_log)
        return evaluate(_CELL, _system(params, step_rescale), carry, steps)

    return Layer(init, initial_carry, unroll, lambda num_inputs: num_inputs)


def _hippo(state_size):
    """Λ, P and B of HiPPO-LegS in the basis of eigenvectors of A + P Pᵀ, `[M]`."""
    eigenvalues, vectors = hippo_eigen(state_size)
    root = hippo_legs(state_size)[1]
    input_kernel = vectors.conj().T @ root
    return eigenvalues, input_kernel / np.sqrt(2), input_kernel


def _system(params: S4Params, step_rescale: float) -> _SystemAndSkip:
    params = widened(params)
    system = discretized(
        eigenvalues=lax.complex(-jnp.exp(params.decay_log), params.eigenvalue_imag),
        low_rank=lax.complex(params.low_rank_real, params.low_rank_imag),
        input_kernel=lax.complex(params.input_kernel_real, params.input_kernel_imag),
        output_kernel=lax.complex(params.output_kernel_real, params.output_kernel_imag),
        step=step_rescale * jnp.exp(params.step_log),
    )
    return _SystemAndSkip(system, params.skip)


def _initial_carry(params: _SystemAndSkip, batch_shape: tuple[int, ...] = ()) -> S4Carry:
    keep = params.system.keep
    return S4Carry(jnp.zeros((*batch_shape, *keep.shape), keep.dtype))


def _emit(params: _SystemAndSkip, carry: S4Carry, x: Any) -> Any:
    return conjugate_product(params.system.output_kernel, carry.h) + params.skip * x


_CELL = Cell(
    init=lambda key, num_inputs: None,
    initial_carry=_initial_carry,
    project=lambda params, x: x,
    advance=lambda params, carry, z: S4Carry(advance(params.system, carry.h, z)),
    emit=_emit,
    num_outputs=lambda num_inputs: num_inputs,
    response=lambda params, num_steps: response(params.system, params.skip, num_steps),
)
