import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_cell

D, H, T = 3, 4, 7


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def made():
    cell = jr.gru_d(H, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    leaves, tree = jax.tree.flatten(params)
    generator = np.random.default_rng(1)
    moved = [leaf + 0.5 * generator.standard_normal(leaf.shape) for leaf in leaves]
    return cell, tree.unflatten(moved)


def observations():
    generator = np.random.default_rng(0)
    observed = generator.random((T, D)) < 0.5
    times = np.concatenate([[0], generator.uniform(0.1, 2, T - 1)])
    return generator.standard_normal((T, D)), observed, times


def of_the_paper(params, xs, observed, dts):
    """Equations (3) and (8) to (14) of Che et al., where z admits the new value."""
    p = jax.tree.map(np.asarray, params)
    w_r, w_z, w = np.split(p.kernel, 3, 1)
    v_r, v_z, v = np.split(p.observed_kernel, 3, 1)
    u_r, u_z, u = np.split(p.recurrent_kernel, 3, 1)
    b_r, b_z, b = np.split(p.bias, 3)
    w_z, v_z, u_z, b_z = -w_z, -v_z, -u_z, -b_z
    h, last, delta, ys = np.zeros(H), p.mean, np.zeros(D), []
    for t, (x, m) in enumerate(zip(xs, observed, strict=True)):
        if t > 0:
            delta = np.where(observed[t - 1], 0, delta) + dts[t]
        gamma_x = np.exp(-np.maximum(0, p.input_decay_scale * delta + p.input_decay_bias))
        gamma_h = np.exp(-np.maximum(0, delta @ p.decay_kernel + p.decay_bias))
        x_hat = np.where(m, x, gamma_x * last + (1 - gamma_x) * p.mean)
        last = np.where(m, x, last)
        h = gamma_h * h
        r = sigmoid(x_hat @ w_r + h @ u_r + m @ v_r + b_r)
        z = sigmoid(x_hat @ w_z + h @ u_z + m @ v_z + b_z)
        new = np.tanh(x_hat @ w + (r * h) @ u + m @ v + b)
        h = (1 - z) * h + z * new
        ys.append(h)
    return np.array(ys)


def test_it_is_the_recursion_of_the_paper(x64):
    cell, params = made()
    xs, observed, dts = observations()
    assert 0 < observed.sum() < observed.size
    want = of_the_paper(params, xs, observed, dts)
    for flags in (observed, observed.astype(int)):
        got = jr.unroll(cell, params, jr.Observations(xs, flags, dts)).outputs
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    seen = jr.Observations(xs, observed, dts)
    for evaluator in (jr.newton(), jr.chunked(3)):
        got = jr.unroll(cell, params, seen, evaluator=evaluator).outputs
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)


def test_what_is_missing_reaches_nothing(x64):
    cell, params = made()
    xs, observed, dts = observations()

    @jax.jit
    def gradients(params, xs, dts):
        def loss(params, xs, dts):
            rollout = jr.unroll(cell, params, jr.Observations(xs, observed, dts))
            return (rollout.outputs**2).sum() + rollout.carry.last.sum()

        return jax.value_and_grad(loss, argnums=(0, 1, 2))(params, xs, dts)

    got = gradients(params, np.where(observed, xs, np.nan), dts)
    jax.tree.map(np.testing.assert_array_equal, got, gradients(params, xs, dts))
    of_xs, of_dts = got[1][1:]
    assert np.array_equal(of_xs != 0, observed) and np.isfinite(of_dts).all()


def test_at_the_start_the_last_value_is_held(x64):
    cell = jr.gru_d(H, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    xs, observed, dts = observations()
    rollout = jr.unroll(cell, params, jr.Observations(xs, observed, dts))
    assert (np.asarray(rollout.carry.last)[observed[-1]] == xs[-1][observed[-1]]).all()
    # Half of a derivative passes through the kink, so the decays are trained.
    gradient = jax.grad(
        lambda params: jr.unroll(cell, params, jr.Observations(xs, observed, dts)).outputs.sum()
    )(params)
    assert gradient.decay_kernel.any()


def test_the_laws():
    def make_xs(key, leading):
        keys = jax.random.split(key, 3)
        return jr.Observations(
            jax.random.normal(keys[0], (*leading, D)),
            jax.random.bernoulli(keys[1], 0.6, (*leading, D)),
            jax.random.uniform(keys[2], leading, minval=0.1, maxval=2.0),
        )

    check_cell(jr.gru_d(2), make_xs=make_xs)


def test_wrong_inputs_raise():
    cell = jr.gru_d(2)
    params = cell.init(jax.random.key(0), D)
    x, flags, dt = jnp.ones((T, D)), jnp.ones((T, D), bool), jnp.ones(T)
    with pytest.raises(TypeError, match="^xs must have the structure .*Observations"):
        jr.unroll(cell, params, (x, flags, dt))
    with pytest.raises(ValueError, match="xs must have the width 3"):
        jr.unroll(cell, params, jr.Observations(x[:, :2], flags, dt))
    with pytest.raises(ValueError, match="xs.observed must have the shape of xs.x"):
        jr.unroll(cell, params, jr.Observations(x, flags[:, :2], dt))
    with pytest.raises(TypeError, match="xs.observed must be bool or int"):
        jr.unroll(cell, params, jr.Observations(x, x, dt))
    with pytest.raises(TypeError, match="must have a Split"):
        jr.recurrent_dropout(cell, 0.1)
