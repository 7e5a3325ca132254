"""The LSTM, the inputs and the masks that the tests of `unroll` share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr

NUM_STEPS = 6
LENGTHS = np.array([6, 3, 0])
MASK = np.arange(NUM_STEPS) < LENGTHS[:, None]


@functools.cache
def lstm():
    with jax.enable_x64(True):
        cell = jr.lstm(3, param_dtype=jnp.float64)
        params = cell.init(jax.random.key(0), 2)
        # A bias makes padding of zeros move an unguarded state.
        return cell, params._replace(bias=params.bias + 0.3)


def inputs(*leading, seed=1):
    return np.random.default_rng(seed).standard_normal((*leading, 2))


SMOOTHER = jr.simple_cell(
    init=lambda key, num_inputs: jnp.full((), 0.5),
    advance=lambda rate, carry, z: rate * carry + (1 - rate) * z,
    num_outputs=1,
)


def smooth(xs, rate=0.5, **arguments):
    return jr.unroll(SMOOTHER, jnp.full((), rate), jnp.asarray(xs)[:, None], **arguments)


def assert_close(got, want, rtol=1e-10):
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-12), got, want
    )


def assert_equal(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)
