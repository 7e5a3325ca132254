"""The selective state space of Mamba: a diagonal linear recurrence with rates that x decides."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import open_uniform, softplus_bias
from jaxrnn.cells._linear import linear_cell, relative_expm1
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell

DISCRETIZATIONS = ("euler", "zoh")


class S6Params(NamedTuple):
    """A = -exp(a_log) `[D, N]`, and the parameters that compute Δ, B and C from x.

    `kernel [D, R + 2*N]` (blocks Δ, B, C), `dt_kernel [R, D]`, `dt_bias [D]`, `skip [D]`.
    """

    kernel: Any
    dt_kernel: Any
    dt_bias: Any
    a_log: Any
    skip: Any
    roles = {
        "kernel": "input",
        "dt_kernel": "input",
        "dt_bias": "ssm",
        "a_log": "ssm",
        "skip": "readout",
    }


@model_factory
def s6(
    state_size: int = 16,
    *,
    dt_rank: int | None = None,
    discretization: str = "euler",
    step_rescale: float = 1.0,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The selective state space model of Mamba (S6): N states for every input feature.

        δ, B, C = x W;   Δ = step_rescale · softplus(δ W_Δ + b_Δ);   A = -exp(a_log)
        hₜ = exp(Δ A) ⊙ hₜ₋₁ + Δ B xₜ                    "euler"
        hₜ = exp(Δ A) ⊙ hₜ₋₁ + (exp(Δ A) - 1) / A B xₜ   "zoh"
        yₜ = hₜ C + skip ⊙ xₜ

    Gu and Dao 2023 (arXiv:2312.00752), section 3. The paper derives the zero-order hold, but its
    code and all models trained with it take the Euler step for B. The two are different functions:
    the paper's theorem 1, that N = 1, A = -1, B = C = 1 is the gate h = (1 - g) h + g x with
    g = σ(δ), holds only for "zoh".

    `a_log` starts at log(1 … N) (S4D-Real); softplus(b_Δ) is drawn from 0.001 … 0.1, uniformly on a
    logarithmic scale.

    Args:
        state_size: N.
        dt_rank: R, the rank of the product that gives Δ; None is ⌈D/16⌉.
        discretization: "euler" or "zoh".
        step_rescale: factor of every Δ, for the same parameters at another sampling rate: 2 for
            every second sample. With "zoh" one such step is two steps with the same x.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., D]`, carry `LinearCarry(h [..., D, N])`.

    Raises:
        TypeError: A size is not an int, or `step_rescale` is not a float.
        ValueError: A size is below 1, `discretization` is not one of the two words, or
            `step_rescale` is not above 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.s6(state_size=4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(cell, params, jnp.ones((2, 5, 3)), evaluator=jr.associative())
        >>> rollout.outputs.shape, rollout.carry.h.shape
        ((2, 5, 3), (2, 3, 4))
    """
    checks.positive(state_size, "state_size")
    if dt_rank is not None:
        checks.positive(dt_rank, "dt_rank")
    checks.above_zero(step_rescale, "step_rescale")
    if discretization not in DISCRETIZATIONS:
        raise ValueError(
            f"discretization must be one of {DISCRETIZATIONS}, got {discretization!r}."
        )

    def init(key, num_inputs):
        rank = -(-num_inputs // 16) if dt_rank is None else dt_rank
        keys = jax.random.split(key, 3)
        dt_kernel = (2 * open_uniform(keys[1], (rank, num_inputs), param_dtype) - 1) * rank**-0.5
        a_log = jnp.log(jnp.arange(1.0, state_size + 1))
        return S6Params(
            initializers.input_kernel(keys[0], num_inputs, rank + 2 * state_size, param_dtype),
            dt_kernel.astype(param_dtype),
            softplus_bias(keys[2], num_inputs, param_dtype),
            jnp.tile(a_log, (num_inputs, 1)).astype(param_dtype),
            jnp.ones(num_inputs, param_dtype),
        )

    def project(params, x):
        delta, b, _ = _blocks(params, x)
        dt = step_rescale * jax.nn.softplus(delta @ params.dt_kernel + params.dt_bias)
        log_a = dt[..., None] * -jnp.exp(params.a_log)
        b = (dt * x)[..., None] * b[..., None, :]
        return jnp.exp(log_a), b if discretization == "euler" else b * relative_expm1(log_a)

    def emit(params, h, x):
        _, _, c = _blocks(params, x)
        return jnp.einsum("...dn,...n->...d", h, c) + params.skip * x

    return linear_cell(
        init, project, lambda params: params.a_log.shape, lambda num_inputs: num_inputs, emit
    )


def _blocks(params: S6Params, x: Any) -> list[Any]:
    checks.width(x, params.kernel)
    rank, state_size = params.dt_kernel.shape[0], params.a_log.shape[1]
    return jnp.split(x @ params.kernel, [rank, rank + state_size], axis=-1)
