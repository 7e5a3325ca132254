import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr


def norm(xs, factor, epsilon):
    return xs / np.sqrt((xs**2).mean(-1, keepdims=True) + epsilon) * factor


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_it_is_the_formula(x64, offset):
    generator = np.random.default_rng(0)
    xs = generator.normal(size=(2, 5, 7)) + 3
    params = jr.layers.RMSNormParams(generator.normal(size=7))
    got = jr.unroll(jr.rms_norm(0.1, scale_offset=offset), params, xs).outputs
    np.testing.assert_allclose(got, norm(xs, offset + params.scale, 0.1), rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_it_starts_as_the_plain_norm(offset):
    layer = jr.rms_norm(scale_offset=offset, param_dtype=jnp.bfloat16)
    params = layer.init(jax.random.key(0), 3)
    assert params.scale.dtype == jnp.bfloat16
    np.testing.assert_array_equal(params.scale, np.full(3, 1 - offset))


def test_zeros_have_finite_values_and_gradients():
    layer = jr.rms_norm(1e-4)
    params = layer.init(jax.random.key(0), 4)

    def loss(params, xs):
        return jr.unroll(layer, params, xs).outputs.sum()

    value, (_, gradient) = jax.value_and_grad(loss, (0, 1))(params, jnp.zeros((3, 4)))
    assert value == 0
    np.testing.assert_allclose(gradient, np.full((3, 4), 100.0), rtol=1e-6)


def test_statistics_of_bfloat16_inputs_run_in_float32():
    layer = jr.rms_norm(param_dtype=jnp.bfloat16)
    params = layer.init(jax.random.key(0), 300)
    xs = 3 + jax.random.normal(jax.random.key(1), (4, 300), jnp.bfloat16)
    outputs = jr.unroll(layer, params, xs).outputs
    wide = jr.unroll(layer, params, xs.astype(jnp.float32)).outputs
    np.testing.assert_array_equal(outputs, wide.astype(jnp.bfloat16))
    np.testing.assert_allclose(wide, norm(np.asarray(xs, np.float64), 1, 1e-6), rtol=1e-5)


def soft_cap(limit, logits):
    return limit * jnp.tanh(logits / limit)


def test_a_language_model_with_a_tied_readout_and_a_soft_cap():
    """The readout of Griffin: tied to the table, without a bias, capped by a `lift` after it."""
    layers = jr.residual(jr.serial(jr.rms_norm(), jr.gru(4))), jr.rms_norm()
    tied = jr.tied_embed(4, *layers, use_bias=False)
    model = jr.serial(tied, jr.lift(functools.partial(soft_cap, 0.5)))
    params = model.init(jax.random.key(0), 6)
    tokens = jnp.array([[3, 1, 5, 0]])
    vectors = jr.unroll(jr.serial(*layers), params[0].layers, params[0].table[tokens]).outputs
    got = jr.unroll(model, params, tokens).outputs
    np.testing.assert_allclose(got, 0.5 * np.tanh(vectors @ params[0].table.T / 0.5), rtol=2e-5)
    assert jnp.abs(got).max() < 0.5


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="epsilon must be above 0, got 0"):
        jr.rms_norm(0)
    with pytest.raises(ValueError, match="scale_offset must be finite and not below 0, got -1"):
        jr.rms_norm(scale_offset=-1)
    with pytest.raises(TypeError, match="scale_offset must be a float, got True"):
        jr.rms_norm(scale_offset=True)
    layer = jr.rms_norm()
    params = layer.init(jax.random.key(0), 4)
    with pytest.raises(ValueError, match=r"params.scale must have the shape \(1,\) .*got \(4,\)"):
        jr.unroll(layer, params, jnp.ones((5, 1)))
