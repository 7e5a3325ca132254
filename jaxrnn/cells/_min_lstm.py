"""The minLSTM, a long short-term memory whose gates do not read the carry."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._linear import linear_cell
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell


class MinLSTMParams(NamedTuple):
    """`kernel [D, 3*H]` and `bias [3*H]`, in the order i, f, g."""

    kernel: Any
    bias: Any
    roles = "input"


@model_factory
def min_lstm(
    num_units: int,
    activation: Callable[[Any], Any] = lambda u: u,
    *,
    forget_bias: float = 0.0,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The minLSTM: an LSTM without an output gate, whose gates read only the input.

        i, f = σ(xₜ Wᵢ + bᵢ), σ(xₜ W_f + b_f),  g = φ(xₜ W_g + b_g)
        hₜ = f / (f + i) ⊙ hₜ₋₁ + i / (f + i) ⊙ g,  yₜ = hₜ

    Feng et al. 2024, "Were RNNs all we needed?" (arXiv:2410.01201), the length-independent form,
    in which the gates add up to one. Only f / i matters, and f / (f + i) is computed as
    σ(log f - log i), because both gates may underflow. As in `min_gru`, φ(u) = u + 1/2 for u ≥ 0
    and σ(u) otherwise gives the model that the paper scans over logarithms; the scan here is over h
    itself.

    Args:
        num_units: H.
        activation: φ, an elementwise function; the identity is the paper's plain form.
        forget_bias: initial b_f; the paper finds that larger ones train faster.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `LinearCarry(h [..., H])`.

    Raises:
        TypeError: `num_units` is not an int, or `activation` is not a function.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.min_lstm(1)
        >>> params = jr.cells.MinLSTMParams(jnp.array([[0.0, 0.0, 1.0]]), jnp.zeros(3))
        >>> jr.unroll(cell, params, jnp.array([[2.0], [0.0], [4.0]])).outputs[:, 0]
        Array([1.  , 0.5 , 2.25], dtype=float32)
    """
    checks.positive(num_units, "num_units")
    checks.function(activation, "activation")

    def init(key, num_inputs):
        return MinLSTMParams(
            kernel=initializers.input_kernel(key, num_inputs, 3 * num_units, param_dtype),
            bias=jnp.repeat(jnp.array([0.0, forget_bias, 0.0], param_dtype), num_units),
        )

    def project(params, x):
        checks.width(x, params.kernel)
        i, f, g = jnp.split(x @ params.kernel + params.bias, 3, axis=-1)
        keep = jax.nn.log_sigmoid(f) - jax.nn.log_sigmoid(i)
        return jax.nn.sigmoid(keep), jax.nn.sigmoid(-keep) * activation(g)

    return linear_cell(init, project, (num_units,), lambda num_inputs: num_units)
