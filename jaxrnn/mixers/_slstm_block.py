"""The sLSTM block of xLSTM: a scalar memory after a short convolution, with a norm per head."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._norms import standardized
from jaxrnn.cells._products import by_block
from jaxrnn.cells._slstm import SLSTMParams, slstm
from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.auto import auto
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.starts import parts_of
from jaxrnn.factories import model_factory
from jaxrnn.mixers import _causal_conv as causal_conv
from jaxrnn.types import Evaluator, Layer, Rollout


class SLSTMBlockParams(NamedTuple):
    """`conv`, `slstm` and `norm_scale [H]`.

    `conv` is `CausalConvParams` of width D. `slstm` is `SLSTMParams` with a block-diagonal kernel
    for each gate, `kernel [4, num_heads, D/num_heads, H/num_heads]`.
    """

    conv: Any
    slstm: Any
    norm_scale: Any
    roles = {"norm_scale": "readout"}


class SLSTMBlockCarry(NamedTuple):
    """`conv`, a `Window` of conv_width-1 steps, and `slstm`, an `SLSTMCarry`."""

    conv: Any
    slstm: Any


@model_factory
def slstm_block(
    num_units: int,
    num_heads: int,
    *,
    conv_width: int = 4,
    exponential_forget_gate: bool = False,
    forget_bias: float = 3.0,
    norm_epsilon: float = 1e-5,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """The sLSTM block of the xLSTM paper.

        c = silu(causal_conv(x)),   zᵢ, z_f = c Wᵢ, c W_f,   z_g, z_o = x W_g, x W_o
        y = norm(sLSTM(zᵢ, z_f, z_g, z_o)) per head

    Beck et al. 2024, "xLSTM" (arXiv:2405.04517), Figure 9. The recurrence is that of `slstm`. All
    four W are block-diagonal, as R is. A whole block of the paper is
    `serial(residual(serial(layer_norm(), slstm_block(D, ...))),
    residual(serial(layer_norm(), gated_mlp(M))))`.

    Args:
        num_units: H; D in the paper.
        num_heads: number of blocks of each W and R, a divisor of D and H.
        conv_width: number of steps that the convolution sees.
        exponential_forget_gate: whether f̃ is without the log σ, as in `slstm`.
        forget_bias: initial bias of the forget gate.
        norm_epsilon: ε of the norm of each head.
        evaluator: how the recurrence is evaluated; None is `auto()`.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The layer, `[T, *batch, D] -> [T, *batch, H]`, carry `SLSTMBlockCarry(conv, slstm)`.

    Raises:
        TypeError: A size is not an int, or `norm_epsilon` is not a float.
        ValueError: A size is below 1, `num_heads` does not divide `num_units` or (in `init`) D, or
            `norm_epsilon` is not above 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.slstm_block(8, num_heads=2)
        >>> params = layer.init(jax.random.key(0), 8)
        >>> params.slstm.kernel.shape
        (4, 2, 4, 4)
        >>> jr.unroll(layer, params, jnp.ones((5, 100, 8))).outputs.shape
        (5, 100, 8)
    """
    checks.positive(conv_width, "conv_width")
    checks.above_zero(norm_epsilon, "norm_epsilon")
    dense = slstm(
        num_units,
        num_heads,
        exponential_forget_gate=exponential_forget_gate,
        forget_bias=forget_bias,
        param_dtype=param_dtype,
    )
    cell = dense._replace(project=_project)
    evaluate = auto() if evaluator is None else evaluator
    checks.evaluator(evaluate, "evaluator")
    checks.evaluates(evaluate, cell)

    def init(key, num_inputs):
        if num_inputs % num_heads:
            raise ValueError(f"num_heads must divide D = {num_inputs}, got {num_heads}.")
        keys = jax.random.split(key, 3)
        width = num_inputs // num_heads
        kernels = [
            initializers.input_kernel(gate_key, width, num_units // num_heads, param_dtype)
            for gate_key in jax.random.split(keys[1], 4 * num_heads)
        ]
        kernel = jnp.stack(kernels).reshape(4, num_heads, width, -1)
        return SLSTMBlockParams(
            conv=causal_conv.init(keys[0], conv_width, num_inputs, True, param_dtype),
            slstm=dense.init(keys[2], 1)._replace(kernel=kernel),
            norm_scale=jnp.ones(num_units, param_dtype),
        )

    def initial_carry(params, batch_shape=()):
        return SLSTMBlockCarry(
            causal_conv.initial_carry(params.conv, batch_shape),
            cell.initial_carry(params.slstm, batch_shape),
        )

    def unroll(params, carry, steps, key):
        del key
        checks.width(steps.xs, params.conv.kernel.T)
        conv_carry, slstm_carry = parts_of(carry)
        window, c = causal_conv.convolve(params.conv, conv_carry, steps)
        xs = in_compute_dtype(params, steps.xs)
        xs = jnp.concatenate([jax.nn.silu(c), xs], axis=-1)
        rollout = evaluate(cell, params.slstm, slstm_carry, steps._replace(xs=xs))
        shape = *rollout.outputs.shape[:-1], num_heads, num_units // num_heads
        heads = rollout.outputs.reshape(shape)
        ys = standardized(heads, norm_epsilon).reshape(rollout.outputs.shape)
        carry = SLSTMBlockCarry(window, rollout.carry)
        return Rollout(carry, ys * in_compute_dtype(params, params.norm_scale), rollout.info)

    return Layer(init, initial_carry, unroll, lambda num_inputs: num_units)


def _project(params: SLSTMParams, inputs: Any) -> Any:
    """The four gates `[..., 4*H]` of [c, x] `[..., 2*D]`; i and f read c, and g and o read x."""
    c, x = jnp.split(inputs, 2, axis=-1)
    gates = [
        by_block(source, kernel) for source, kernel in zip((c, c, x, x), params.kernel, strict=True)
    ]
    return jnp.stack(gates, axis=-3).reshape(*x.shape[:-1], len(params.bias)) + params.bias
