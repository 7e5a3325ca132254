"""A gated two-layer perceptron, applied at every step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._products import affine
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.layers._stateless import stateless
from jaxrnn.types import Layer


class GatedMLPParams(NamedTuple):
    """`gate_kernel [D, H]`, `value_kernel [D, H]`, `output_kernel [H, D]`.

    `gate_bias [H]`, `value_bias [H]` and `output_bias [D]`, or None.
    """

    gate_kernel: Any
    value_kernel: Any
    output_kernel: Any
    gate_bias: Any = None
    value_bias: Any = None
    output_bias: Any = None
    roles = "readout"


@model_factory
def gated_mlp(
    num_units: int,
    activation: Callable[[Any], Any] = jax.nn.gelu,
    *,
    use_bias: bool = False,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """Mixes the features of each step through a gate.

        yₜ = (φ(xₜ W_gate) ⊙ (xₜ W_value)) W_output

    Dauphin et al. 2017 (arXiv:1612.08083), Shazeer 2020 (arXiv:2002.05202).

    Args:
        num_units: H, the width between the two layers.
        activation: φ, elementwise.
        use_bias: whether each of the three products has a bias, which starts at zero.
        param_dtype: dtype of the parameters.

    Returns:
        The layer, `[..., D] -> [..., D]`, with the carry `()`.

    Raises:
        TypeError: `num_units` is not an int, `activation` is not a function, or `use_bias` is not
            a bool.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.gated_mlp(8)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> jr.unroll(layer, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 3)
    """
    checks.positive(num_units, "num_units")
    checks.function(activation, "activation")
    checks.boolean(use_bias, "use_bias")

    def init(key, num_inputs):
        keys = jax.random.split(key, 3)
        return GatedMLPParams(
            initializers.input_kernel(keys[0], num_inputs, num_units, param_dtype),
            initializers.input_kernel(keys[1], num_inputs, num_units, param_dtype),
            initializers.input_kernel(keys[2], num_units, num_inputs, param_dtype),
            *(
                jnp.zeros(size, param_dtype) if use_bias else None
                for size in (num_units, num_units, num_inputs)
            ),
        )

    def apply(params, xs):
        checks.width(xs, params.gate_kernel)
        gate = activation(affine(xs, params.gate_kernel, params.gate_bias))
        gated = gate * affine(xs, params.value_kernel, params.value_bias)
        return affine(gated, params.output_kernel, params.output_bias)

    return stateless(init, apply, lambda num_inputs: num_inputs)
