import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrnn.engine.evaluators.newton import dense_scan

T, BATCH, N = 7, 2, 3


def data(num_steps=T):
    rng = np.random.default_rng(0)
    fresh = rng.random((num_steps, BATCH)) < 0.3
    fresh[:1] = True
    a = 0.5 * rng.standard_normal((num_steps, BATCH, N, N))
    return a, rng.standard_normal((num_steps, BATCH, N)), fresh


def loop(a, b, fresh):
    hs = np.zeros_like(b)
    for row in range(BATCH):
        for t in range(len(b)):
            before = 0 if fresh[t, row] else a[t, row] @ hs[t - 1, row]
            hs[t, row] = before + b[t, row]
    return hs


WAYS = [dense_scan._sequential, dense_scan._associative]


def small(solve):
    """A function of small matrices side by side, as one of matrices in the last axes."""

    def call(a, b, fresh):
        a, b = jnp.asarray(a)[..., None], jnp.asarray(b)[..., None]
        return solve(dense_scan.SMALL, a, b, fresh)[..., 0]

    return call


def dense(solve):
    return functools.partial(solve, dense_scan.DENSE)


@pytest.mark.parametrize("layout", [dense, small])
@pytest.mark.parametrize("solve", WAYS)
@pytest.mark.parametrize("num_steps", [1, T])
def test_both_ways_are_the_loop(x64, solve, num_steps, layout):
    a, b, fresh = data(num_steps)
    a[fresh] = np.nan
    want = loop(np.nan_to_num(a), b, fresh)
    np.testing.assert_allclose(jax.jit(layout(solve))(a, b, fresh), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("solve", "layout"),
    [(WAYS[0], dense), (WAYS[1], dense), (WAYS[0], small)],
)
def test_its_derivative_is_that_of_the_loop(x64, solve, layout, monkeypatch):
    monkeypatch.setattr(dense_scan, "_solve", solve)
    a, b, fresh = data()
    weights = np.cos(np.arange(b.size)).reshape(b.shape)
    scan = layout(lambda products, a, b, fresh: dense_scan.dense_scan(a, b, fresh, products))

    def ours(b):
        return jnp.sum(weights * scan(a, b, fresh))

    # The map is linear in b: one column of it for each entry.
    columns = [loop(a, unit.reshape(b.shape), fresh) for unit in np.eye(b.size)]
    want = np.array([np.sum(weights * column) for column in columns]).reshape(b.shape)
    np.testing.assert_allclose(jax.jit(jax.grad(ours))(b), want, rtol=1e-11, atol=1e-12)
    tangent = jax.jvp(lambda b: scan(a, b, fresh), (b,), (weights,))[1]
    np.testing.assert_allclose(tangent, loop(a, weights, fresh), rtol=1e-11, atol=1e-12)
