"""The mLSTM, the matrix memory of xLSTM, in its recurrent, chunkwise and parallel forms."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._norms import standardized
from jaxrnn.engine import checks, precision
from jaxrnn.engine.evaluators.chunkwise import chunkwise
from jaxrnn.engine.linear_scan import linear_scan
from jaxrnn.engine.masking import select
from jaxrnn.engine.matrix_scan import matrix_pairs
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.recurrent import recurrent
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Evaluator, Layer, Mask, Reset, Steps


class MLSTMParams(NamedTuple):
    """`write_kernel [D, num_heads*(K+V)]` (blocks k, v), `read_kernel`, the same (blocks q, o).

    `gate_kernel [D, 2*num_heads]` (blocks i, f), a bias for each, and `norm_scale [num_heads*V]` or
    None.
    """

    write_kernel: Any
    write_bias: Any
    read_kernel: Any
    read_bias: Any
    gate_kernel: Any
    gate_bias: Any
    norm_scale: Any = None
    roles = {
        "write_kernel": "input",
        "write_bias": "input",
        "read_kernel": "input",
        "read_bias": "input",
        "gate_kernel": "input",
        "gate_bias": "input",
        "norm_scale": "readout",
    }


class MLSTMCarry(NamedTuple):
    """The memory `c [..., num_heads, K, V]` (key, value), `n [..., num_heads, K]` and `m`.

    `m [..., num_heads]` is a common exponent: the memory is c exp(m), and n exp(m).
    """

    c: Any
    n: Any
    m: Any


class MLSTMWrite(NamedTuple):
    """What a step writes: `k [..., num_heads, K]`, `v [..., num_heads, V]`, and gates `i`, `f`.

    The gates `[..., num_heads]` are the arguments ĩ and x w_f + b_f, before any activation.
    """

    k: Any
    v: Any
    i: Any
    f: Any


class MLSTMReadout(NamedTuple):
    """How a memory is read.

    `query_and_gate` gives, of params, inputs and (num_heads, K), the query `[..., num_heads, K]`
    and what the outputs `[..., num_heads*V]` are multiplied with. `epsilon` is added to the
    denominator; `norm_epsilon` is that of the norm of each head, or None.
    """

    query_and_gate: Callable[[Any, Any, tuple[int, ...]], tuple[Any, Any]]
    epsilon: float
    norm_epsilon: float | None


@model_factory
def mlstm(
    num_heads: int,
    head_width: int,
    *,
    value_width: int | None = None,
    gate_soft_cap: float | None = None,
    norm_epsilon: float | None = None,
    denominator_epsilon: float = 0.0,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """The mLSTM: a matrix memory with exponential gates.

        q, k, v = x W + b per head, k / √K;   ĩ = x wᵢ + bᵢ,  f̃ = log σ(x w_f + b_f)
        mₜ = max(f̃ + mₜ₋₁, ĩ, 0),   i = exp(ĩ - mₜ),   f = exp(f̃ + mₜ₋₁ - mₜ)
        cₜ = f cₜ₋₁ + i k vᵀ,   nₜ = f nₜ₋₁ + i k
        yₜ = σ(x W_o + b_o) ⊙ qᵀ cₜ / max(|q · nₜ|, exp(-mₜ))

    Beck et al. 2024, "xLSTM" (arXiv:2405.04517). m only keeps the exponentials in range: y is the
    same as with m = 0 throughout, where the denominator is max(|q · n|, 1). The paper's m has no 0
    in its maximum. With it exp(-m) cannot overflow, and nothing is lost: a memory smaller than
    exp(0) has the denominator 1. exp(-m) is not taken below the root of the smallest normal number
    (1e-19 in float32), which only a query notices that is 0 to as many digits. The paper's code
    adds 1e-6 to the scaled denominator, which makes y depend on m; nothing is added here unless
    `denominator_epsilon` says so.

    The published xLSTM 7B (Beck et al. 2025, arXiv:2503.13427) has gates cap tanh(ĩ / cap), and the
    same of x w_f + b_f, and normalises each head of the quotient before the output gate.

    There are three equivalent forms: recurrent (`evaluator=sequential()`, and whenever T = 1),
    parallel (`chunkwise(None)`), where a `[T, T]` matrix pairs all steps as in attention,

        Sₜₛ = qₜ · kₛ exp(f̃ₛ₊₁ + … + f̃ₜ + ĩₛ - mₜ),   y = σ(õ) ⊙ S v / max(|S 1|, exp(-m))

    and `chunkwise(size)`, parallel within chunks and recurrent between them: O(T · size).

    Args:
        num_heads: number of memories.
        head_width: K, the width of keys and queries.
        value_width: V, the width of values, and of a head of the outputs; None is K.
        gate_soft_cap: bound of the arguments of the gates i and f; None is no bound.
        norm_epsilon: ε of a layer norm with a scale over the V features of each head, which comes
            before the output gate; None is no norm.
        denominator_epsilon: number that is added to max(|q · nₜ|, exp(-mₜ)).
        evaluator: how the recurrence is evaluated; None is `chunkwise(64)`.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The layer, `[T, *batch, D] -> [T, *batch, num_heads * V]`, carry `MLSTMCarry(c, n, m)`.

    Raises:
        TypeError: A size is not an int, or another number is not a float.
        ValueError: A size is below 1, `gate_soft_cap` or `norm_epsilon` is not above 0, or
            `denominator_epsilon` is below 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.mlstm(num_heads=2, head_width=4)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(layer, params, jnp.ones((5, 100, 3)))
        >>> rollout.outputs.shape, rollout.carry.c.shape
        ((5, 100, 8), (5, 2, 4, 4))
    """
    checks.positive(num_heads, "num_heads")
    checks.positive(head_width, "head_width")
    width = head_width if value_width is None else checks.positive(value_width, "value_width")
    num_keys, num_outputs = num_heads * head_width, num_heads * width
    if gate_soft_cap is not None:
        checks.above_zero(gate_soft_cap, "gate_soft_cap")
    if norm_epsilon is not None:
        checks.above_zero(norm_epsilon, "norm_epsilon")
    checks.not_negative(denominator_epsilon, "denominator_epsilon")
    readout = MLSTMReadout(_query_and_gate, denominator_epsilon, norm_epsilon)

    def init(key, num_inputs):
        keys = jax.random.split(key, 3)
        return MLSTMParams(
            initializers.input_kernel(keys[0], num_inputs, num_keys + num_outputs, param_dtype),
            jnp.zeros(num_keys + num_outputs, param_dtype),
            initializers.input_kernel(keys[1], num_inputs, num_keys + num_outputs, param_dtype),
            jnp.zeros(num_keys + num_outputs, param_dtype),
            jnp.zeros((num_inputs, 2 * num_heads), param_dtype),
            initial_gate_bias(keys[2], num_heads, param_dtype),
            None if norm_epsilon is None else jnp.ones(num_outputs, param_dtype),
        )

    write = partial(_write, num_keys=num_keys, cap=gate_soft_cap)
    cell = memory_cell(init, write, readout, (num_heads, head_width, width))
    return recurrent(cell, chunkwise(64) if evaluator is None else evaluator)


def initial_gate_bias(key: Any, num_heads: int, dtype: Any) -> Any:
    """The bias of the gates i and f of every head, `[2*num_heads]`."""
    input_bias = 0.1 * jax.random.normal(key, (num_heads,))
    return jnp.concatenate([input_bias, jnp.linspace(3.0, 6.0, num_heads)]).astype(dtype)


def memory_cell(
    init: Callable[[Any, int], Any],
    write: Callable[[Any, Any], MLSTMWrite],
    readout: MLSTMReadout,
    shape: tuple[int, int, int],
) -> Cell:
    """The recurrence of the mLSTM after any maps to what is written and what reads.

    Args:
        init: initial params of a key and a number of inputs.
        write: what a step writes, of params and x.
        readout: how the memory is read.
        shape: (num_heads, K, V).
    """
    num_heads, _, width = shape

    def initial_carry(params, batch_shape=()):
        shapes = shape, shape[:-1], shape[:1]
        dtype = precision.compute_dtype(params)
        return MLSTMCarry(*(jnp.zeros((*batch_shape, *each), dtype) for each in shapes))

    return Cell(
        init,
        initial_carry,
        write,
        _advance,
        partial(_emit, readout=readout),
        num_outputs=lambda num_inputs: num_heads * width,
        pairwise=partial(_pairwise, readout=readout),
    )


def _write(params: MLSTMParams, x: Any, num_keys: int, cap: float | None) -> MLSTMWrite:
    checks.width(x, params.write_kernel)
    gates = x @ params.gate_kernel + params.gate_bias
    i, f = jnp.split(gates if cap is None else cap * jnp.tanh(gates / cap), 2, axis=-1)
    blocks = jnp.split(x @ params.write_kernel + params.write_bias, (num_keys,), axis=-1)
    # Sizes are written out, because -1 cannot be told where there are no steps.
    k, v = (block.reshape(*i.shape, block.shape[-1] // i.shape[-1]) for block in blocks)
    return MLSTMWrite(k * k.shape[-1] ** -0.5, v, i, f)


def _advance(params: MLSTMParams, carry: MLSTMCarry, z: MLSTMWrite) -> MLSTMCarry:
    del params
    kept = carry.m + jax.nn.log_sigmoid(z.f)
    m = jnp.maximum(jnp.maximum(kept, z.i), 0)
    f = jnp.exp(kept - m)[..., None]
    k = jnp.exp(z.i - m)[..., None] * z.k
    return MLSTMCarry(
        c=f[..., None] * carry.c + k[..., :, None] * z.v[..., None, :], n=f * carry.n + k, m=m
    )


def _emit(params: MLSTMParams, carry: MLSTMCarry, x: Any, readout: MLSTMReadout) -> Any:
    q, o = readout.query_and_gate(params, in_compute_dtype(params, x), carry.n.shape[-2:])
    value = jnp.einsum("...k,...kv->...v", q, carry.c)
    weight = jnp.einsum("...k,...k->...", q, carry.n)
    return _output(params, o, value, weight, carry.m, readout)


def _query_and_gate(params: MLSTMParams, x: Any, shape: tuple[int, ...]) -> Any:
    """The query `[..., num_heads, K]` of this shape, and the gate σ(õ) `[..., num_heads*V]`."""
    q, o = jnp.split(x @ params.read_kernel + params.read_bias, (math.prod(shape),), axis=-1)
    return q.reshape(*q.shape[:-1], *shape), jax.nn.sigmoid(o)


def _output(
    params: MLSTMParams, o: Any, value: Any, weight: Any, m: Any, readout: MLSTMReadout
) -> Any:
    """σ(õ) ⊙ norm(qᵀ c / (max(|q · n|, exp(-m)) + ε)), `[..., num_heads*V]`."""
    # m < 0 occurs only in a carry that no step has made. A query of zeros divides by exp(-m) alone;
    # it stays above the root of the smallest number, so that the derivative, which divides by it
    # once more than by the norm, cannot overflow.
    limit = -0.5 * jnp.log(jnp.finfo(m.dtype).tiny)
    smallest = jnp.exp(-jnp.clip(m, 0, limit))
    denominator = jnp.maximum(jnp.abs(weight), smallest)[..., None]
    if readout.epsilon:
        denominator = denominator + readout.epsilon
    mean = _quotient(value, denominator)
    shape = *mean.shape[:-2], math.prod(mean.shape[-2:])
    if readout.norm_epsilon is None:
        return o * mean.reshape(shape)
    mean = standardized(mean, readout.norm_epsilon)
    return o * mean.reshape(shape) * in_compute_dtype(params, params.norm_scale)


@jax.custom_jvp
def _quotient(numerator, denominator):
    """The quotient; its derivative does not square the denominator.

    The denominator may be as small as exp(-m). JAX's own rule divides by its square, which
    underflows in float32 from about m = 44.
    """
    return numerator / denominator


@_quotient.defjvp
def _quotient_jvp(primals, tangents):
    quotient = _quotient(*primals)
    return quotient, _quotient(tangents[0] - quotient * tangents[1], primals[1])


def _pairwise(
    params: MLSTMParams, carry: MLSTMCarry, z: MLSTMWrite, steps: Steps, readout: MLSTMReadout
) -> Any:
    """All steps at once, with n as one more column of c and both gates in units of exp(m)."""
    m, log_f, log_i = _stabilised(carry.m, z, steps.mask, steps.reset)
    xs = in_compute_dtype(params, steps.xs)
    q, o = readout.query_and_gate(params, xs, carry.n.shape[-2:])
    i = jnp.exp(log_i)[..., None]
    ys, memory = matrix_pairs(
        steps,
        jnp.concatenate([carry.c, carry.n[..., None]], axis=-1),
        query=q,
        key=z.k,
        value=jnp.concatenate([i * z.v, i], axis=-1),
        log_decay=log_f,
    )
    last = MLSTMCarry(memory[..., :-1], memory[..., -1], m[-1])
    return last, _output(params, o, ys[..., :-1], ys[..., -1], m, readout)


def _stabilised(start: Any, z: MLSTMWrite, mask: Mask, reset: Reset) -> tuple[Any, Any, Any]:
    """m of every step, and the logarithms of the gates f and i relative to it."""
    log_f, log_i = jax.nn.log_sigmoid(z.f), z.i
    if mask is not None:
        log_f = select(mask, log_f, jnp.zeros_like(log_f))
        log_i = select(mask, log_i, jnp.full_like(log_i, -jnp.inf))

    def before(m):
        m = jnp.concatenate([start[None], m[:-1]])
        # A fresh memory has m = 0, whatever came before.
        return m if reset is None else select(reset, jnp.zeros_like(m), m)

    # Once it is known which of f̃ + m and max(ĩ, 0) is larger, m is a linear recurrence.
    largest = jax.lax.stop_gradient(_largest(start, log_f, log_i, reset))
    lowest = jnp.maximum(log_i, 0)
    is_kept = log_f + before(largest) > lowest
    m = linear_scan(
        *(is_kept, jnp.where(is_kept, log_f, lowest), start), mask=mask, reset=reset, axis=0
    )
    return m, log_f + before(m) - m, log_i - m


def _largest(start: Any, log_f: Any, log_i: Any, reset: Reset) -> Any:
    """mₜ = max(f̃ + mₜ₋₁, ĩ, 0), from maps m ↦ max(f + m, i) that compose in log₂ T rounds."""
    i = jnp.where(log_i > -jnp.inf, jnp.maximum(log_i, 0), log_i)
    f, reach = log_f, 1
    if reset is not None:
        f = select(reset, jnp.full_like(f, -jnp.inf), f)
        i = select(reset, jnp.maximum(i, 0), i)
    while reach < len(f):
        i = jnp.maximum(f + _delayed(i, reach, -jnp.inf), i)
        f, reach = f + _delayed(f, reach, 0), 2 * reach
    return jnp.maximum(f + start, i)


def _delayed(leaf: Any, num_steps: int, first: float) -> Any:
    return jnp.concatenate([jnp.full_like(leaf[:num_steps], first), leaf[:-num_steps]])
