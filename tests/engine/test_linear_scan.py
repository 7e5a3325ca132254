from functools import lru_cache, partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads
from support.compiler import temporary_bytes

from jaxrnn.engine.linear_scan import linear_scan

METHODS = ("sequential", "associative", "chunked", "auto")
B, N = 2, 3


def slow(a, b, h0, mask, reset, initial, reverse=False):
    """Numbers one after another, batch major, from the definition."""
    a, b = np.broadcast_to(a, b.shape), np.asarray(b)
    num_steps = b.shape[1]
    out = np.zeros(b.shape, np.result_type(a, b, h0))
    for row in range(b.shape[0]):
        h = np.array(h0[row], out.dtype)
        for t in reversed(range(num_steps)) if reverse else range(num_steps):
            boundary = t + 1 if reverse else t
            if boundary < num_steps and reset[row, boundary]:
                h = np.array(initial, out.dtype)
            if mask[row, t]:
                h = a[row, t] * h + b[row, t]
            out[row, t] = h
    return out


def data(num_steps, dtype, seed=0):
    keys = jax.random.split(jax.random.key(seed), 6)
    a = 0.9 * jax.random.uniform(keys[0], (B, num_steps, N), jnp.float64, -1, 1)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        a = a * jnp.exp(1j * jax.random.uniform(keys[5], a.shape, jnp.float64))
    b = jax.random.normal(keys[1], (B, num_steps, N), dtype)
    h0 = jax.random.normal(keys[2], (B, N), dtype)
    initial = jax.random.normal(keys[3], (N,), dtype)
    mask = jax.random.bernoulli(keys[4], 0.7, (B, num_steps))
    reset = jax.random.bernoulli(keys[5], 0.3, (B, num_steps))
    return a, b, h0, initial, mask, reset


@lru_cache
def runner(method, num_steps, reverse, lti):
    def run(a, b, h0, initial, mask, reset):
        a = a[:, :1] if lti else a
        return linear_scan(
            a, b, h0, mask=mask, reset=reset, initial=initial, reverse=reverse, method=method
        )

    return jax.jit(run)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_steps", [0, 1, 2, 7, 8])
def test_equals_the_loop(x64, method, num_steps, dtype):
    a, b, h0, initial, mask, reset = data(num_steps, jnp.dtype(dtype))
    for reverse in (False, True):
        h = runner(method, num_steps, reverse, False)(a, b, h0, initial, mask, reset)
        expected = slow(a, b, h0, mask, reset, initial, reverse)
        np.testing.assert_allclose(h, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_steps", [1, 8, 257, 521])
def test_a_fixed_coefficient_and_many_chunks(x64, method, num_steps):
    a, b, h0, initial, *_ = data(num_steps, jnp.float64)
    real, never = np.ones((B, num_steps), bool), np.zeros((B, num_steps), bool)
    fixed = jax.jit(partial(linear_scan, method=method))(a[:, :1], b, h0)
    expected = slow(a[:, :1], b, h0, real, never, initial)
    np.testing.assert_allclose(fixed, expected, rtol=1e-12, atol=1e-13)


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(METHODS[:3]),
    num_steps=st.sampled_from([1, 3, 6]),
    reverse=st.booleans(),
    lti=st.booleans(),
    seed=st.integers(0, 2**16),
    flags=st.lists(st.booleans(), min_size=4 * B * 6, max_size=4 * B * 6),
)
def test_any_mask_and_reset(method, num_steps, reverse, lti, seed, flags):
    with jax.enable_x64(True):
        a, b, h0, initial, *_ = data(num_steps, jnp.float64, seed)
        mask = np.array(flags[: B * num_steps]).reshape(B, num_steps)
        reset = np.array(flags[-B * num_steps :]).reshape(B, num_steps)
        # What is masked is never read.
        a, b = (jnp.where(mask[..., None], leaf, jnp.nan) for leaf in (a, b))
        lti = lti and bool(mask[:, 0].all())
        h = runner(method, num_steps, reverse, lti)(a, b, h0, initial, mask, reset)
        expected = slow(a[:, :1] if lti else a, b, h0, mask, reset, initial, reverse)
        np.testing.assert_allclose(h, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("method", METHODS)
def test_derivatives_equal_those_of_a_plain_scan(x64, method, dtype):
    a, b, h0, initial, mask, reset = data(7, jnp.dtype(dtype))
    weights = jax.random.normal(jax.random.key(9), b.shape)

    def plain(a, b, h0, initial):
        def step(h, inputs):
            a, b, mask, reset = inputs
            h = jnp.where(reset[:, None], initial, h)
            h = jnp.where(mask[:, None], a * h + b, h)
            return h, h

        inputs = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), (a, b, mask, reset))
        return jnp.moveaxis(jax.lax.scan(step, h0, inputs)[1], 0, 1)

    ours = partial(_ours, mask, reset, method)
    point = (a, b, h0, initial)

    def loss(function):
        return lambda *point: jnp.sum(weights * jnp.abs(function(*point)) ** 2)

    for derive in (
        lambda f: jax.grad(loss(f), (0, 1, 2, 3)),
        lambda f: lambda *p: jax.jvp(f, p, jax.tree.map(jnp.cos, p))[1],
        lambda f: lambda *p: jax.jvp(jax.grad(loss(f), (0, 1)), p, jax.tree.map(jnp.cos, p))[1],
    ):
        got, want = jax.jit(derive(ours))(*point), jax.jit(derive(plain))(*point)
        chex.assert_trees_all_close(got, want, rtol=1e-10, atol=1e-12)
    if dtype == "float64":
        check_grads(jax.jit(ours), point, order=2, modes=("fwd", "rev"))


