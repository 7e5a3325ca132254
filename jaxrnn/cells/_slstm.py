"""The scalar memory of xLSTM: exponential gates, a normaliser and a stabiliser."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._products import by_block
from jaxrnn.engine import checks, precision
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split

# Outputs do not depend on where m starts. Below every gate, the first input gate is 1, and n >= 1
# from then on. The number is finite because carries are, and because -inf - (-inf) is NaN.
_BELOW_EVERY_GATE = -1e30


class SLSTMParams(NamedTuple):
    """Parameters, with the gates in the order i, f, g, o of the LSTM; K = H / num_heads.

    `kernel [D, 4*H]`, `recurrent_kernel [num_heads, K, 4*K]`, `bias [4*H]`.
    """

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    roles = {"kernel": "input", "recurrent_kernel": "recurrent", "bias": "input"}


class SLSTMCarry(NamedTuple):
    """`h`, the cell `c`, the normaliser `n` and the stabiliser `m`, `[..., H]` each."""

    h: Any
    c: Any
    n: Any
    m: Any


def project(params: SLSTMParams, x: Any) -> Any:
    """z = x W + b, `[..., D] -> [..., 4*H]`."""
    checks.width(x, params.kernel)
    return x @ params.kernel + params.bias


def mix(params: SLSTMParams, carry: SLSTMCarry, z: Any) -> Any:
    """u = z + h R, `[..., 4*H]`; a head reads only its own units."""
    num_heads, width, _ = params.recurrent_kernel.shape
    u = by_block(carry.h, params.recurrent_kernel)
    gates = jnp.moveaxis(u.reshape(*u.shape[:-2], num_heads, 4, width), -2, -3)
    return z + gates.reshape(z.shape)


def update(carry: SLSTMCarry, u: Any, exponential_forget_gate: bool = False) -> SLSTMCarry:
    """c = f c + i tanh(g), n = f n + i and h = σ(o) c / n, `[..., H]` each.

    The gates i and f are divided by exp(m), so that their exponentials stay in range.
    """
    i, f, g, o = jnp.split(u, 4, axis=-1)
    kept = carry.m + (f if exponential_forget_gate else jax.nn.log_sigmoid(f))
    m = jnp.maximum(kept, i)
    i, f = jnp.exp(i - m), jnp.exp(kept - m)
    c = f * carry.c + i * jnp.tanh(g)
    n = f * carry.n + i
    # n > 0 in every carry that a step has computed, but not in every guess of Newton's method.
    h = jax.nn.sigmoid(o) * c / jnp.where(n > 0, n, 1.0)
    return SLSTMCarry(h, c, n, m)


def emit(params: SLSTMParams, carry: SLSTMCarry, x: Any) -> Any:
    """y = h, `[..., H]`."""
    del params, x
    return carry.h


def initial_carry(params: SLSTMParams, batch_shape: tuple[int, ...] = ()) -> SLSTMCarry:
    """h = c = n = 0 and m = -1e30, `[*batch, H]`."""
    num_heads, width, _ = params.recurrent_kernel.shape
    shape, dtype = (*batch_shape, num_heads * width), precision.compute_dtype(params)
    # One array for each leaf: a carry that holds the same array twice cannot be donated.
    h, c, n = (jnp.zeros(shape, dtype) for _ in range(3))
    # A sum, as jax2onnx reads it, and not `jnp.full` (.ci/traced_to_onnx.py).
    return SLSTMCarry(h, c, n, _BELOW_EVERY_GATE + jnp.zeros(shape, dtype))


@model_factory
def slstm(
    num_units: int,
    num_heads: int = 1,
    *,
    exponential_forget_gate: bool = False,
    forget_bias: float = 3.0,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The sLSTM of xLSTM: its input gate is exponential and its cell is a weighted average.

        ĩ = x Wᵢ + hₜ₋₁ Rᵢ + bᵢ, …   f̃ = log σ(x W_f + hₜ₋₁ R_f + b_f)
        mₜ = max(f̃ + mₜ₋₁, ĩ),   i = exp(ĩ - mₜ),   f = exp(f̃ + mₜ₋₁ - mₜ)
        cₜ = f ⊙ cₜ₋₁ + i ⊙ tanh(g̃),   nₜ = f ⊙ nₜ₋₁ + i,   yₜ = hₜ = σ(õ) ⊙ cₜ / nₜ

    Beck et al. 2024, "xLSTM" (arXiv:2405.04517). c / n is a weighted mean of tanh(g̃) over the past
    steps, so |y| < 1. m only keeps the exponentials in range: the true cell and normaliser are
    c exp(m) and n exp(m), and y does not depend on m. The paper does not say where m starts, and
    its code has a branch over the whole batch for the first step; m₀ = -1e30 does the same for each
    row separately.

    The recurrence mixes only the units of a head: R is block-diagonal. Each block of each gate
    starts orthogonal; in the paper's code R starts at zero.

    Args:
        num_units: H.
        num_heads: number of blocks of R, a divisor of H; 1 is the full matrix.
        exponential_forget_gate: whether f̃ is without the log σ, the paper's other forget gate.
        forget_bias: initial bias of the forget gate.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `SLSTMCarry(h, c, n, m)`.

    Raises:
        TypeError: A size is not an int.
        ValueError: A size is below 1, or `num_heads` does not divide `num_units`.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.slstm(8, num_heads=2)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> params.recurrent_kernel.shape
        (2, 4, 16)
        >>> jr.unroll(cell, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 8)
    """
    checks.positive(num_units, "num_units")
    checks.positive(num_heads, "num_heads")
    if num_units % num_heads:
        raise ValueError(f"num_heads must divide num_units = {num_units}, got {num_heads}.")
    width = num_units // num_heads

    def init(key, num_inputs):
        key_input, key_recurrent = jax.random.split(key)
        blocks = [
            initializers.orthogonal_per_gate(head_key, width, width, 4, param_dtype)
            for head_key in jax.random.split(key_recurrent, num_heads)
        ]
        bias = jnp.zeros((4, num_units), param_dtype).at[1].set(forget_bias)
        return SLSTMParams(
            kernel=initializers.input_kernel(key_input, num_inputs, 4 * num_units, param_dtype),
            recurrent_kernel=jnp.stack(blocks),
            bias=bias.reshape(-1),
        )

    change = partial(update, exponential_forget_gate=exponential_forget_gate)
    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=Split(mix, change),
        emit=emit,
        num_outputs=lambda num_inputs: num_units,
    )
