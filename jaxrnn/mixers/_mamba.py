"""The Mamba mixer: a gated selective state space after a short convolution."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._products import affine
from jaxrnn.cells._s6 import s6
from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.associative import associative
from jaxrnn.engine.evaluators.chunked import chunked, sqrt_size
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.starts import parts_of
from jaxrnn.factories import model_factory
from jaxrnn.mixers import _causal_conv as causal_conv
from jaxrnn.types import Evaluator, Layer, Rollout


class MambaParams(NamedTuple):
    """`kernel [D, 2*H]` (blocks u, z), `conv`, `ssm` and `output_kernel [H, D]`.

    `conv` is `CausalConvParams` and `ssm` is `S6Params`, both of width H; `bias [2*H]` and
    `output_bias [D]`, or None.
    """

    kernel: Any
    conv: Any
    ssm: Any
    output_kernel: Any
    bias: Any = None
    output_bias: Any = None
    roles = {
        "kernel": "input",
        "bias": "input",
        "output_kernel": "readout",
        "output_bias": "readout",
    }


class MambaCarry(NamedTuple):
    """`conv`, a `Window` of conv_width-1 steps, and `ssm`, a `LinearCarry(h [..., H, N])`."""

    conv: Any
    ssm: Any


@model_factory
def mamba(
    state_size: int = 16,
    *,
    expansion: int = 2,
    conv_width: int = 4,
    dt_rank: int | None = None,
    use_bias: bool = False,
    use_conv_bias: bool = True,
    discretization: str = "euler",
    step_rescale: float = 1.0,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """The Mamba mixer, whose recurrence chooses at each step what to keep.

        u, z = x W
        u' = silu(causal_conv(u))
        y = (s6(u') ⊙ silu(z)) W_output

    Gu and Dao 2023 (arXiv:2312.00752), figure 3; the recursion is that of `s6`. The states of all
    steps would be `[T, *batch, H, N]`, 2 N times the size of x, so the default evaluator stores
    only those between chunks of √T steps and computes the others again in the backward pass.

    Args:
        state_size: N, states of each of the H features.
        expansion: H = expansion * D.
        conv_width: width of the convolution, in real steps of the sequence.
        dt_rank: rank of the projection that makes Δ; None is ⌈D/16⌉.
        use_bias: whether W and W_output have a bias, which starts at zero.
        use_conv_bias: whether the convolution has a bias.
        discretization: as in `s6`: "euler", which the paper's code uses, or "zoh".
        step_rescale: factor of every Δ, as in `s6`; the convolution still counts samples.
        evaluator: how the recurrence is evaluated; None is chunks of √T steps.
        param_dtype: dtype of the parameters. Everything runs in promote(params, float32).

    Returns:
        The layer, `[..., D] -> [..., D]`, carry `MambaCarry(conv, ssm)` with H (conv_width-1) and
        H N numbers.

    Raises:
        TypeError: A size is not an int, `use_bias` or `use_conv_bias` is not a bool, or
            `step_rescale` is not a float.
        ValueError: A size is below 1, `discretization` is neither "euler" nor "zoh", or
            `step_rescale` is not above 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.residual(jr.mamba())
        >>> params = layer.init(jax.random.key(0), 8)
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 100, 8)))
        >>> rollout.outputs.shape, rollout.carry.ssm.h.shape
        ((2, 100, 8), (2, 16, 16))
    """
    checks.positive(expansion, "expansion")
    checks.positive(conv_width, "conv_width")
    checks.boolean(use_bias, "use_bias")
    checks.boolean(use_conv_bias, "use_conv_bias")
    options: dict[str, Any] = {
        "discretization": discretization,
        "step_rescale": step_rescale,
        "param_dtype": param_dtype,
    }
    cell = s6(state_size, dt_rank=dt_rank, **options)
    evaluate = chunked(sqrt_size, associative()) if evaluator is None else evaluator
    checks.evaluator(evaluate, "evaluator")
    checks.evaluates(evaluate, cell)

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        num_units = expansion * num_inputs
        rank = -(-num_inputs // 16) if dt_rank is None else dt_rank
        return MambaParams(
            kernel=initializers.input_kernel(keys[0], num_inputs, 2 * num_units, param_dtype),
            conv=causal_conv.init(keys[1], conv_width, num_units, use_conv_bias, param_dtype),
            ssm=s6(state_size, dt_rank=rank, **options).init(keys[2], num_units),
            output_kernel=initializers.input_kernel(keys[3], num_units, num_inputs, param_dtype),
            bias=jnp.zeros(2 * num_units, param_dtype) if use_bias else None,
            output_bias=jnp.zeros(num_inputs, param_dtype) if use_bias else None,
        )

    def initial_carry(params, batch_shape=()):
        return MambaCarry(
            causal_conv.initial_carry(params.conv, batch_shape),
            cell.initial_carry(params.ssm, batch_shape),
        )

    def unroll(params, carry, steps, key):
        del key
        checks.width(steps.xs, params.kernel)
        xs = in_compute_dtype(params, steps.xs)
        u, z = jnp.split(affine(xs, params.kernel, params.bias), 2, axis=-1)
        conv_carry, ssm_carry = parts_of(carry)
        window, u = causal_conv.convolve(params.conv, conv_carry, steps._replace(xs=u))
        rollout = evaluate(cell, params.ssm, ssm_carry, steps._replace(xs=jax.nn.silu(u)))
        gated = rollout.outputs * jax.nn.silu(z)
        ys = affine(gated, params.output_kernel, params.output_bias)
        return Rollout(MambaCarry(window, rollout.carry), ys, rollout.info)

    return Layer(init, initial_carry, unroll, lambda num_inputs: num_inputs)