def _ours(mask, reset, method, a, b, h0, initial):
    return linear_scan(a, b, h0, mask=mask, reset=reset, initial=initial, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_hessian_and_jacobians_of_a_short_scan(x64, method):
    a, b = jnp.array([[0.5], [0.3], [0.2]]), jnp.array([[1.0], [2.0], [3.0]])

    def last(a, b):
        return linear_scan(a, b, method=method)[-1, 0]

    hessian = jax.jit(jax.hessian(last, argnums=(0, 1)))(a, b)
    # h₃ = a₃ (a₂ b₁ + b₂) + b₃
    np.testing.assert_allclose(hessian[0][0][2, 0, 1, 0], 1.0, rtol=1e-12)
    np.testing.assert_allclose(hessian[0][1][2, 0, 0, 0], 0.3, rtol=1e-12)
    forward, backward = jax.jacfwd(last)(a, b), jax.jacrev(last)(a, b)
    np.testing.assert_allclose(forward[:, 0], [0.0, 0.2, 2.3], rtol=1e-12)
    np.testing.assert_allclose(backward, forward, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_under_vmap(x64, method):
    a, b, h0, *_ = data(7, jnp.float64)
    direct = linear_scan(a, b, h0, method=method)
    np.testing.assert_allclose(
        jax.vmap(partial(linear_scan, method=method))(a, b, h0), direct, rtol=1e-13
    )
    shared = jax.grad(lambda a: (linear_scan(a, b, h0, method=method) ** 2).sum())
    mapped = jax.grad(
        lambda a: (jax.vmap(partial(linear_scan, method=method))(a, b, h0) ** 2).sum()
    )
    np.testing.assert_allclose(mapped(a), shared(a), rtol=1e-12)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
@pytest.mark.parametrize("method", METHODS)
def test_a_reset_stops_what_is_not_finite(x64, method, bad):
    a, b, h0, initial, mask, _ = data(6, jnp.float64)
    reset = jnp.zeros((B, 6), bool).at[:, 3].set(True)
    clean = linear_scan(a, b, h0, reset=reset, initial=initial, method=method)
    poisoned_b, poisoned_a = b.at[:, 1].set(bad), a.at[:, 2].set(bad)

    def after(a, b, initial):
        return linear_scan(a, b, h0, reset=reset, initial=initial, method=method)[:, 3:]

    for inputs in ((a, poisoned_b), (poisoned_a, b)):
        np.testing.assert_array_equal(after(*inputs, initial), clean[:, 3:])
        gradients = jax.grad(lambda *p: (after(*p) ** 2).sum(), (0, 1, 2))(*inputs, initial)
        expected = jax.grad(lambda *p: (after(*p) ** 2).sum(), (0, 1, 2))(a, b, initial)
        for got, want in zip(gradients[:2], expected[:2], strict=True):
            np.testing.assert_allclose(got[:, 3:], want[:, 3:], rtol=1e-12)
        np.testing.assert_allclose(gradients[2], expected[2], rtol=1e-12)

    def before(a, b):
        return linear_scan(a, b, h0, reset=reset, initial=initial, method=method)[:, :3]

    late = b.at[:, 4].set(bad)
    gradients = jax.grad(
        lambda a: (linear_scan(a, late, h0, reset=reset, method=method) ** 2).sum()
    )(a)
    assert jnp.isfinite(gradients[:, :3]).all()
    assert jnp.isfinite(jax.grad(lambda a: (before(a, late) ** 2).sum())(a)[:, :3]).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_first_coefficient_that_is_nan_reaches_no_later_cotangent(x64, method):
    a, reset = jnp.array([[jnp.nan], [0.5], [0.5]]), jnp.array([0, 0, 1])
    gradient = jax.grad(lambda b: linear_scan(a, b, reset=reset, method=method)[2, 0])
    assert gradient(jnp.ones((3, 1)))[2, 0] == 1


def test_time_on_any_axis(x64):
    a, b, h0, initial, mask, reset = data(7, jnp.float64)
    want = linear_scan(a, b, h0, mask=mask, reset=reset, initial=initial)
    first = [jnp.moveaxis(leaf, 1, 0) for leaf in (a, b, mask, reset)]
    got = linear_scan(*first[:2], h0, mask=first[2], reset=first[3], initial=initial, axis=0)
    np.testing.assert_array_equal(jnp.moveaxis(got, 0, 1), want)


@pytest.mark.parametrize("num_axes", [0, 2])
def test_any_leading_axes(x64, num_axes):
    leading = (2, 2)[:num_axes]
    a, b, h0, initial, mask, reset = (leaf[:1] for leaf in data(7, jnp.float64))
    initial = initial[0]
    flags = {"mask": mask, "reset": reset}
    want = linear_scan(a, b, h0, initial=initial, **flags)[0]
    a, b, h0, mask, reset = (
        jnp.broadcast_to(leaf[0], (*leading, *leaf.shape[1:])) for leaf in (a, b, h0, mask, reset)
    )
    got = linear_scan(a, b, h0, initial=initial, mask=mask, reset=reset)
    np.testing.assert_allclose(got, jnp.broadcast_to(want, got.shape), rtol=1e-13)


def test_a_gradient_stores_the_coefficients_and_the_states_alone():
    num_steps, width = 128, 64

    def temporary(function):
        of = jax.ShapeDtypeStruct((num_steps, width), jnp.float32)
        loss = jax.grad(lambda a, b: (function(a, b) ** 2).sum(), (0, 1))
        return temporary_bytes(loss, of, of)

    def by_autodiff(a, b):
        def compose(before, after):
            return after[0] * before[0], after[0] * before[1] + after[1]

        return jax.lax.associative_scan(compose, (a, b))[1]

    states = num_steps * width * 4
    assert temporary(partial(linear_scan, method="sequential")) < 3.5 * states
    assert temporary(partial(linear_scan, method="associative")) < 0.75 * temporary(by_autodiff)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "fast"}, ValueError, "method must be one of"),
        ({"a": jnp.ones((5, 4))}, ValueError, "a must broadcast to the shape"),
        ({"a": jnp.ones((2, 3))}, ValueError, "a must broadcast to the shape"),
        ({"h0": jnp.ones(4)}, ValueError, "h0 must broadcast"),
        ({"initial": jnp.ones((2, 3))}, ValueError, "initial must broadcast"),
        ({"mask": jnp.ones(4)}, ValueError, "mask"),
        ({"reset": jnp.ones(())}, ValueError, "reset must cover the axes of b up to time"),
        ({"axis": 2}, ValueError, "axis must be an axis of b"),
    ],
)
def test_errors_name_the_argument(options, error, message):
    with pytest.raises(error, match=message):
        linear_scan(**({"a": jnp.ones((5, 3)), "b": jnp.ones((5, 3))} | options))


@pytest.mark.parametrize("reverse", [False, True])
def test_every_reset_may_have_an_initial_state_of_its_own(reverse):
    """The flag and the state of step t belong to the boundary before it, from either end."""
    a, b = jnp.full((5, 1), 0.5), jnp.zeros((5, 1))
    reset = jnp.array([True, False, True, False, False])
    initial = jnp.array([[8.0], [jnp.nan], [16.0], [jnp.nan], [jnp.nan]])
    h = linear_scan(a, b, h0=jnp.array([32.0]), initial=initial, reset=reset, reverse=reverse)[:, 0]
    assert h.tolist() == ([4, 8, 4, 8, 16] if reverse else [4, 2, 8, 4, 2])
