"""The gated delta rule: a matrix memory that overwrites the value stored under a key."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._eigenvalues import log_rates, softplus_bias
from jaxrnn.cells._linear import widened
from jaxrnn.engine import checks, precision
from jaxrnn.engine.evaluators.chunkwise import chunkwise
from jaxrnn.engine.matrix_scan import matrix_pairs
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.recurrent import recurrent
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Evaluator, Layer, Steps

# Keys and queries shorter than this are divided by it instead of by their length. It bounds the
# derivative by 1000 at a zero key, which a zero input has.
_SHORTEST = 1e-3


class GatedDeltaNetParams(NamedTuple):
    """`key_kernel`, `query_kernel` `[D, num_heads*K]`, `value_kernel [D, num_heads*V]`.

    `gate_kernel [D, 2*num_heads]` (blocks α, β); `log_rate` and `step_bias` `[num_heads]`.
    """

    key_kernel: Any
    query_kernel: Any
    value_kernel: Any
    gate_kernel: Any
    log_rate: Any
    step_bias: Any
    roles = {
        "key_kernel": "input",
        "query_kernel": "input",
        "value_kernel": "input",
        "gate_kernel": "input",
        "log_rate": "ssm",
        "step_bias": "ssm",
    }


class GatedDeltaNetCarry(NamedTuple):
    """The memory `s [..., num_heads, V, K]`; s k is the value stored under the key k."""

    s: Any


class GatedDeltaNetWrite(NamedTuple):
    """`k [..., num_heads, K]`, `v [..., num_heads, V]`, `log_alpha`, `beta` `[..., num_heads]`.

    A step writes v under k.
    """

    k: Any
    v: Any
    log_alpha: Any
    beta: Any


@model_factory
def gated_delta_net(
    num_heads: int,
    key_width: int,
    value_width: int | None = None,
    *,
    negative_eigenvalues: bool = False,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """The gated delta rule: decays the memory, erases the value under a key, writes a new one.

        k = u / |u| of u = silu(x W_k),  q likewise,  v = silu(x W_v),  per head
        log α = -exp(log_rate) softplus(x w_α + step_bias),   β = σ(x w_β), or 2 σ(x w_β)
        sₜ = αₜ sₜ₋₁ (I - βₜ kₜ kₜᵀ) + βₜ vₜ kₜᵀ,   yₜ = sₜ qₜ

    Yang et al. 2024, "Gated Delta Networks" (arXiv:2412.06464); α = 1 is DeltaNet (Schlag et al.
    2021, arXiv:2102.11174). With α = β = 1, sₜ kₜ = vₜ: the value written is read back exactly. β
    above 1 gives I - β k kᵀ an eigenvalue in (-1, 0), which state tracking (parity, for example)
    needs (Grazzi et al. 2024, arXiv:2411.12537). The paper's block adds a short convolution before
    and a norm, a gate and a projection after this layer.

    As in Mamba-2, exp(log_rate) starts as U(1, 16), and softplus(step_bias) starts in 0.001 … 0.1,
    uniform on a logarithmic scale.

    Within a chunk the recurrence is a triangular system (the WY form of the paper): with
    Γₜₛ = αₛ₊₁ … αₜ and γₜ = α₁ … αₜ,

        uₜ + βₜ Σ_{s<t} Γₜₛ (kₜ · kₛ) uₛ = βₜ (vₜ - γₜ s₀ kₜ),   sₜ = γₜ s₀ + Σ_{s≤t} Γₜₛ uₛ kₛᵀ

    Args:
        num_heads: number of memories.
        key_width: K, the width of keys and queries.
        value_width: V, the width of values; None is K.
        negative_eigenvalues: whether β is in (0, 2) instead of (0, 1).
        evaluator: how the recurrence is evaluated; None is `chunkwise(64)`. `chunkwise(None)`, one
            chunk for all T, solves a system that costs O(T³).
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The layer, `[T, *batch, D] -> [T, *batch, num_heads * V]`, carry `GatedDeltaNetCarry(s)`.

    Raises:
        TypeError: A size is not an int.
        ValueError: A size is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.gated_delta_net(num_heads=2, key_width=4, value_width=8)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(layer, params, jnp.ones((5, 100, 3)))
        >>> rollout.outputs.shape, rollout.carry.s.shape
        ((5, 100, 16), (5, 2, 8, 4))
    """
    checks.positive(num_heads, "num_heads")
    checks.positive(key_width, "key_width")
    width = key_width if value_width is None else checks.positive(value_width, "value_width")
    largest_beta = 2 if negative_eigenvalues else 1

    def init(key, num_inputs):
        keys = jax.random.split(key, 6)

        def kernel(key, num_outputs):
            return initializers.input_kernel(key, num_inputs, num_outputs, param_dtype)

        return GatedDeltaNetParams(
            key_kernel=kernel(keys[0], num_heads * key_width),
            query_kernel=kernel(keys[1], num_heads * key_width),
            value_kernel=kernel(keys[2], num_heads * width),
            gate_kernel=kernel(keys[3], 2 * num_heads),
            log_rate=log_rates(keys[4], num_heads, param_dtype),
            step_bias=softplus_bias(keys[5], num_heads, param_dtype),
        )

    def initial_carry(params, batch_shape=()):
        shape = (*batch_shape, num_heads, width, key_width)
        return GatedDeltaNetCarry(jnp.zeros(shape, precision.compute_dtype(params)))

    def write(params, x):
        checks.width(x, params.key_kernel)
        params = widened(params)
        alpha, beta = jnp.split(x @ params.gate_kernel, 2, axis=-1)
        return GatedDeltaNetWrite(
            k=_unit(_by_head(jax.nn.silu(x @ params.key_kernel), num_heads)),
            v=_by_head(jax.nn.silu(x @ params.value_kernel), num_heads),
            log_alpha=-jnp.exp(params.log_rate) * jax.nn.softplus(alpha + params.step_bias),
            beta=largest_beta * jax.nn.sigmoid(beta),
        )

    cell = Cell(
        init,
        initial_carry,
        write,
        _advance,
        _emit,
        num_outputs=lambda num_inputs: num_heads * width,
        pairwise=_pairwise,
    )
    return recurrent(cell, chunkwise(64) if evaluator is None else evaluator)


def _advance(params: Any, carry: GatedDeltaNetCarry, z: GatedDeltaNetWrite) -> GatedDeltaNetCarry:
    del params
    s = jnp.exp(z.log_alpha)[..., None, None] * carry.s
    u = z.beta[..., None] * (z.v - jnp.einsum("...vk,...k->...v", s, z.k))
    return GatedDeltaNetCarry(s + u[..., :, None] * z.k[..., None, :])


def _emit(params: GatedDeltaNetParams, carry: GatedDeltaNetCarry, x: Any) -> Any:
    q = _query(params, x, carry)
    y = jnp.einsum("...vk,...k->...v", carry.s, q)
    return _joined(y)


def _query(params: GatedDeltaNetParams, x: Any, carry: GatedDeltaNetCarry) -> Any:
    q = jax.nn.silu(x @ widened(params).query_kernel)
    return _unit(_by_head(q, carry.s.shape[-3]))


def _by_head(leaf: Any, num_heads: int) -> Any:
    return leaf.reshape(*leaf.shape[:-1], num_heads, leaf.shape[-1] // num_heads)


def _joined(heads: Any) -> Any:
    return heads.reshape(*heads.shape[:-2], heads.shape[-2] * heads.shape[-1])


def _unit(vector: Any) -> Any:
    """The vector divided by its length, with a finite derivative at 0."""
    square = jnp.sum(vector * vector, axis=-1, keepdims=True)
    return vector / jnp.sqrt(jnp.maximum(square, _SHORTEST**2))


def _pairwise(params: GatedDeltaNetParams, carry: Any, z: GatedDeltaNetWrite, steps: Steps) -> Any:
    """All steps at once, by one triangular system."""
    beta = z.beta[..., None]
    ys, memory = matrix_pairs(
        steps,
        jnp.swapaxes(carry.s, -1, -2),
        query=_query(params, in_compute_dtype(params, steps.xs), carry),
        key=z.k,
        value=beta * z.v,
        log_decay=z.log_alpha,
        erase=beta * z.k,
    )
    return GatedDeltaNetCarry(jnp.swapaxes(memory, -1, -2)), _joined(ys)
