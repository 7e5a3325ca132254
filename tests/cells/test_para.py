"""The cells of ParaRNN against a loop over the paper's equations (3.1) with diagonal A and C."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, T = 3, 5, 7


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def gru_loop(params, xs):
    h, hs = np.zeros(H), []
    (Br, Bz, Bc), (ar, az, ac), (br, bz, bc) = (np.split(leaf, 3, axis=-1) for leaf in params)
    for x in xs:
        # In the paper z admits the new h, in ours it keeps the old one.
        z = 1 - sigmoid(az * h + x @ Bz + bz)
        r = sigmoid(ar * h + x @ Br + br)
        c = np.tanh(ac * (h * r) + x @ Bc + bc)
        h = (1 - z) * h + z * c
        hs.append(h)
    return np.stack(hs)


def lstm_loop(params, xs):
    h, c, hs = np.zeros(H), np.zeros(H), []
    (Bf, Bz, Bo), (af, az, ao), (bf, bz, bo) = (np.split(leaf, 3, axis=-1) for leaf in params[:3])
    cf, co = np.split(params[3], 2)
    for x in xs:
        f = sigmoid(af * h + x @ Bf + cf * c + bf)
        z = np.tanh(az * h + x @ Bz + bz)
        c = f * c + (1 - f) * z
        o = sigmoid(ao * h + x @ Bo + co * c + bo)
        h = o * np.tanh(c)
        hs.append(h)
    return np.stack(hs)


@pytest.mark.parametrize(("factory", "loop"), [(jr.para_gru, gru_loop), (jr.para_lstm, lstm_loop)])
def test_against_the_loop(x64, factory, loop):
    cell = factory(H, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)._replace(bias=jnp.linspace(-1.0, 1.0, 3 * H))
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    want = loop(jax.tree.map(np.asarray, params), np.asarray(xs))
    for evaluator in (jr.sequential(), jr.newton()):
        got = jr.unroll(cell, params, xs, evaluator=evaluator).outputs
        np.testing.assert_allclose(got, want, rtol=1e-10)


def test_initial_values():
    params = jr.para_lstm(400).init(jax.random.key(0), 100)
    assert sum(leaf.size for leaf in params) == 3 * 100 * 400 + 8 * 400
    np.testing.assert_allclose(jnp.std(params.recurrent_kernel), 1 / 20, rtol=0.1)
    np.testing.assert_allclose(jnp.std(params.kernel), (2 / 100) ** 0.5, rtol=0.1)
    assert not params.bias.any()
    count = sum(leaf.size for leaf in jr.para_gru(5).init(jax.random.key(0), 3))
    assert count == 3 * (3 * 5 + 2 * 5)
