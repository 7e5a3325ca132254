import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_cell

D, H, T = 3, 5, 7
both_forms = pytest.mark.parametrize("reset_after", [True, False])


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def loop(params, xs, h, reset_after, of_gates=sigmoid, of_n=np.tanh):
    """One row, from the equations."""
    Wr, Wz, Wn = np.split(np.asarray(params.kernel), 3, axis=1)
    Ur, Uz, Un = np.split(np.asarray(params.recurrent_kernel), 3, axis=1)
    br, bz, bn = np.split(np.asarray(params.bias), 3)
    hs = []
    for x in np.asarray(xs):
        r = of_gates(x @ Wr + h @ Ur + br)
        z = of_gates(x @ Wz + h @ Uz + bz)
        if reset_after:
            n = of_n(x @ Wn + bn + r * (h @ Un + params.recurrent_bias))
        else:
            n = of_n(x @ Wn + bn + (r * h) @ Un)
        h = (1 - z) * n + z * h
        hs.append(h)
    return np.stack(hs)


def random_params(reset_after):
    cell = jr.gru(H, reset_after=reset_after, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    params = params._replace(bias=jnp.linspace(-1.0, 1.0, 3 * H))
    if reset_after:
        params = params._replace(recurrent_bias=jnp.linspace(1.0, -0.5, H))
    return cell, params


@both_forms
def test_one_unit_with_open_and_closed_gates(reset_after):
    # z closed: h is the candidate, which sees the old h through r; z open: h stays.
    def run(r, z, h):
        recurrent_bias = jnp.zeros(1) if reset_after else None
        bias = jnp.array([r, z, 0.5])
        params = jr.cells.GRUParams(
            jnp.zeros((1, 3)), jnp.array([[0.0, 0.0, 1.0]]), bias, recurrent_bias
        )
        cell = jr.gru(1, reset_after=reset_after)
        return jr.step(cell, params, jr.cells.GRUCarry(jnp.array([h])), jnp.ones(1))[1][0]

    np.testing.assert_allclose(run(50.0, -50.0, 0.25), np.tanh(0.75), rtol=1e-6)
    np.testing.assert_allclose(run(-50.0, -50.0, 0.25), np.tanh(0.5), rtol=1e-6)
    np.testing.assert_allclose(run(50.0, 50.0, 0.25), 0.25, rtol=1e-6)
    np.testing.assert_allclose(run(0.0, 0.0, 0.25), (np.tanh(0.625) + 0.25) / 2, rtol=1e-6)


@both_forms
def test_against_the_loop(x64, reset_after):
    cell, params = random_params(reset_after)
    xs = jax.random.normal(jax.random.key(1), (2, T, D), jnp.float64)
    h0 = jax.random.normal(jax.random.key(2), (2, H), jnp.float64)
    rollout = jr.unroll(cell, params, xs, carry=jr.cells.GRUCarry(h0))
    for row in range(2):
        hs = loop(params, xs[row], h0[row], reset_after)
        np.testing.assert_allclose(rollout.outputs[row], hs, rtol=1e-10)
        np.testing.assert_allclose(rollout.carry.h[row], hs[-1], rtol=1e-10)


def hard_sigmoid(u):
    return np.clip(0.2 * u + 0.5, 0, 1)


@both_forms
def test_other_activations_and_a_bound(x64, reset_after):
    _, params = random_params(reset_after)
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    given = {"activation": jnp.sin, "gate_activation": jr.cells.hard_sigmoid, "clip": 0.4}
    cell = jr.gru(H, reset_after=reset_after, **given)
    expected = loop(
        params, xs, np.zeros(H), reset_after,
        of_gates=lambda u: hard_sigmoid(np.clip(u, -0.4, 0.4)),
        of_n=lambda u: np.sin(np.clip(u, -0.4, 0.4)),
    )  # fmt: skip
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, expected, rtol=1e-10)


def test_wrong_activations_and_bounds_raise():
    with pytest.raises(TypeError, match="gate_activation must be a function, got 'hard_sigmoid'"):
        jr.gru(4, gate_activation="hard_sigmoid")
    with pytest.raises(TypeError, match="activation must be a function, got None"):
        jr.lstm(4, activation=None)
    with pytest.raises(TypeError, match="output_activation must be a function, got 1"):
        jr.lstm(4, output_activation=1)
    for make in (jr.elman, jr.lstm, jr.gru):
        with pytest.raises(ValueError, match="clip must be above 0, got 0"):
            make(4, clip=0)
        with pytest.raises(TypeError, match="clip must be a float, got True"):
            make(4, clip=True)


def test_the_forms_are_two_functions(x64):
    _, params = random_params(reset_after=True)
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    no_bias = params._replace(recurrent_bias=jnp.zeros(H))
    after = jr.unroll(jr.gru(H), no_bias, xs).outputs
    before = jr.unroll(
        jr.gru(H, reset_after=False), params._replace(recurrent_bias=None), xs
    ).outputs
    # From h = 0 the first step is the same.
    np.testing.assert_allclose(after[0], before[0], rtol=1e-12)
    assert jnp.abs(after - before).max() > 1e-2


@both_forms
def test_parameter_counts_and_biases(reset_after):
    params = jr.gru(H, reset_after=reset_after).init(jax.random.key(0), D)
    count = 3 * (D * H + H * H + H) + (H if reset_after else 0)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count
    assert not params.bias.any()
    assert (params.recurrent_bias is None) != reset_after


@both_forms
def test_a_state_stays_between_minus_one_and_one(reset_after):
    cell = jr.gru(H, reset_after=reset_after)
    params = jax.tree.map(lambda leaf: 30 * leaf, cell.init(jax.random.key(0), D))
    xs = 100 * jax.random.normal(jax.random.key(1), (T, D))
    assert jnp.abs(jr.unroll(cell, params, xs).outputs).max() <= 1


@both_forms
def test_laws(reset_after):
    check_cell(jr.gru(H, reset_after=reset_after))
