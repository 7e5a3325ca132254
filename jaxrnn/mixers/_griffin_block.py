"""The recurrent block of Griffin: an RG-LRU after a short convolution, beside a gate."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._products import affine
from jaxrnn.cells._rg_lru import FirstOrNot, rg_lru, told_first_steps
from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.associative import associative
from jaxrnn.engine.evaluators.chunked import chunked, sqrt_size
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.starts import parts_of
from jaxrnn.factories import model_factory
from jaxrnn.mixers import _causal_conv as causal_conv
from jaxrnn.types import Evaluator, Layer, Rollout


class GriffinBlockParams(NamedTuple):
    """`kernel [D, 2*H]` (blocks u, z), `bias [2*H]`, `conv`, `lru` and the output.

    `conv` is `CausalConvParams` and `lru` is `RGLRUParams`, both of width H; `output_kernel [H, D]`
    and `output_bias [D]`.
    """

    kernel: Any
    bias: Any
    conv: Any
    lru: Any
    output_kernel: Any
    output_bias: Any
    roles = {
        "kernel": "input",
        "bias": "input",
        "output_kernel": "readout",
        "output_bias": "readout",
    }


class GriffinBlockCarry(NamedTuple):
    """`conv`, a `Window` of conv_width-1 steps, and `lru`, a `LinearCarry(h [..., H])`."""

    conv: Any
    lru: Any


@model_factory
def griffin_block(
    num_units: int,
    num_blocks: int = 1,
    *,
    conv_width: int = 4,
    c: float = 8.0,
    normalized_start: bool = True,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """The recurrent block of Griffin and Hawk.

        u, z = x W + b
        y = (rg_lru(causal_conv(u)) ⊙ gelu(z)) W_output + b_output

    De et al. 2024, "Griffin" (arXiv:2402.19427), figure 2; the recursion is that of `rg_lru`. A
    layer of that network is `residual(serial(rms_norm(), griffin_block(H)))` and then
    `residual(serial(rms_norm(), gated_mlp(M, use_bias=True)))`.

    Args:
        num_units: H, the width of the recurrence.
        num_blocks: number of blocks of the gates of `rg_lru`, a divisor of H.
        conv_width: width of the convolution, in real steps of the sequence.
        c: exponent of the decay, as in `rg_lru`.
        normalized_start: whether √(1 - a²) also scales the first input of a sequence, as in
            `rg_lru`; the published networks have False. Every evaluator of linear cells takes both.
        evaluator: how the recurrence is evaluated; None is chunks of √T steps, as in `mamba`.
        param_dtype: dtype of the parameters. Everything runs in promote(params, float32).

    Returns:
        The layer, `[..., D] -> [..., D]`, carry `GriffinBlockCarry(conv, lru)` with
        H (conv_width-1) and H numbers.

    Raises:
        TypeError: A size is not an int, or `normalized_start` is not a bool.
        ValueError: A size is below 1, `num_blocks` does not divide `num_units`, `c` is not above 0,
            or `conv_width` is 1 without a normalized start, since the convolution then remembers no
            step and cannot tell which ones are the first.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.residual(jr.serial(jr.rms_norm(), jr.griffin_block(12, num_blocks=3)))
        >>> params = layer.init(jax.random.key(0), 8)
        >>> jr.unroll(layer, params, jnp.ones((2, 100, 8))).outputs.shape
        (2, 100, 8)
    """
    checks.positive(num_units, "num_units")
    checks.positive(conv_width, "conv_width")
    checks.boolean(normalized_start, "normalized_start")
    linear = rg_lru(num_blocks, c=c, param_dtype=param_dtype)
    if num_units % num_blocks:
        raise ValueError(f"num_blocks must divide num_units = {num_units}, got {num_blocks}.")
    if conv_width == 1 and not normalized_start:
        raise ValueError("conv_width must be above 1 without a normalized start, got 1.")
    cell = linear if normalized_start else told_first_steps(linear, c)
    evaluate = chunked(sqrt_size, associative()) if evaluator is None else evaluator
    checks.evaluator(evaluate, "evaluator")
    checks.evaluates(evaluate, cell)

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        return GriffinBlockParams(
            kernel=initializers.input_kernel(keys[0], num_inputs, 2 * num_units, param_dtype),
            bias=jnp.zeros(2 * num_units, param_dtype),
            conv=causal_conv.init(keys[1], conv_width, num_units, True, param_dtype),
            lru=linear.init(keys[2], num_units),
            output_kernel=initializers.input_kernel(keys[3], num_units, num_inputs, param_dtype),
            output_bias=jnp.zeros(num_inputs, param_dtype),
        )

    def initial_carry(params, batch_shape=()):
        return GriffinBlockCarry(
            causal_conv.initial_carry(params.conv, batch_shape),
            linear.initial_carry(params.lru, batch_shape),
        )

    def unroll(params, carry, steps, key):
        del key
        checks.width(steps.xs, params.kernel)
        z = affine(in_compute_dtype(params, steps.xs), params.kernel, params.bias)
        u, z = jnp.split(z, 2, axis=-1)
        conv_carry, lru_carry = parts_of(carry)
        steps = steps._replace(xs=u)
        if normalized_start:
            window, xs = causal_conv.convolve(params.conv, conv_carry, steps)
        else:
            window, told = causal_conv.convolve_and_tell_first(params.conv, conv_carry, steps)
            xs = FirstOrNot(*told)
        rollout = evaluate(cell, params.lru, lru_carry, steps._replace(xs=xs))
        gated = rollout.outputs * jax.nn.gelu(z)
        ys = affine(gated, params.output_kernel, params.output_bias)
        return Rollout(GriffinBlockCarry(window, rollout.carry), ys, rollout.info)

    return Layer(init, initial_carry, unroll, lambda num_inputs: num_inputs)
