"""A layer without memory from a function."""

from collections.abc import Callable
from typing import Any

from jaxrnn.types import Layer, Rollout


def stateless(
    init: Callable[..., Any],
    apply: Callable[[Any, Any], Any],
    num_outputs: Callable[[int], int],
    num_feature_axes: int = 1,
) -> Layer:
    """A layer whose step sees its own input alone, so that masks and resets change nothing.

        yₜ = apply(params, xₜ)

    Args:
        init: `(key, num_inputs) -> params`.
        apply: `(params, xs) -> ys`, on any leading axes.
        num_outputs: `(num_inputs) -> int`.
        num_feature_axes: Axes of x behind batch and time.

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
