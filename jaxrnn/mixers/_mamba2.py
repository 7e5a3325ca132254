"""The Mamba-2 mixer: matrix memories with a scalar decay, as a recurrence or as attention."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import log_rates, softplus_bias
from jaxrnn.cells._linear import linear_cell, widened
from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.chunkwise import chunkwise
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.starts import parts_of
from jaxrnn.factories import model_factory
from jaxrnn.mixers import _causal_conv as causal_conv
from jaxrnn.mixers._pairwise import by_head, seen_steps, sums_between
from jaxrnn.types import Cell, Evaluator, Layer, Rollout, Steps

EPSILON = 1e-5


class SSDParams(NamedTuple):
    """`a_log` (A = -exp(a_log)), `dt_bias` and `skip`, all `[num_heads]`."""

    a_log: Any
    dt_bias: Any
    skip: Any
    roles = {"a_log": "ssm", "dt_bias": "ssm", "skip": "readout"}


class Mamba2Params(NamedTuple):
    """`kernel [D, 2*H + 2*N + num_heads]` (blocks z, u, B, C, Δ); H = num_heads * P.

    `conv` is the `CausalConvParams` for u, B and C together, `ssm` is `SSDParams`;
    `norm_scale [H]`, `output_kernel [H, D]`.
    """

    kernel: Any
    conv: Any
    ssm: Any
    norm_scale: Any
    output_kernel: Any
    roles = {"kernel": "input", "norm_scale": "readout", "output_kernel": "readout"}


class Mamba2Carry(NamedTuple):
    """`conv`, a `Window` of conv_width-1 steps, and `ssm`.

    `ssm` is a `LinearCarry(h [..., num_heads, P, N])`.
    """

    conv: Any
    ssm: Any


class SSDStep(NamedTuple):
    """The parts of a step: `u [..., num_heads, P]`, `b`, `c` `[..., N]`, `dt [..., num_heads]`.

    `log_a [..., num_heads]` is Δ A.
    """

    u: Any
    b: Any
    c: Any
    dt: Any
    log_a: Any


@model_factory
def mamba2(
    state_size: int = 128,
    *,
    head_width: int = 64,
    expansion: int = 2,
    conv_width: int = 4,
    step_rescale: float = 1.0,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """The Mamba-2 mixer, whose state space with a scalar decay is also masked attention.

        z, v, δ = x W;   u, B, C = silu(causal_conv(v));   Δ = step_rescale · softplus(δ + dt_bias)
        hₜ = exp(Δ A) hₜ₋₁ + Δ uₜ Bₜᵀ,  yₜ = hₜ Cₜ + skip uₜ      for each head, A = -exp(a_log)
        y = rms_norm(y ⊙ silu(z)) ⊙ norm_scale W_output

    Dao and Gu 2024 (arXiv:2405.21060), with B and C shared by all heads. The recurrence has three
    equivalent forms: recurrent (`sequential()`, and whenever T = 1); its dual, masked attention
    without a softmax (`chunkwise(None)`),

        yₜ = Σ_{s ≤ t} (Cₜ · Bₛ) exp(log aₛ₊₁ + … + log aₜ) Δₛ uₛ,   log a = Δ A

    and `chunkwise(size)`, dual within chunks and recurrent between them: O(T · size). Exponents
    are sums of terms that are not positive, never differences of sums. The last chunk may be
    shorter. The norm adds 1e-5 to the mean of squares.

    exp(a_log) starts as U(1, 16), and softplus(dt_bias) starts in 0.001 … 0.1, uniform on a
    logarithmic scale.

    Args:
        state_size: N.
        head_width: P, a divisor of H.
        expansion: H = expansion * D.
        conv_width: width of the convolution, in real steps of the sequence.
        step_rescale: factor of every Δ, for the same parameters at another sampling rate: 2 for
            every second sample. The convolution still counts samples.
        evaluator: how the recurrence is evaluated; None is `chunkwise(64)`.
        param_dtype: dtype of the parameters. Everything runs in promote(params, float32).

    Returns:
        The layer, `[..., D] -> [..., D]`, carry `Mamba2Carry(conv, ssm)` with
        (H + 2 N) (conv_width-1) and H N numbers.

    Raises:
        TypeError: A size is not an int, or `step_rescale` is not a float.
        ValueError: A size is below 1, `step_rescale` is not above 0, or (in `init`) `head_width`
            does not divide H.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.residual(jr.mamba2(state_size=16, head_width=4))
        >>> params = layer.init(jax.random.key(0), 8)
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 100, 8)))
        >>> rollout.outputs.shape, rollout.carry.ssm.h.shape
        ((2, 100, 8), (2, 4, 4, 16))
    """
    checks.positive(expansion, "expansion")
    checks.positive(conv_width, "conv_width")
    ssm = ssd(state_size, head_width, param_dtype, step_rescale=step_rescale)
    evaluate = chunkwise(64) if evaluator is None else evaluator
    checks.evaluator(evaluate, "evaluator")
    checks.evaluates(evaluate, ssm)

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        num_units = expansion * num_inputs
        num_heads = _num_heads(num_units, head_width)
        num_mixed = num_units + 2 * state_size
        num_projected = num_units + num_mixed + num_heads
        return Mamba2Params(
            initializers.input_kernel(keys[0], num_inputs, num_projected, param_dtype),
            causal_conv.init(keys[1], conv_width, num_mixed, True, param_dtype),
            ssm.init(keys[2], num_mixed + num_heads),
            jnp.ones(num_units, param_dtype),
            initializers.input_kernel(keys[3], num_units, num_inputs, param_dtype),
        )

    def initial_carry(params, batch_shape=()):
        return Mamba2Carry(
            causal_conv.initial_carry(params.conv, batch_shape),
            ssm.initial_carry(params.ssm, batch_shape),
        )

    def unroll(params, carry, steps, key):
        del key
        checks.width(steps.xs, params.kernel)
        xs = in_compute_dtype(params, steps.xs)
        num_units, num_mixed = len(params.norm_scale), params.conv.kernel.shape[1]
        blocks = [num_units, num_units + num_mixed]
        z, v, delta = jnp.split(xs @ params.kernel, blocks, axis=-1)
        conv_carry, ssm_carry = parts_of(carry)
        window, v = causal_conv.convolve(params.conv, conv_carry, steps._replace(xs=v))
        joined = jnp.concatenate([jax.nn.silu(v), delta], axis=-1)
        rollout = evaluate(ssm, params.ssm, ssm_carry, steps._replace(xs=joined))
        ys = _rms_norm(rollout.outputs * jax.nn.silu(z)) * params.norm_scale
        carry = Mamba2Carry(window, rollout.carry)
        return Rollout(carry, ys @ params.output_kernel, rollout.info)

    return Layer(init, initial_carry, unroll, lambda num_inputs: num_inputs)


def _num_heads(num_units: int, head_width: int) -> int:
    if num_units % head_width:
        raise ValueError(
            f"head_width must divide the width {num_units} of all heads together, got {head_width}."
        )
    return num_units // head_width


def _rms_norm(ys: Any) -> Any:
    return ys * lax.rsqrt((ys * ys).mean(axis=-1, keepdims=True) + EPSILON)


def ssd(
    state_size: int, head_width: int, param_dtype: Any = jnp.float32, *, step_rescale: float = 1.0
) -> Cell:
    """The recurrence of `mamba2`: a linear cell that reads u, B, C and δ in one array.

    Args:
        state_size: N.
        head_width: P.
        param_dtype: dtype of the parameters.
        step_rescale: factor of every Δ.

    Returns:
        The cell, `[..., num_heads*P + 2*N + num_heads] -> [..., num_heads*P]`, with `SSDParams`
        and the carry `LinearCarry(h [..., num_heads, P, N])`.
    """
    checks.positive(state_size, "state_size")
    checks.positive(head_width, "head_width")
    checks.above_zero(step_rescale, "step_rescale")

    def count_heads(num_inputs):
        num_heads, rest = divmod(num_inputs - 2 * state_size, head_width + 1)
        if num_heads < 1 or rest:
            raise ValueError(
                f"num_inputs must be a number of heads times {head_width + 1} plus "
                f"{2 * state_size}, got {num_inputs}."
            )
        return num_heads

    def init(key, num_inputs):
        num_heads = count_heads(num_inputs)
        keys = jax.random.split(key)
        return SSDParams(
            log_rates(keys[0], num_heads, param_dtype),
            softplus_bias(keys[1], num_heads, param_dtype),
            jnp.ones(num_heads, param_dtype),
        )

    def project(params, x):
        step = _step(params, x, state_size, step_rescale)
        write = (step.dt[..., None] * step.u)[..., None] * step.b[..., None, None, :]
        return jnp.exp(step.log_a)[..., None, None], write

    def emit(params, h, x):
        step = _step(params, x, state_size, step_rescale)
        return _output(params, jnp.einsum("...hpn,...n->...hp", h, step.c), step)

    def carry_shape(params):
        return len(params.a_log), head_width, state_size

    def num_outputs(num_inputs):
        return count_heads(num_inputs) * head_width

    cell = linear_cell(init, project, carry_shape, num_outputs, emit)
    return cell._replace(pairwise=functools.partial(_pairwise, step_rescale))


def _step(params: SSDParams, x: Any, state_size: int, step_rescale: float) -> SSDStep:
    num_heads = len(params.a_log)
    num_units = x.shape[-1] - 2 * state_size - num_heads
    u, b, c, delta = jnp.split(
        x, [num_units, num_units + state_size, num_units + 2 * state_size], axis=-1
    )
    u = u.reshape(*u.shape[:-1], num_heads, num_units // num_heads)
    dt = step_rescale * jax.nn.softplus(delta + params.dt_bias)
    return SSDStep(u, b, c, dt, dt * -jnp.exp(params.a_log))


def _output(params: SSDParams, ys: Any, step: SSDStep) -> Any:
    ys = ys + params.skip[:, None] * step.u
    return ys.reshape(*ys.shape[:-2], ys.shape[-2] * ys.shape[-1])


def _pairwise(step_rescale: float, params: SSDParams, carry: Any, z: Any, steps: Steps) -> Any:
    """All steps at once, as attention without a softmax, weighted by decays.

    A masked step has a = 1 and Δ = 0: it keeps the memory and writes nothing.
    """
    # z holds the outer products of every step, whose memory this form exists to avoid; unused,
    # they are never computed.
    del z
    xs, mask, reset = steps
    params = widened(params)
    step = _step(params, in_compute_dtype(params, xs), carry.h.shape[-1], step_rescale)
    log_a, dt = (jnp.moveaxis(leaf, 0, -1) for leaf in (step.log_a, step.dt))
    if mask is not None:
        log_a, dt = (jnp.where(by_head(mask), leaf, 0) for leaf in (log_a, dt))
    seen, from_carry = seen_steps(mask, reset, len(xs))
    carry_decay = jnp.where(from_carry, jnp.exp(jnp.cumsum(log_a, axis=-1)), 0)
    weights = jnp.where(seen, jnp.exp(sums_between(log_a)), 0) * dt[..., None, :]

    # Products are selected, not only weighted by 0: one that overflows belongs to its own sequence.
    products = jnp.einsum("t...n,s...n->...ts", step.c, step.b)[..., None, :, :]
    ys = jnp.einsum("...hts,s...hp->t...hp", jnp.where(seen, products, 0) * weights, step.u)
    from_h = jnp.einsum("...hpn,t...n->...htp", carry.h, step.c)
    from_h = carry_decay[..., None] * jnp.where(from_carry[..., None], from_h, 0)
    ys = ys + jnp.moveaxis(from_h, -2, 0)
    h = jnp.einsum("...hs,s...hp,s...n->...hpn", weights[..., -1, :], step.u, step.b)
    h = h + carry_decay[..., -1, None, None] * carry.h
    return type(carry)(h), _output(params, ys, step)
