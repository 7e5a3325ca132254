import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr


def test_worked_numbers():
    params = jr.layers.DenseParams(jnp.array([[1.0, -1.0], [2.0, 0.0]]), jnp.array([0.5, -0.5]))
    xs = jnp.array([[1.0, 1.0], [2.0, 3.0]])
    want = np.array([[3.5, -1.5], [8.5, -2.5]])
    np.testing.assert_array_equal(jr.unroll(jr.dense(2), params, xs).outputs, want)
    layer = jr.dense(2, jax.nn.relu)
    np.testing.assert_array_equal(jr.unroll(layer, params, xs).outputs, want.clip(0))
    params = params._replace(bias=None)
    np.testing.assert_array_equal(
        jr.unroll(jr.dense(2, use_bias=False), params, xs).outputs, want - np.array([0.5, -0.5])
    )


def test_init_has_the_shapes_dtypes_and_scale_it_says():
    params = jr.dense(50, param_dtype=jnp.bfloat16).init(jax.random.key(0), 400)
    assert params.kernel.shape == (400, 50) and params.kernel.dtype == jnp.bfloat16
    assert params.bias.shape == (50,) and not params.bias.any()
    deviation = params.kernel.astype(jnp.float32).std() * np.sqrt(400)
    # 20,000 draws: five sigma of their deviation are 0.025.
    assert abs(deviation - 1) < 0.03
    assert jr.dense(50, use_bias=False).init(jax.random.key(0), 4).bias is None


def test_a_float32_kernel_multiplies_bfloat16_inputs_in_float32():
    layer = jr.dense(8)
    params = layer.init(jax.random.key(0), 64)
    xs = jax.random.normal(jax.random.key(1), (5, 64), jnp.bfloat16)
    want = xs.astype(jnp.float32) @ params.kernel
    np.testing.assert_array_equal(jr.unroll(layer, params, xs).outputs, want.astype(jnp.bfloat16))


def test_errors_name_the_argument():
    with pytest.raises(TypeError, match="num_outputs must be an int"):
        jr.dense(2.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="num_outputs must be at least 1"):
        jr.dense(0)
    with pytest.raises(TypeError, match="activation must be a function or None, got 'relu'"):
        jr.dense(2, "relu")  # pyright: ignore[reportArgumentType]
    params = jr.dense(2).init(jax.random.key(0), 3)
    with pytest.raises(
        ValueError, match=r"params.kernel must have .* inputs of width 4, got \(3, 2"
    ):
        jr.unroll(jr.dense(2), params, jnp.ones((5, 4)))
