"""The gated two-layer perceptron of each step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.layers._stateless import stateless
from jaxrnn.types import Layer


class GatedMLPParams(NamedTuple):
    """`gate_kernel [D, H]`, `value_kernel [D, H]`, `output_kernel [H, D]`."""

    gate_kernel: Any
    value_kernel: Any
    output_kernel: Any
    roles = "readout"


@model_factory
def gated_mlp(
    num_units: int,
    activation: Callable[[Any], Any] = jax.nn.gelu,
    *,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """Mixes the features of each step through a gate.

        yₜ = (φ(xₜ W_gate) ⊙ (xₜ W_value)) W_output

    Dauphin et al. 2017 (arXiv:1612.08083), Shazeer 2020 (arXiv:2002.05202), without biases.

    Args:
        num_units: H, the width between.
        activation: φ, elementwise.
        param_dtype: Of the parameters.

    Returns:
        The layer, `[..., D] -> [..., D]`, with the carry `()`.

    Raises:
        TypeError: `num_units` is no int or `activation` no function.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.gated_mlp(8)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> jr.unroll(layer, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 3)
    """
    checks.positive(num_units, "num_units")
    if not callable(activation):
        raise TypeError(f"activation must be a function, got {activation!r}.")

    def init(key, num_inputs):
        keys = jax.random.split(key, 3)
        return GatedMLPParams(
            initializers.input_kernel(keys[0], num_inputs, num_units, param_dtype),
            initializers.input_kernel(keys[1], num_inputs, num_units, param_dtype),
            initializers.input_kernel(keys[2], num_units, num_inputs, param_dtype),
        )

    def apply(params, xs):
        checks.width(xs, params.gate_kernel)
        gated = activation(xs @ params.gate_kernel) * (xs @ params.value_kernel)
        return gated @ params.output_kernel

    return stateless(init, apply, lambda num_inputs: num_inputs)
