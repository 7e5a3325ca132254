import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from jaxrnn.testing import check_cell

D, H, T = 3, 5, 7


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def loop(params, xs, h):
    """One row, from equations (6) of Zhou et al."""
    Wf, Wh = np.split(np.asarray(params.kernel), 2, axis=1)
    Uf, Uh = np.split(np.asarray(params.recurrent_kernel), 2, axis=1)
    bf, bh = np.split(np.asarray(params.bias), 2)
    hs = []
    for x in np.asarray(xs):
        f = sigmoid(np.concatenate([h, x]) @ np.concatenate([Uf, Wf]) + bf)
        short_term = np.tanh(np.concatenate([f * h, x]) @ np.concatenate([Uh, Wh]) + bh)
        h = (1 - f) * h + f * short_term
        hs.append(h)
    return np.stack(hs)


def test_one_unit_with_open_and_closed_gates():
    # f open: h is the candidate, which sees the old h; f closed: h stays.
    def run(f, h):
        params = jr.cells.MGUParams(jnp.zeros((1, 2)), jnp.array([[0.0, 1.0]]), jnp.array([f, 0.5]))
        return jr.step(jr.mgu(1), params, jr.cells.MGUCarry(jnp.array([h])), jnp.ones(1))[1][0]

    np.testing.assert_allclose(run(50.0, 0.25), np.tanh(0.75), rtol=1e-6)
    np.testing.assert_allclose(run(-50.0, 0.25), 0.25, rtol=1e-6)
    np.testing.assert_allclose(run(0.0, 0.25), (0.25 + np.tanh(0.625)) / 2, rtol=1e-6)


def test_against_the_loop(x64):
    cell = jr.mgu(H, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)._replace(bias=jnp.linspace(-1.0, 1.0, 2 * H))
    xs = jax.random.normal(jax.random.key(1), (2, T, D), jnp.float64)
    h0 = jax.random.normal(jax.random.key(2), (2, H), jnp.float64)
    rollout = jr.unroll(cell, params, xs, carry=jr.cells.MGUCarry(h0))
    for row in range(2):
        hs = loop(params, xs[row], h0[row])
        np.testing.assert_allclose(rollout.outputs[row], hs, rtol=1e-10)
        np.testing.assert_allclose(rollout.carry.h[row], hs[-1], rtol=1e-10)


def test_parameter_count_and_bias():
    params = jr.mgu(H).init(jax.random.key(0), D)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 2 * (D * H + H * H + H)
    assert not params.bias.any()


def test_it_is_the_gru_whose_gates_are_tied(x64):
    # r = f and z = 1 - f: the parameters of z are those of f negated.
    params = jr.mgu(H, param_dtype=jnp.float64).init(jax.random.key(0), D)
    tied = jr.cells.GRUParams(
        *(
            jnp.concatenate([f, -f, n], axis=-1)
            for f, n in (jnp.split(leaf, 2, axis=-1) for leaf in params)
        )
    )
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    want = jr.unroll(jr.gru(H, reset_after=False), tied, xs).outputs
    np.testing.assert_allclose(jr.unroll(jr.mgu(H), params, xs).outputs, want, rtol=1e-10)


def test_laws():
    check_cell(jr.mgu(H))
