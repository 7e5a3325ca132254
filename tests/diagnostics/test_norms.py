import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

KEY = jax.random.key(0)


def test_the_states_of_the_notes():
    """h = 1, 5/2, 5/4; a masked step repeats, a reset starts anew."""
    cell = jr.elman(1, activation=lambda u: u)
    params = jr.cells.ElmanParams(jnp.ones((1, 1)), jnp.full((1, 1), 0.5), jnp.zeros(1))
    xs = jnp.array([[1.0], [2.0], [jnp.nan], [0.0], [-8.0]])
    mask = jnp.array([1, 1, 0, 1, 1])
    reset = jnp.array([0, 0, 0, 0, 1])
    norms = jr.carry_norms(cell, params, xs, mask=mask, reset=reset)
    np.testing.assert_array_equal(norms.h, [1, 2.5, 2.5, 1.25, 8])


def test_leaves_of_any_kind():
    layer = jr.serial(jr.slstm(2), jr.self_attention(1, window=2))
    params = jax.jit(layer.init, static_argnums=1)(KEY, 3)
    xs = jax.random.normal(KEY, (2, 4, 3))
    norms = jr.carry_norms(layer, params, xs, time_major=True)
    carries = jr.carries(layer, params, xs, time_major=True)
    for found, leaf in zip(jax.tree.leaves(norms), jax.tree.leaves(carries), strict=True):
        expected = np.linalg.norm(np.asarray(leaf, float).reshape(2, 4, -1), axis=-1)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


SUM = jr.simple_cell(lambda key, num_inputs: (), lambda params, carry, z: carry + z, 2)


@pytest.mark.parametrize("size", [3e-30, 3e30, 0.0, jnp.inf])
def test_squares_neither_over_nor_underflow(size):
    norms = jr.carry_norms(SUM, (), jnp.full((1, 2), size))
    np.testing.assert_allclose(norms, [np.sqrt(2) * size], rtol=1e-6)


def test_gradient_norms_by_label():
    cell = jr.recurrent(jr.diagonal_rnn(3))
    layer = jr.serial(cell, jr.dense(2))
    gradients = jax.tree.map(jnp.ones_like, layer.init(KEY, 2))
    norms = jax.jit(jr.gradient_norms)(gradients)
    # Eigenvalues 3; kernel 6 and bias 3; the dense layer 6 and 2.
    np.testing.assert_allclose(norms, np.sqrt([20, 3, 9, 8]), rtol=1e-6)
    half = jr.gradient_norms({"kernel": jnp.full(4, 300, jnp.float16)})
    assert half == (600, None, None, None)
