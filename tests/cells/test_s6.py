import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_cell

D, N, R, T = 3, 2, 2, 11


def oracle(params, xs, discretization):
    """One row, feature after feature and state after state."""
    params = jax.tree.map(np.asarray, params)
    num_features, state_size = params.a_log.shape
    rank = len(params.dt_kernel)
    h = np.zeros((num_features, state_size))
    outputs = []
    for x in np.asarray(xs):
        projected = x @ params.kernel
        dt = np.log1p(np.exp(projected[:rank] @ params.dt_kernel + params.dt_bias))
        b, c = projected[rank : rank + state_size], projected[rank + state_size :]
        y = params.skip * x
        for d in range(num_features):
            for n in range(state_size):
                a = -np.exp(params.a_log[d, n])
                hold = (np.exp(dt[d] * a) - 1) / a if discretization == "zoh" else dt[d]
                h[d, n] = np.exp(dt[d] * a) * h[d, n] + hold * b[n] * x[d]
                y[d] += c[n] * h[d, n]
        outputs.append(y)
    return np.array(outputs), h


def wide_steps(params):
    """Parameters with Δ around 1, where Euler and zero-order hold are far apart."""
    return params._replace(dt_bias=params.dt_bias + 3)


@pytest.mark.parametrize("discretization", ["euler", "zoh"])
def test_against_a_loop(x64, discretization):
    cell = jr.s6(N, dt_rank=R, discretization=discretization, param_dtype=jnp.float64)
    params = wide_steps(cell.init(jax.random.key(0), D))
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    want, h = oracle(params, xs, discretization)
    for evaluator in (jr.sequential(), jr.associative(), jr.chunked(4, jr.associative())):
        rollout = jr.unroll(cell, params, xs, evaluator=evaluator)
        np.testing.assert_allclose(rollout.outputs, want, rtol=1e-10)
        np.testing.assert_allclose(rollout.carry.h, h, rtol=1e-10)


@pytest.mark.parametrize("discretization", ["euler", "zoh"])
def test_theorem_1_of_the_paper_holds_for_zero_order_hold_alone(x64, discretization):
    """N = 1, A = -1, B = C = 1: the gate h = (1 - g) h + g x with g = σ(s)."""
    cell = jr.s6(1, dt_rank=1, discretization=discretization, param_dtype=jnp.float64)
    # x = (signal, s, 1): Δ of the signal reads s, B and C read the constant.
    params = jr.cells.S6Params(
        kernel=jnp.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 1]]),
        dt_kernel=jnp.array([[1.0, 0, 0]]),
        dt_bias=jnp.zeros(3),
        a_log=jnp.zeros((3, 1)),
        skip=jnp.zeros(3),
    )
    signal, s = np.random.default_rng(0).normal(size=(2, T))
    xs = jnp.stack([signal, s, np.ones(T)], axis=1)
    got = jr.unroll(cell, params, xs).outputs[:, 0]
    h, want = 0.0, []
    for x, g in zip(signal, 1 / (1 + np.exp(-s)), strict=True):
        h = (1 - g) * h + g * x
        want.append(h)
    if discretization == "zoh":
        np.testing.assert_allclose(got, want, rtol=1e-12)
    else:
        assert np.abs(got - np.array(want)).max() > 0.1


def test_the_start(x64):
    params = jr.s6(4, param_dtype=jnp.float64).init(jax.random.key(0), 1600)
    np.testing.assert_allclose(-jnp.exp(params.a_log[7]), [-1, -2, -3, -4])
    dt = jax.nn.softplus(params.dt_bias)
    assert 1e-3 <= dt.min() < 1.1e-3 and 0.09 < dt.max() <= 0.1
    assert abs(jnp.log10(dt).mean() + 2) < 0.05
    assert params.dt_kernel.shape == (100, 1600)
    assert 0.099 < jnp.abs(params.dt_kernel).max() <= 0.1


@pytest.mark.parametrize("discretization", ["zoh", pytest.param("euler", marks=pytest.mark.slow)])
def test_the_laws(discretization):
    evaluators = (jr.associative(), jr.chunked(3, jr.associative()), jr.newton())
    cell = jr.s6(N, dt_rank=R, discretization=discretization)
    check_cell(cell, evaluators=evaluators)


@pytest.mark.parametrize("discretization", ["euler", "zoh"])
@pytest.mark.parametrize("scale", [1e-30, 1e4])
def test_steps_near_zero_and_without_end(discretization, scale):
    """Δ from exp(-10000) to 10000: no value and no gradient is NaN."""
    cell = jr.s6(N, dt_rank=R, discretization=discretization)
    params = cell.init(jax.random.key(0), D)
    xs = (scale * jax.random.normal(jax.random.key(1), (T, D))).astype(jnp.bfloat16)

    def loss(params, xs):
        rollout = jr.unroll(cell, params, xs)
        return rollout.outputs.astype(jnp.float32).sum(), rollout

    result = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, xs)
    (_, rollout), _ = result
    assert rollout.carry.h.dtype == jnp.float32
    assert all(jnp.isfinite(leaf.astype(jnp.float32)).all() for leaf in jax.tree.leaves(result))


def test_errors():
    with pytest.raises(ValueError, match="state_size must be at least 1"):
        jr.s6(0)
    with pytest.raises(ValueError, match="dt_rank must be at least 1"):
        jr.s6(dt_rank=0)
    with pytest.raises(ValueError, match="discretization must be one of"):
        jr.s6(discretization="bilinear")
