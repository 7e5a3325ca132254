"""Normalisation of every step by the root of its mean square."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxrnn.cells._norms import divided_by_rms
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.layers._stateless import stateless
from jaxrnn.types import Layer


class RMSNormParams(NamedTuple):
    """`scale [D]`."""

    scale: Any
    roles = "readout"


@model_factory
def rms_norm(
    epsilon: float = 1e-6, *, scale_offset: float = 0.0, param_dtype: Any = jnp.float32
) -> Layer:
    """Divides the features of every step by the root of their mean square.

        y = x / √(mean(x²) + ε) ⊙ (scale_offset + scale)

    Zhang and Sennrich 2019 (arXiv:1910.07467). The mean is taken over the last axis in
    promote(x, float32). Unlike `layer_norm` it keeps the mean of the features.

    Args:
        epsilon: ε, which keeps the derivative finite at x = 0.
        scale_offset: number that is added to the scale. Networks that store the scale as its
            difference from 1, such as Griffin, have 1 here, and weight decay then pulls the factor
            to 1.
        param_dtype: dtype of the scale, which starts at 1 - scale_offset.

    Returns:
        The layer, `[..., D] -> [..., D]`, with `RMSNormParams(scale [D])` and the carry `()`. It
        raises ValueError, while tracing, when x has another width than the scale.

    Raises:
        TypeError: `epsilon` or `scale_offset` is not a float.
        ValueError: `epsilon` is not above 0, or `scale_offset` is not finite or is below 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.rms_norm()
        >>> params = layer.init(jax.random.key(0), 2)
        >>> jr.unroll(layer, params, jnp.array([[1.0, 7.0], [0.0, 0.0]])).outputs.round(1)
        Array([[0.2, 1.4],
               [0. , 0. ]], dtype=float32)
    """
    checks.above_zero(epsilon, "epsilon")
    checks.not_negative(scale_offset, "scale_offset")

    def init(key, num_inputs):
        del key
        return RMSNormParams(jnp.full(num_inputs, 1 - scale_offset, param_dtype))

    def apply(params, xs):
        if checks.one_array(xs, "xs").shape[-1:] != params.scale.shape:
            raise ValueError(
                f"xs must have the width of params.scale {params.scale.shape}, got {xs.shape[-1]}."
            )
        xs = xs.astype(jnp.promote_types(xs.dtype, jnp.float32))
        return divided_by_rms(xs, epsilon) * (scale_offset + params.scale)

    return stateless(init, apply, lambda num_inputs: num_inputs)
