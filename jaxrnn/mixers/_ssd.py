"""The state space of Mamba-2: matrix memories with a scalar decay for each head."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells._eigenvalues import log_rates, softplus_bias
from jaxrnn.cells._linear import linear_cell, widened
from jaxrnn.engine import checks
from jaxrnn.engine.matrix_scan import matrix_pairs
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.types import Cell, Steps

UNLIMITED = (0.0, math.inf)


class SSDParams(NamedTuple):
    """`a_log` (A = -exp(a_log)) and `dt_bias`, both `[num_heads]`, and `skip`.

    `skip` is `[num_heads]`, or `[num_heads * P]` where each feature has its own.
    """

    a_log: Any
    dt_bias: Any
    skip: Any
    roles = {"a_log": "ssm", "dt_bias": "ssm", "skip": "readout"}


class SSDStep(NamedTuple):
    """The parts of a step: `u [..., num_heads, P]`, `dt` and `log_a` `[..., num_heads]`, `b`, `c`.

    `log_a` is Δ A. `b` and `c` are `[..., num_heads, N]`, with an axis of 1 where all heads share
    them.
    """

    u: Any
    b: Any
    c: Any
    dt: Any
    log_a: Any


def ssd(
    state_size: int,
    head_width: int,
    param_dtype: Any = jnp.float32,
    *,
    num_groups: int = 1,
    skip_per_feature: bool = False,
    dt_limit: tuple[float, float] = UNLIMITED,
    step_rescale: float = 1.0,
) -> Cell:
    """The recurrence of `mamba2`: a linear cell that reads u, B, C and δ in one array.

    Args:
        state_size: N.
        head_width: P.
        param_dtype: dtype of the parameters.
        num_groups: G, groups of heads that share B and C.
        skip_per_feature: whether each feature has a skip of its own, instead of each head.
        dt_limit: smallest and largest softplus(δ + dt_bias).
        step_rescale: factor of every Δ.

    Returns:
        The cell, `[..., num_heads*P + 2*G*N + num_heads] -> [..., num_heads*P]`, with `SSDParams`
        and the carry `LinearCarry(h [..., num_heads, P, N])`.
    """
    checks.positive(state_size, "state_size")
    checks.positive(head_width, "head_width")
    checks.positive(num_groups, "num_groups")
    checks.boolean(skip_per_feature, "skip_per_feature")
    _check_limit(dt_limit)
    checks.above_zero(step_rescale, "step_rescale")
    num_shared = 2 * num_groups * state_size

    def count_heads(num_inputs):
        num_heads, rest = divmod(num_inputs - num_shared, head_width + 1)
        if num_heads < 1 or rest:
            raise ValueError(
                f"num_inputs must be a number of heads times {head_width + 1} plus "
                f"{num_shared}, got {num_inputs}."
            )
        if num_heads % num_groups:
            raise ValueError(f"num_groups must divide the {num_heads} heads, got {num_groups}.")
        return num_heads

    def step_of(params, x):
        num_heads = len(params.a_log)
        num_units = x.shape[-1] - num_shared - num_heads
        blocks = [num_units, num_units + num_shared // 2, num_units + num_shared]
        u, b, c, delta = jnp.split(x, blocks, axis=-1)
        u = u.reshape(*u.shape[:-1], num_heads, num_units // num_heads)
        b, c = (_for_heads(part, num_groups, num_heads) for part in (b, c))
        dt = jax.nn.softplus(delta + params.dt_bias)
        # Without limits there is no operation, so that programs stay as they are.
        dt = step_rescale * (dt if dt_limit == UNLIMITED else jnp.clip(dt, *dt_limit))
        return SSDStep(u, b, c, dt, dt * -jnp.exp(params.a_log))

    def init(key, num_inputs):
        num_heads = count_heads(num_inputs)
        keys = jax.random.split(key)
        return SSDParams(
            log_rates(keys[0], num_heads, param_dtype),
            softplus_bias(keys[1], num_heads, param_dtype),
            jnp.ones(num_heads * head_width if skip_per_feature else num_heads, param_dtype),
        )

    def project(params, x):
        step = step_of(params, x)
        write = (step.dt[..., None] * step.u)[..., None] * step.b[..., None, :]
        return jnp.exp(step.log_a)[..., None, None], write

    def emit(params, h, x):
        step = step_of(params, x)
        return _output(params, jnp.einsum("...hpn,...hn->...hp", h, step.c), step)

    def carry_shape(params):
        return len(params.a_log), head_width, state_size

    def num_outputs(num_inputs):
        return count_heads(num_inputs) * head_width

    cell = linear_cell(init, project, carry_shape, num_outputs, emit)
    return cell._replace(pairwise=functools.partial(_pairwise, step_of))


def _check_limit(dt_limit: Any) -> None:
    if not (isinstance(dt_limit, tuple) and len(dt_limit) == 2):
        raise TypeError(f"dt_limit must be a tuple of two floats, got {dt_limit!r}.")
    lower = checks.not_negative(dt_limit[0], "the lower dt_limit")
    upper = checks.above_zero(dt_limit[1], "the upper dt_limit")
    if not lower < upper:
        raise ValueError(f"dt_limit must be (lower, upper) with lower < upper, got {dt_limit}.")


def _for_heads(shared: Any, num_groups: int, num_heads: int) -> Any:
    """B or C, `[..., G*N]`, as `[..., num_heads, N]`, or `[..., 1, N]` where there is one group."""
    grouped = shared.reshape(*shared.shape[:-1], num_groups, shared.shape[-1] // num_groups)
    return grouped if num_groups == 1 else jnp.repeat(grouped, num_heads // num_groups, axis=-2)


def _output(params: SSDParams, ys: Any, step: SSDStep) -> Any:
    # A skip is for a head, [num_heads, 1], or for each of its features, [num_heads, P].
    ys = ys + params.skip.reshape(len(params.a_log), -1) * step.u
    return ys.reshape(*ys.shape[:-2], ys.shape[-2] * ys.shape[-1])


def _pairwise(
    step_of: Callable[[SSDParams, Any], SSDStep],
    params: SSDParams,
    carry: Any,
    z: Any,
    steps: Steps,
) -> Any:
    """All steps at once, as attention without a softmax, weighted by decays."""
    # z holds the outer products of every step, whose memory this form exists to avoid; unused,
    # they are never computed.
    del z
    params = widened(params)
    step = step_of(params, in_compute_dtype(params, steps.xs))
    ys, memory = matrix_pairs(
        steps,
        jnp.swapaxes(carry.h, -1, -2),
        query=step.c,
        key=step.b,
        value=step.dt[..., None] * step.u,
        log_decay=step.log_a,
    )
    return type(carry)(jnp.swapaxes(memory, -1, -2)), _output(params, ys, step)
