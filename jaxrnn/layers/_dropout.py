"""Dropout between layers."""

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.keys import drawing_key, from_sequence_start
from jaxrnn.factories import model_factory
from jaxrnn.types import Layer, Rollout


@model_factory
def dropout(rate: float, variational: bool = False) -> Layer:
    """Sets random features to zero and scales up the others.

        yₜ = mₜ ⊙ xₜ / (1 - rate),  mₜ ~ Bernoulli(1 - rate);  without a key y = x

    Srivastava et al. 2014, scaled during training so that E[y] = x. With `variational` one m
    serves a whole sequence (Gal and Ghahramani 2016, arXiv:1512.05287); every reset draws a new
    one, so packed sequences have different masks. The mask depends on the key of the call: the
    chunks of one stream share it only when they are given the same key.

    Args:
        rate: share of the features that is dropped.
        variational: whether one mask serves a whole sequence instead of a single step.

    Returns:
        The layer, `[..., D] -> [..., D]`, with params `()` and the carry `()`. It raises
        ValueError in a training step that got no key, and TypeError for x that is not floating.

    Raises:
        TypeError: The rate is not a float, or `variational` is not a bool.
        ValueError: The rate is not in [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> ys = jr.unroll(jr.dropout(0.5), (), jnp.ones((5, 3)), key=jax.random.key(0)).outputs
        >>> sorted(set(ys.ravel().tolist()))
        [0.0, 2.0]
    """
    rate = checks.fraction(rate, "rate")
    checks.boolean(variational, "variational")

    def draw(key, shape, reset):
        if not variational:
            return jax.random.bernoulli(key, 1 - rate, shape)
        if reset is None:
            return jax.random.bernoulli(key, 1 - rate, shape[1:])
        return from_sequence_start(jax.random.bernoulli(key, 1 - rate, shape), reset)

    def unroll(params, carry, steps, key):
        del params
        xs = checks.one_array(steps.xs, "xs")
        if not jnp.issubdtype(xs.dtype, jnp.inexact):
            raise TypeError(f"xs must be floating to be scaled, got the dtype {xs.dtype}.")
        key = drawing_key(key, "dropout")
        if key is None:
            return Rollout(carry, xs)
        return Rollout(carry, jnp.where(draw(key, xs.shape, steps.reset), xs / (1 - rate), 0))

    return Layer(
        init=lambda key, num_inputs: (),
        initial_carry=lambda params, batch_shape=(): (),
        unroll=unroll,
        num_outputs=lambda num_inputs: num_inputs,
    )
