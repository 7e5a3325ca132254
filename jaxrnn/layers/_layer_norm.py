"""Layer normalisation of every step."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxrnn.cells._norms import standardized
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.layers._stateless import stateless
from jaxrnn.types import Layer


class LayerNormParams(NamedTuple):
    """`scale [D]` and `offset [D]`."""

    scale: Any
    offset: Any
    roles = "readout"


@model_factory
def layer_norm(epsilon: float = 1e-5, *, param_dtype: Any = jnp.float32) -> Layer:
    """Normalises the features of every step.

        μ = mean(x),  v = mean((x - μ)²),  y = (x - μ) / √(v + ε) ⊙ scale + offset

    Ba et al. 2016 (arXiv:1607.06450). The statistics are taken over the last axis in
    promote(x, float32); the variance takes two passes, because E[x²] - μ² cancels in float32.
    ε > 0 keeps the derivative finite where all features are equal, as at x = 0.

    Args:
        epsilon: ε.
        param_dtype: dtype of the parameters, which start at 1 and 0.

    Returns:
        The layer, `[..., D] -> [..., D]`, with `LayerNormParams(scale [D], offset [D])` and the
        carry `()`. It raises ValueError, while tracing, when x has another width than the scale.

    Raises:
        TypeError: `epsilon` is not a float.
        ValueError: `epsilon` is not above 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.layer_norm()
        >>> params = layer.init(jax.random.key(0), 2)
        >>> jr.unroll(layer, params, jnp.array([[1.0, 3.0], [0.0, 0.0]])).outputs.round(3)
        Array([[-1.,  1.],
               [ 0.,  0.]], dtype=float32)
    """
    checks.above_zero(epsilon, "epsilon")

    def init(key, num_inputs):
        del key
        return LayerNormParams(
            jnp.ones(num_inputs, param_dtype), jnp.zeros(num_inputs, param_dtype)
        )

    def apply(params, xs):
        if checks.one_array(xs, "xs").shape[-1:] != params.scale.shape:
            raise ValueError(
                f"xs must have the width of params.scale {params.scale.shape}, got {xs.shape[-1]}."
            )
        xs = xs.astype(jnp.promote_types(xs.dtype, jnp.float32))
        return standardized(xs, epsilon) * params.scale + params.offset

    return stateless(init, apply, lambda num_inputs: num_inputs)
