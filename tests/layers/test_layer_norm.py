import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr


def norm(xs, scale, offset, epsilon):
    centred = xs - xs.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * scale + offset


def test_it_is_the_formula(x64):
    generator = np.random.default_rng(0)
    xs = generator.normal(size=(2, 5, 7))
    params = jr.layers.LayerNormParams(generator.normal(size=7), generator.normal(size=7))
    got = jr.unroll(jr.layer_norm(epsilon=0.1), params, xs).outputs
    np.testing.assert_allclose(got, norm(xs, *params, 0.1), rtol=1e-12, atol=1e-12)


def test_it_starts_as_the_plain_norm():
    params = jr.layer_norm(param_dtype=jnp.bfloat16).init(jax.random.key(0), 3)
    assert params.scale.dtype == params.offset.dtype == jnp.bfloat16
    np.testing.assert_array_equal(params.scale, np.ones(3))
    np.testing.assert_array_equal(params.offset, np.zeros(3))


@pytest.mark.parametrize("value", [0.0, 1e4])
def test_equal_features_have_finite_values_and_gradients(value):
    layer = jr.layer_norm()
    params = layer.init(jax.random.key(0), 4)
    weights = jnp.array([1.0, -2.0, 0.5, 3.0])

    def loss(params, xs):
        return (jr.unroll(layer, params, xs).outputs * weights).sum()

    xs = jnp.full((3, 4), value)
    np.testing.assert_array_equal(jr.unroll(layer, params, xs).outputs, np.zeros((3, 4)))
    _, gradient = jax.grad(loss, (0, 1))(params, xs)
    # The derivative at equal features: (w - mean(w)) / √ε.
    want = (weights - weights.mean()) / np.sqrt(1e-5)
    np.testing.assert_allclose(gradient, np.tile(want, (3, 1)), rtol=1e-5)


def test_the_variance_does_not_cancel():
    """At a mean of 4096 and a spread of 1, E[x²] - μ² has no digit left in float32."""
    xs = np.float32(4096) + np.linspace(-1, 1, 8, dtype=np.float32)
    want = norm(xs.astype(np.float64), 1, 0, 1e-5)
    layer = jr.layer_norm()
    got = jr.unroll(layer, layer.init(jax.random.key(0), 8), xs[None]).outputs[0]
    # The mean itself is rounded by up to half a unit in the last place of 4096, 2.4e-4.
    np.testing.assert_allclose(got, want, atol=3e-4)
    cancelled = (xs**2).mean() - xs.mean() ** 2
    assert abs(cancelled - xs.astype(np.float64).var()) > 0.1


def test_statistics_of_bfloat16_inputs_run_in_float32():
    layer = jr.layer_norm(param_dtype=jnp.bfloat16)
    params = layer.init(jax.random.key(0), 300)
    xs = 3 + jax.random.normal(jax.random.key(1), (4, 300), jnp.bfloat16)
    outputs = jr.unroll(layer, params, xs).outputs
    wide = jr.unroll(layer, params, xs.astype(jnp.float32)).outputs
    np.testing.assert_array_equal(outputs, wide.astype(jnp.bfloat16))
    exact = norm(np.asarray(xs, np.float64), 1, 0, 1e-5)
    np.testing.assert_allclose(wide, exact, rtol=1e-5, atol=1e-5)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="epsilon must be above 0, got 0"):
        jr.layer_norm(0)
    with pytest.raises(ValueError, match="epsilon must be above 0, got nan"):
        jr.layer_norm(float("nan"))
    layer = jr.layer_norm()
    params = layer.init(jax.random.key(0), 4)
    with pytest.raises(ValueError, match=r"params.scale must have the shape \(1,\) .*got \(4,\)"):
        jr.unroll(layer, params, jnp.ones((5, 1)))
