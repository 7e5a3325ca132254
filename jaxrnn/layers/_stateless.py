"""Layers without memory."""

from collections.abc import Callable
from typing import Any

from jaxrnn.types import Layer, Rollout


def stateless(
    init: Callable[..., Any],
    apply: Callable[[Any, Any], Any],
    num_outputs: Callable[[int], int],
    num_feature_axes: Any = 1,
) -> Layer:
    """Makes a layer without memory from a function of one step's input.

        yₜ = apply(params, xₜ)

    Masks and resets change nothing, because no step reads another.

    Args:
        init: `(key, num_inputs) -> params`.
        apply: `(params, xs) -> ys`, on any leading axes.
        num_outputs: `(num_inputs) -> int`.
        num_feature_axes: number of axes of x after batch and time, as in `Layer`.

    Returns:
        The layer, with the carry `()`.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> double = stateless(lambda key, num_inputs: (), lambda params, xs: 2 * xs, lambda n: n)
        >>> jr.unroll(double, (), jnp.ones((3, 1))).outputs[:, 0]
        Array([2., 2., 2.], dtype=float32)
    """

    def unroll(params, carry, steps, key):
        del key
        return Rollout(carry, apply(params, steps.xs))

    return Layer(
        init=init,
        initial_carry=lambda params, batch_shape=(): (),
        unroll=unroll,
        num_outputs=num_outputs,
        num_feature_axes=num_feature_axes,
    )
