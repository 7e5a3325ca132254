"""The minGRU, a gated recurrent unit whose gates do not read the carry."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._linear import linear_cell
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell


class MinGRUParams(NamedTuple):
    """`kernel [D, 2*H]` and `bias [2*H]`, the gate z before the candidate g."""

    kernel: Any
    bias: Any
    roles = "input"


@model_factory
def min_gru(
    num_units: int,
    activation: Callable[[Any], Any] = lambda u: u,
    *,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The minGRU: a GRU whose gate and candidate read only the input.

        z = σ(xₜ W_z + b_z),  g = φ(xₜ W_g + b_g)
        hₜ = (1 - z) ⊙ hₜ₋₁ + z ⊙ g,  yₜ = hₜ

    Feng et al. 2024, "Were RNNs all we needed?" (arXiv:2410.01201). The recurrence is linear in h.
    The paper also has a form that scans log h, with φ(u) = u + 1/2 for u ≥ 0 and σ(u) otherwise,
    which keeps h positive; pass that φ as `activation` for the same model. The scan here is over h
    itself, with 1 - z computed as σ of the negated gate, and in float32 it is as exact as sums of
    logarithms.

    Args:
        num_units: H.
        activation: φ, an elementwise function; the identity is the paper's plain form.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `LinearCarry(h [..., H])`.

    Raises:
        TypeError: `num_units` is not an int, or `activation` is not a function.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.min_gru(1)
        >>> params = jr.cells.MinGRUParams(jnp.array([[0.0, 1.0]]), jnp.zeros(2))
        >>> jr.unroll(cell, params, jnp.array([[2.0], [0.0], [4.0]])).outputs[:, 0]
        Array([1.  , 0.5 , 2.25], dtype=float32)
    """
    checks.positive(num_units, "num_units")
    checks.function(activation, "activation")

    def init(key, num_inputs):
        return MinGRUParams(
            kernel=initializers.input_kernel(key, num_inputs, 2 * num_units, param_dtype),
            bias=jnp.zeros(2 * num_units, param_dtype),
        )

    def project(params, x):
        checks.width(x, params.kernel)
        z, g = jnp.split(x @ params.kernel + params.bias, 2, axis=-1)
        return jax.nn.sigmoid(-z), jax.nn.sigmoid(z) * activation(g)

    return linear_cell(init, project, (num_units,), lambda num_inputs: num_units)
