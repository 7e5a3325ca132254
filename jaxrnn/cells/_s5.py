"""The state-space model S5: one state that all inputs drive, with steps of any length."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import check_steps, log_steps
from jaxrnn.cells._hippo import hippo_eigen
from jaxrnn.cells._linear import Timed, complex_product, linear_cell, real_product, zero_order_hold
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell


class S5Params(NamedTuple):
    """λ = -exp(decay_log) + i eigenvalue_imag and Δ = exp(step_log), `[P]`, P = N / 2 pairs.

    The matrices B = kernel_real + i kernel_imag `[D, P]`, C = output_kernel_real +
    i output_kernel_imag `[P, H]`, and D = skip_kernel `[D, H]`.
    """

    decay_log: Any
    eigenvalue_imag: Any
    step_log: Any
    kernel_real: Any
    kernel_imag: Any
    output_kernel_real: Any
    output_kernel_imag: Any
    skip_kernel: Any
    roles = {
        "decay_log": "ssm",
        "eigenvalue_imag": "ssm",
        "step_log": "ssm",
        "kernel_real": "input",
        "kernel_imag": "input",
        "output_kernel_real": "readout",
        "output_kernel_imag": "readout",
        "skip_kernel": "readout",
    }


@model_factory
def s5(
    num_units: int,
    state_size: int = 64,
    num_blocks: int = 1,
    *,
    timed: bool = False,
    step_rescale: float = 1.0,
    step_min: float = 0.001,
    step_max: float = 0.1,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """S5: one state of N numbers, which all inputs drive and all outputs read.

        h' = λ ⊙ h + x B,  y = 2 Re(h C) + x D                        in continuous time
        hₜ = exp(Δₜ λ) ⊙ hₜ₋₁ + (exp(Δₜ λ) - 1) / λ ⊙ (xₜ B)           over a step in which x is xₜ
        Δₜ = step_rescale · exp(step_log) · dtₜ,  dtₜ = 1 unless `timed`

    Smith et al. 2023, "Simplified state space layers for sequence modeling" (arXiv:2208.04933).
    The cell starts as a real system whose matrix has `num_blocks` blocks, each the normal part of
    HiPPO-LegS, and which is written in the eigenvectors of the blocks: B and C are drawn real and
    then transformed. Each state represents a conjugate pair, hence the factor 2. Every pair has its
    own step size.

    With `timed`, x is `Timed(x, dt)` and each step has its own length, for observations at
    irregular times: xₜ lasts for dtₜ. Two steps with the same x are then exactly one step of their
    summed length. `step_rescale` runs the same parameters at another sampling rate: 2 for every
    second sample.

    There are three differences from the paper's code. λ has a negative real part by its
    parametrization (there it is free, or clipped). C starts from a real matrix, so that the layer
    starts as a real system. D is a matrix (there its diagonal, which needs H = D). Train decay_log,
    eigenvalue_imag and step_log (the label "ssm" of `parameter_labels`) without weight decay and
    with a smaller learning rate.

    Args:
        num_units: H.
        state_size: N, number of real states; a multiple of 2 `num_blocks`.
        num_blocks: number of blocks of the initial matrix, each with the same N / num_blocks
            eigenvalues.
        timed: whether x is `Timed(x [..., D], dt [...])` with dt >= 0.
        step_rescale: factor of every step.
        step_min: the smallest initial Δ.
        step_max: the largest initial Δ.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32), complex.

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `LinearCarry(h [..., N / 2])`, complex.

    Raises:
        TypeError: A size is not an int, `step_rescale` is not a float, `timed` is not a bool, or
            (while tracing) x is not a `Timed` where it must be one, or the reverse.
        ValueError: A size is below 1, `state_size` is not such a multiple, `step_rescale` is not
            above 0, or 0 < step_min <= step_max does not hold.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.s5(4, state_size=16, num_blocks=2, timed=True)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> xs = jr.Timed(jnp.ones((2, 5, 3)), jnp.array([[1.0, 0.5, 0.5, 3.0, 1.0]] * 2))
        >>> jr.unroll(cell, params, xs).outputs.shape
        (2, 5, 4)
    """
    checks.positive(num_units, "num_units")
    checks.positive(state_size, "state_size")
    checks.positive(num_blocks, "num_blocks")
    checks.boolean(timed, "timed")
    check_steps(step_min, step_max)
    if state_size % (2 * num_blocks):
        raise ValueError(
            f"state_size must be a multiple of 2 num_blocks = {2 * num_blocks}, got {state_size}."
        )
    checks.above_zero(step_rescale, "step_rescale")
    eigenvalues, vectors = hippo_eigen(state_size // num_blocks)

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        wide = initializers.draw_dtype(param_dtype)
        input_matrix = initializers.input_kernel(keys[0], num_inputs, state_size, wide)
        output_matrix = initializers.input_kernel(keys[1], state_size, num_units, wide)
        kernel, output_kernel = in_eigenvectors(vectors, input_matrix, output_matrix)

        def cast(values):
            return jnp.asarray(values, param_dtype)

        return S5Params(
            decay_log=cast(np.tile(np.log(-np.real(eigenvalues)), num_blocks)),
            eigenvalue_imag=cast(np.tile(np.imag(eigenvalues), num_blocks)),
            step_log=log_steps(keys[2], (state_size // 2,), step_min, step_max, param_dtype),
            kernel_real=cast(kernel.real),
            kernel_imag=cast(kernel.imag),
            output_kernel_real=cast(output_kernel.real),
            output_kernel_imag=cast(output_kernel.imag),
            skip_kernel=initializers.input_kernel(keys[3], num_inputs, num_units, param_dtype),
        )

    def project(params, x):
        x, dt = _features(x, timed)
        checks.width(x, params.kernel_real)
        steps = step_rescale * jnp.exp(params.step_log)
        steps = steps if dt is None else steps * dt[..., None]
        a, gain = zero_order_hold(
            lax.complex(-jnp.exp(params.decay_log), params.eigenvalue_imag), steps
        )
        return a, gain * complex_product(x, params.kernel_real, params.kernel_imag)

    def emit(params, h, x):
        read = real_product(h, params.output_kernel_real, params.output_kernel_imag)
        return 2 * read + _features(x, timed)[0] @ params.skip_kernel

    return linear_cell(
        init,
        project,
        (state_size // 2,),
        lambda num_inputs: num_units,
        emit,
        is_complex=True,
        num_feature_axes=Timed(x=1, dt=0) if timed else 1,
    )


def in_eigenvectors(vectors: Any, input_matrix: Any, output_matrix: Any) -> tuple[Any, Any]:
    """The matrices of a real system in the eigenvectors of its blocks, one of each conjugate pair.

    Args:
        vectors: V `[N / J, N / (2 J)]` with orthonormal columns, the same for all J blocks.
        input_matrix: `[D, N]`.
        output_matrix: `[N, H]`.

    Returns:
        B `[D, N / 2]` and C `[N / 2, H]` of the state V* h, complex.
    """
    size = vectors.shape[0]
    inputs = input_matrix.reshape(len(input_matrix), -1, size) @ vectors.conj()
    outputs = jnp.einsum(
        "np,jnh->jph", vectors, output_matrix.reshape(-1, size, output_matrix.shape[1])
    )
    return inputs.reshape(len(input_matrix), -1), outputs.reshape(-1, output_matrix.shape[1])


def _features(x: Any, timed: bool) -> tuple[Any, Any]:
    """x and dt; dt is None when the cell is not timed."""
    if timed != isinstance(x, Timed):
        expected = "Timed(x, dt)" if timed else "one array; only s5(timed=True) takes Timed(x, dt)"
        raise TypeError(f"xs must be {expected}, got {type(x).__name__}.")
    return (x.x, x.dt) if timed else (x, None)
