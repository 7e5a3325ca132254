"""The same affine map at every step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._products import affine
from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.layers._stateless import stateless
from jaxrnn.types import Layer


class DenseParams(NamedTuple):
    """`kernel [D, C]` and `bias [C]` or None."""

    kernel: Any
    bias: Any = None
    roles = "readout"


@model_factory
def dense(
    num_outputs: int,
    activation: Callable[[Any], Any] | None = None,
    *,
    use_bias: bool = True,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """Applies the same affine map at every step, often as the readout.

        yₜ = φ(xₜ W + b)

    The kernel starts as N(0, 1/D), truncated, and the bias at zero. Products run in
    promote(x, params).

    Args:
        num_outputs: C.
        activation: φ, a function that keeps the shape; None is the identity.
        use_bias: whether there is a b.
        param_dtype: dtype of the parameters.

    Returns:
        The layer, `[..., D] -> [..., C]`, with `DenseParams(kernel [D, C], bias [C])` and the
        carry `()`. It raises ValueError, while tracing, when x has another width than the kernel.

    Raises:
        TypeError: `num_outputs` is not an int, `activation` is not a function or `use_bias` is not
            a bool.
        ValueError: `num_outputs` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> params = jr.layers.DenseParams(kernel=jnp.array([[1.0], [2.0]]), bias=jnp.array([0.5]))
        >>> jr.unroll(jr.dense(1), params, jnp.array([[1.0, 1.0], [0.0, 3.0]])).outputs[:, 0]
        Array([3.5, 6.5], dtype=float32)
    """
    checks.positive(num_outputs, "num_outputs")
    checks.boolean(use_bias, "use_bias")
    if activation is not None and not callable(activation):
        raise TypeError(f"activation must be a function or None, got {activation!r}.")

    def init(key, num_inputs):
        kernel = initializers.input_kernel(key, num_inputs, num_outputs, param_dtype)
        return DenseParams(kernel, jnp.zeros(num_outputs, param_dtype) if use_bias else None)

    def apply(params, xs):
        checks.width(xs, params.kernel)
        ys = affine(xs, params.kernel, params.bias)
        return ys if activation is None else activation(ys)

    return stateless(init, apply, lambda num_inputs: num_outputs)
