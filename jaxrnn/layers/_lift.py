"""A function of one step as a layer."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.layers._stateless import stateless
from jaxrnn.types import Layer


@model_factory
def lift(
    function: Callable[[Any], Any], *, num_outputs: int | None = None, num_feature_axes: Any = 1
) -> Layer:
    """Applies a function at every step.

        yₜ = function(xₜ)

    The function must be finite and differentiable at x = 0, which masked inputs become. It is
    compared by identity: one that has a name, such as `jnp.tanh`, or a `functools.partial` of one
    makes equal models, which compile once; a lambda makes a new model each time.

    Args:
        function: `x -> y`, `[..., D] -> [..., C]` with any leading axes, each step by itself.
        num_outputs: C; None finds it out by tracing the function.
        num_feature_axes: number of axes of x after batch and time, as in `Layer`; C must be given
            where it is not 1.

    Returns:
        The layer, `[..., D] -> [..., C]`, with params `()` and the carry `()`. It raises
        ValueError, while tracing, when the function changes the leading axes.

    Raises:
        TypeError: `function` is not a function, or `num_outputs` is not an int.
        ValueError: `num_outputs` is below 1, or is missing where `num_feature_axes` is not 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.serial(jr.dense(8), jr.lift(jax.nn.relu), jr.gru(4))
        >>> layer
        serial(dense(8), lift(relu), gru(4))
        >>> params = layer.init(jax.random.key(0), 3)
        >>> jr.unroll(layer, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 4)
    """
    checks.function(function, "function")
    if num_outputs is not None:
        checks.positive(num_outputs, "num_outputs")
    elif num_feature_axes != 1:
        raise ValueError(
            f"num_outputs must be given where num_feature_axes is not 1, got {num_feature_axes!r}."
        )

    def apply(params, xs):
        del params
        ys = function(xs)
        leading = checks.leading_shape(xs, num_feature_axes)
        for leaf in jax.tree.leaves(ys):
            if np.shape(leaf)[: len(leading)] != leading:
                raise ValueError(
                    f"function must keep the leading axes {leading} of x, "
                    f"got the shape {np.shape(leaf)} from {function!r}."
                )
        return ys

    def width(num_inputs):
        if num_outputs is not None:
            return num_outputs
        y = jax.eval_shape(function, jax.ShapeDtypeStruct((1, num_inputs), jnp.float32))
        if np.ndim(y) < 2:
            raise ValueError(
                "num_outputs must be given for a function that does not return one array "
                f"[..., C], got {y} from {function!r}."
            )
        return y.shape[-1]

    return stateless(lambda key, num_inputs: (), apply, width, num_feature_axes)
