"""A sound cell and a way to write layers, which the tests of the checks break."""

import jax
import jax.numpy as jnp
from jax import lax

import jaxrnn as jr
from jaxrnn.engine import precision


def leaky(**changes):
    """h = tanh(h w + x W), sound unless changed."""

    def init(key, num_inputs):
        return {
            "kernel": 0.5 * jax.random.normal(key, (num_inputs, 2)),
            "recurrent": jnp.array([0.5, -0.8]),
        }

    def initial_carry(params, batch_shape=()):
        return jnp.zeros((*batch_shape, 2), precision.compute_dtype(params))

    cell = jr.Cell(
        init=init,
        initial_carry=initial_carry,
        project=lambda params, x: x @ params["kernel"],
        advance=advance,
        emit=lambda params, carry, x: carry,
        num_outputs=lambda num_inputs: 2,
    )
    return cell._replace(**changes)


def advance(params, carry, z):
    return jnp.tanh(carry * params["recurrent"] + z)


def scanned(body):
    """A layer that scans `body(h, x, mask, reset) -> h` and says nothing twice."""

    def unroll(params, carry, steps, key):
        xs, mask, reset = steps
        mask = jnp.ones(xs.shape[:-1], bool) if mask is None else mask
        reset = jnp.zeros(xs.shape[:-1], bool) if reset is None else reset

        def step(h, inputs):
            h = body(h, *inputs)
            return h, h

        dtype = precision.compute_dtype(params)
        return jr.Rollout(*lax.scan(step, carry, (xs.astype(dtype), mask, reset)))

    def initial_carry(params, batch_shape=()):
        return jnp.zeros((*batch_shape, 3), precision.compute_dtype(params))

    return jr.Layer(
        init=lambda key, num_inputs: {"scale": jnp.ones(num_inputs)},
        initial_carry=initial_carry,
        unroll=unroll,
        num_outputs=lambda num_inputs: num_inputs,
    )
