"""The mLSTM block of xLSTM: a matrix memory after a short convolution, beside a gate."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._products import affine, by_block
from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.chunkwise import chunkwise
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.starts import parts_of
from jaxrnn.factories import model_factory
from jaxrnn.mixers import _causal_conv as causal_conv
from jaxrnn.mixers._mlstm import MLSTMReadout, MLSTMWrite, initial_gate_bias, memory_cell
from jaxrnn.types import Evaluator, Layer, Rollout


class MLSTMMemoryParams(NamedTuple):
    """`gate_kernel [3*H, 2*num_heads]` (of q, k, v, to i, f), `gate_bias`, `norm_scale [H]`."""

    gate_kernel: Any
    gate_bias: Any
    norm_scale: Any
    roles = {"gate_kernel": "input", "gate_bias": "input", "norm_scale": "readout"}


class MLSTMBlockParams(NamedTuple):
    """`kernel [D, 2*H]` (blocks u, z), `conv`, `qkv_kernel`, `memory`, `skip` and the output.

    `conv` is `CausalConvParams` of width H, `qkv_kernel [3, H/block_width, block_width,
    block_width]`, `memory` is `MLSTMMemoryParams`, `skip [H]`, `output_kernel [H, D]`; `bias
    [2*H]`, `qkv_bias [3*H]` and `output_bias [D]`, or None.
    """

    kernel: Any
    conv: Any
    qkv_kernel: Any
    memory: Any
    skip: Any
    output_kernel: Any
    bias: Any = None
    qkv_bias: Any = None
    output_bias: Any = None
    roles = {
        "kernel": "input",
        "qkv_kernel": "input",
        "skip": "readout",
        "output_kernel": "readout",
        "bias": "input",
        "qkv_bias": "input",
        "output_bias": "readout",
    }


class MLSTMBlockCarry(NamedTuple):
    """`conv`, a `Window` of conv_width-1 steps, and `memory`, an `MLSTMCarry`."""

    conv: Any
    memory: Any


@model_factory
def mlstm_block(
    num_units: int,
    num_heads: int,
    *,
    block_width: int = 4,
    conv_width: int = 4,
    use_bias: bool = False,
    norm_epsilon: float = 1e-5,
    denominator_epsilon: float = 0.0,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """The mLSTM block of the xLSTM paper.

        u, z = x W (+ b),   c = silu(causal_conv(u))
        q, k, v = c W_q, c W_k, u W_v,   ĩ, f̃ = [q, k, v] W_g + b_g
        h = norm(mLSTM(q, k, v, ĩ, f̃)) per head
        y = ((h + skip ⊙ c) ⊙ silu(z)) W_out (+ b_out)

    Beck et al. 2024, "xLSTM" (arXiv:2405.04517), Figure 10. The recurrence is that of `mlstm`
    without its output gate. W_q, W_k and W_v are block-diagonal. A whole block of the paper is
    `residual(serial(layer_norm(), mlstm_block(...)))`.

    Args:
        num_units: H, the width inside; twice D in the paper.
        num_heads: number of memories, a divisor of H; keys and values have the width H / num_heads.
        block_width: width of the blocks of W_q, W_k and W_v, a divisor of H.
        conv_width: number of steps that the convolution sees.
        use_bias: whether x W, q, k, v and y have a bias, which starts at zero.
        norm_epsilon: ε of the norm of each head.
        denominator_epsilon: number that is added to the denominator, as in `mlstm`; the code of the
            paper has 1e-6.
        evaluator: how the recurrence is evaluated; None is `chunkwise(64)`.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The layer, `[T, *batch, D] -> [T, *batch, D]`, carry `MLSTMBlockCarry(conv, memory)`.

    Raises:
        TypeError: A size is not an int, `use_bias` is not a bool, or another number is not a float.
        ValueError: A size is below 1, `num_heads` or `block_width` does not divide `num_units`,
            `norm_epsilon` is not above 0, or `denominator_epsilon` is below 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.mlstm_block(16, num_heads=2)
        >>> params = layer.init(jax.random.key(0), 8)
        >>> rollout = jr.unroll(layer, params, jnp.ones((5, 100, 8)))
        >>> rollout.outputs.shape, rollout.carry.memory.c.shape
        ((5, 100, 8), (5, 2, 8, 8))
    """
    sizes = {"num_heads": num_heads, "block_width": block_width}
    for name, size in {"num_units": num_units, "conv_width": conv_width, **sizes}.items():
        checks.positive(size, name)
    for name, size in sizes.items():
        if num_units % size:
            raise ValueError(f"{name} must divide num_units = {num_units}, got {size}.")
    checks.boolean(use_bias, "use_bias")
    checks.above_zero(norm_epsilon, "norm_epsilon")
    checks.not_negative(denominator_epsilon, "denominator_epsilon")
    cell = memory_cell(
        partial(_init_memory, num_heads=num_heads, dtype=param_dtype),
        _write,
        MLSTMReadout(_query, denominator_epsilon, norm_epsilon),
        (num_heads, num_units // num_heads, num_units // num_heads),
    )
    evaluate = chunkwise(64) if evaluator is None else evaluator
    checks.evaluator(evaluate, "evaluator")
    checks.evaluates(evaluate, cell)

    def init(key, num_inputs):
        keys = jax.random.split(key, 5)
        blocks = [
            initializers.input_kernel(block_key, block_width, block_width, param_dtype)
            for block_key in jax.random.split(keys[2], 3 * num_units // block_width)
        ]
        zeros = partial(jnp.zeros, dtype=param_dtype)
        return MLSTMBlockParams(
            kernel=initializers.input_kernel(keys[0], num_inputs, 2 * num_units, param_dtype),
            conv=causal_conv.init(keys[1], conv_width, num_units, True, param_dtype),
            qkv_kernel=jnp.stack(blocks).reshape(3, -1, block_width, block_width),
            memory=cell.init(keys[3], 3 * num_units),
            skip=jnp.ones(num_units, param_dtype),
            output_kernel=initializers.input_kernel(keys[4], num_units, num_inputs, param_dtype),
            bias=zeros(2 * num_units) if use_bias else None,
            qkv_bias=zeros(3 * num_units) if use_bias else None,
            output_bias=zeros(num_inputs) if use_bias else None,
        )

    def initial_carry(params, batch_shape=()):
        return MLSTMBlockCarry(
            causal_conv.initial_carry(params.conv, batch_shape),
            cell.initial_carry(params.memory, batch_shape),
        )

    def unroll(params, carry, steps, key):
        del key
        checks.width(steps.xs, params.kernel)
        xs = affine(in_compute_dtype(params, steps.xs), params.kernel, params.bias)
        u, z = jnp.split(xs, 2, axis=-1)
        conv_carry, memory_carry = parts_of(carry)
        window, c = causal_conv.convolve(params.conv, conv_carry, steps._replace(xs=u))
        c = jax.nn.silu(c)
        qkv = [
            by_block(inputs, kernel).reshape(c.shape)
            for inputs, kernel in zip((c, c, u), params.qkv_kernel, strict=True)
        ]
        qkv = jnp.concatenate(qkv, axis=-1)
        qkv = qkv if params.qkv_bias is None else qkv + params.qkv_bias
        rollout = evaluate(cell, params.memory, memory_carry, steps._replace(xs=qkv))
        gated = (rollout.outputs + params.skip * c) * jax.nn.silu(z)
        ys = affine(gated, params.output_kernel, params.output_bias)
        return Rollout(MLSTMBlockCarry(window, rollout.carry), ys, rollout.info)

    return Layer(init, initial_carry, unroll, lambda num_inputs: num_inputs)


def _init_memory(key, num_inputs, num_heads, dtype):
    return MLSTMMemoryParams(
        gate_kernel=jnp.zeros((num_inputs, 2 * num_heads), dtype),
        gate_bias=initial_gate_bias(key, num_heads, dtype),
        norm_scale=jnp.ones(num_inputs // 3, dtype),
    )


def _write(params: MLSTMMemoryParams, qkv: Any) -> MLSTMWrite:
    i, f = jnp.split(qkv @ params.gate_kernel + params.gate_bias, 2, axis=-1)
    _, k, v = jnp.split(qkv, 3, axis=-1)
    k, v = (part.reshape(*i.shape, part.shape[-1] // i.shape[-1]) for part in (k, v))
    return MLSTMWrite(k * k.shape[-1] ** -0.5, v, i, f)


def _query(params: MLSTMMemoryParams, qkv: Any, shape: tuple[int, ...]) -> tuple[Any, int]:
    """The query `[..., num_heads, K]`, and 1 in place of an output gate."""
    del params
    q = jnp.split(qkv, 3, axis=-1)[0]
    return q.reshape(*q.shape[:-1], *shape), 1
