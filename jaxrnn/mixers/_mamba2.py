"""The Mamba-2 mixer: matrix memories with a scalar decay, as a recurrence or as attention."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._norms import divided_by_rms
from jaxrnn.cells._products import affine
from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.chunkwise import chunkwise
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.starts import parts_of
from jaxrnn.factories import model_factory
from jaxrnn.mixers import _causal_conv as causal_conv
from jaxrnn.mixers._ssd import UNLIMITED, ssd
from jaxrnn.types import Evaluator, Layer, Rollout

NORMS = ("after_gate", "before_gate", None)


class Mamba2Params(NamedTuple):
    """`kernel [D, 2*H + 2*G*N + num_heads]` (blocks z, u, B, C, Δ); H = num_heads * P.

    `conv` is the `CausalConvParams` for u, B and C together, `ssm` is `SSDParams`;
    `norm_scale [H]` or None, `output_kernel [H, D]`; `bias`, as wide as the kernel, and
    `output_bias [D]`, or None.
    """

    kernel: Any
    conv: Any
    ssm: Any
    norm_scale: Any
    output_kernel: Any
    bias: Any = None
    output_bias: Any = None
    roles = {
        "kernel": "input",
        "bias": "input",
        "norm_scale": "readout",
        "output_kernel": "readout",
        "output_bias": "readout",
    }


class Mamba2Carry(NamedTuple):
    """`conv`, a `Window` of conv_width-1 steps, and `ssm`.

    `ssm` is a `LinearCarry(h [..., num_heads, P, N])`.
    """

    conv: Any
    ssm: Any


@model_factory
def mamba2(
    state_size: int = 128,
    *,
    head_width: int = 64,
    expansion: int = 2,
    conv_width: int = 4,
    num_groups: int = 1,
    norm: str | None = "after_gate",
    norm_epsilon: float = 1e-5,
    use_bias: bool = False,
    use_conv_bias: bool = True,
    skip_per_feature: bool = False,
    dt_limit: tuple[float, float] = UNLIMITED,
    step_rescale: float = 1.0,
    evaluator: Evaluator | None = None,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """The Mamba-2 mixer, whose state space with a scalar decay is also masked attention.

        z, v, δ = x W;   u, B, C = silu(causal_conv(v));   Δ = step_rescale · softplus(δ + dt_bias)
        hₜ = exp(Δ A) hₜ₋₁ + Δ uₜ Bₜᵀ,  yₜ = hₜ Cₜ + skip uₜ      for each head, A = -exp(a_log)
        y = rms_norm(y ⊙ silu(z)) ⊙ norm_scale W_output

    Dao and Gu 2024 (arXiv:2405.21060). B and C are shared by the heads of a group, and the norm is
    taken over the features of a group. The recurrence has three equivalent forms: recurrent
    (`sequential()`, and whenever T = 1); its dual, masked attention without a softmax
    (`chunkwise(None)`),

        yₜ = Σ_{s ≤ t} (Cₜ · Bₛ) exp(log aₛ₊₁ + … + log aₜ) Δₛ uₛ,   log a = Δ A

    and `chunkwise(size)`, dual within chunks and recurrent between them: O(T · size). Exponents
    are sums of terms that are not positive, never differences of sums. The last chunk may be
    shorter. The options after `conv_width` are those of the paper's code, with its defaults.

    exp(a_log) starts as U(1, 16), and softplus(dt_bias) starts in 0.001 … 0.1, uniform on a
    logarithmic scale.

    Args:
        state_size: N.
        head_width: P, a divisor of H.
        expansion: H = expansion * D.
        conv_width: width of the convolution, in real steps of the sequence.
        num_groups: G, a divisor of the number of heads: head k reads the B and C of group
            ⌊k G / num_heads⌋.
        norm: "after_gate", as above; "before_gate", rms_norm(y) ⊙ norm_scale ⊙ silu(z); or None,
            y ⊙ silu(z).
        norm_epsilon: number that the norm adds to the mean of squares.
        use_bias: whether W and W_output have a bias, which starts at zero.
        use_conv_bias: whether the convolution has a bias.
        skip_per_feature: whether the skip is `[H]` instead of `[num_heads]`.
        dt_limit: bounds (lower, upper) of softplus(δ + dt_bias), before `step_rescale`.
        step_rescale: factor of every Δ, for the same parameters at another sampling rate: 2 for
            every second sample. The convolution still counts samples.
        evaluator: how the recurrence is evaluated; None is `chunkwise(64)`.
        param_dtype: dtype of the parameters. Everything runs in promote(params, float32).

    Returns:
        The layer, `[..., D] -> [..., D]`, carry `Mamba2Carry(conv, ssm)` with
        (H + 2 G N) (conv_width-1) and H N numbers.

    Raises:
        TypeError: A size is not an int, a `use_...` or `skip_per_feature` is not a bool,
            `step_rescale` or `norm_epsilon` is not a float, or `dt_limit` is not a tuple of two
            floats.
        ValueError: A size is below 1, `step_rescale` or `norm_epsilon` is not above 0, `norm` is
            none of the three, `dt_limit` does not rise, or (in `init`) `head_width` does not divide
            H or `num_groups` the number of heads.

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
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {NORMS}, got {norm!r}.")
    checks.above_zero(norm_epsilon, "norm_epsilon")
    checks.boolean(use_bias, "use_bias")
    checks.boolean(use_conv_bias, "use_conv_bias")
    ssm = ssd(
        state_size,
        head_width,
        param_dtype,
        num_groups=num_groups,
        skip_per_feature=skip_per_feature,
        dt_limit=dt_limit,
        step_rescale=step_rescale,
    )
    evaluate = chunkwise(64) if evaluator is None else evaluator
    checks.evaluator(evaluate, "evaluator")
    checks.evaluates(evaluate, ssm)

    def init(key, num_inputs):
        keys = jax.random.split(key, 4)
        num_units = expansion * num_inputs
        num_heads = _num_heads(num_units, head_width)
        num_mixed = num_units + 2 * num_groups * state_size
        num_projected = num_units + num_mixed + num_heads
        return Mamba2Params(
            kernel=initializers.input_kernel(keys[0], num_inputs, num_projected, param_dtype),
            conv=causal_conv.init(keys[1], conv_width, num_mixed, use_conv_bias, param_dtype),
            ssm=ssm.init(keys[2], num_mixed + num_heads),
            norm_scale=None if norm is None else jnp.ones(num_units, param_dtype),
            output_kernel=initializers.input_kernel(keys[3], num_units, num_inputs, param_dtype),
            bias=jnp.zeros(num_projected, param_dtype) if use_bias else None,
            output_bias=jnp.zeros(num_inputs, param_dtype) if use_bias else None,
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
        num_units, num_mixed = len(params.output_kernel), params.conv.kernel.shape[1]
        blocks = [num_units, num_units + num_mixed]
        z, v, delta = jnp.split(affine(xs, params.kernel, params.bias), blocks, axis=-1)
        conv_carry, ssm_carry = parts_of(carry)
        window, v = causal_conv.convolve(params.conv, conv_carry, steps._replace(xs=v))
        joined = jnp.concatenate([jax.nn.silu(v), delta], axis=-1)
        rollout = evaluate(ssm, params.ssm, ssm_carry, steps._replace(xs=joined))
        ys = gated(params.norm_scale, rollout.outputs, jax.nn.silu(z))
        carry = Mamba2Carry(window, rollout.carry)
        ys = affine(ys, params.output_kernel, params.output_bias)
        return Rollout(carry, ys, rollout.info)

    def gated(scale, ys, gate):
        if norm == "after_gate":
            return normalised(ys * gate) * scale
        return ys * gate if norm is None else normalised(ys) * scale * gate

    def normalised(ys):
        groups = ys.reshape(*ys.shape[:-1], num_groups, ys.shape[-1] // num_groups)
        return divided_by_rms(groups, norm_epsilon).reshape(ys.shape)

    return Layer(init, initial_carry, unroll, lambda num_inputs: num_inputs)


def _num_heads(num_units: int, head_width: int) -> int:
    if num_units % head_width:
        raise ValueError(
            f"head_width must divide the width {num_units} of all heads together, got {head_width}."
        )
    return num_units // head_width
