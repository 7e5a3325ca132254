import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, T = 3, 5, 20


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def oracle(params, xs):
    kernels, biases = np.split(params.kernel, 3, axis=1), np.split(params.bias, 3)
    h, hs = np.zeros(H), []
    for x in np.asarray(xs):
        i, f = (sigmoid(x @ kernels[k] + biases[k]) for k in range(2))
        h = f / (f + i) * h + i / (f + i) * (x @ kernels[2] + biases[2])
        hs.append(h)
    return np.array(hs)


def test_against_the_equations(x64):
    cell = jr.min_lstm(H, forget_bias=2.0, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    np.testing.assert_array_equal(params.bias, np.repeat([0.0, 2.0, 0.0], H))
    params = params._replace(bias=params.bias + jax.random.normal(jax.random.key(1), (3 * H,)))
    xs = jax.random.normal(jax.random.key(2), (T, D))
    want = oracle(params, xs)
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, want, rtol=1e-11)


def test_only_the_ratio_of_the_gates_matters(x64):
    # x holds the logits of the gates and the candidate; c scales both gates.
    cell = jr.min_lstm(1, param_dtype=jnp.float64)
    params = jr.cells.MinLSTMParams(jnp.eye(3), jnp.zeros(3))
    gates = np.random.default_rng(0).uniform(0.05, 0.9, (T, 2))
    candidates = np.random.default_rng(1).standard_normal((T, 1))

    def run(gates):
        xs = np.concatenate([np.log(gates) - np.log1p(-gates), candidates], axis=1)
        return jr.unroll(cell, params, xs).outputs

    want = run(gates)
    for c in (1e-3, 0.5, 1.1):
        np.testing.assert_allclose(run(c * gates), want, rtol=1e-11)
    assert np.abs(run(gates**2) - want).max() > 1e-2


def test_gates_that_underflow_still_have_a_ratio():
    # σ(-200) is 0 in float32, and 0 / (0 + 0) would be NaN; the ratio is e : 1.
    cell = jr.min_lstm(1)
    params = jr.cells.MinLSTMParams(jnp.eye(3), jnp.zeros(3))
    xs = jnp.array([[-200.0, -199.0, 1.0]])
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, [[1 / (1 + np.e)]], rtol=1e-6)


def test_wrong_arguments_raise():
    with pytest.raises(TypeError, match="activation must be a function"):
        jr.min_lstm(3, "tanh")
    with pytest.raises(ValueError, match="num_units must be at least 1"):
        jr.min_lstm(0)
