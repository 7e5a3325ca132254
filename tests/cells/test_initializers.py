import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrnn.cells import _initializers as initializers

KEY = jax.random.key(0)


def blocks(kernel, num_gates):
    return np.split(np.asarray(kernel, np.float64), num_gates, axis=1)


def test_every_block_is_orthogonal_and_no_two_are_the_same():
    gates = blocks(initializers.orthogonal_per_gate(KEY, 16, 16, 4), 4)
    for gate in gates:
        np.testing.assert_allclose(gate.T @ gate, np.eye(16), atol=1e-5)
    assert min(np.abs(a - b).max() for a, b in zip(gates, gates[1:], strict=False)) > 0.1


def test_one_orthogonal_matrix_for_all_gates_would_not_do():
    kernel = jax.nn.initializers.orthogonal()(KEY, (16, 64))
    assert max(np.abs(gate.T @ gate - np.eye(16)).max() for gate in blocks(kernel, 4)) > 0.3


@pytest.mark.parametrize("num_inputs", [3, 16, 20])
def test_the_shorter_side_of_a_rectangular_block_is_orthonormal(num_inputs):
    for gate in blocks(initializers.orthogonal_per_gate(KEY, num_inputs, 16, 3), 3):
        product = gate @ gate.T if num_inputs < 16 else gate.T @ gate
        np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-5)


def test_an_input_kernel_keeps_the_variance():
    kernel = initializers.input_kernel(KEY, 400, 300)
    assert abs(float(kernel.std()) * 20 - 1) < 0.01
    # Truncated at two standard deviations of the normal that is cut.
    assert float(jnp.abs(kernel).max()) < 2 / 0.8796 / 20 + 1e-3
    outputs = jax.random.normal(jax.random.key(1), (100, 400)) @ kernel
    assert abs(float(outputs.std()) - 1) < 0.05


def test_chrono_biases_are_log_uniform_steps():
    steps = np.exp(initializers.chrono_bias(KEY, 10_000, longest=101))
    assert steps.min() >= 1 - 1e-6 and steps.max() <= 100 + 1e-3
    # U(1, 100) has the mean 50.5 and a tenth of it below 10.9.
    assert abs(steps.mean() - 50.5) < 1
    assert abs(np.quantile(steps, 0.1) - 10.9) < 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda dtype: initializers.input_kernel(KEY, 3, 8, dtype),
        lambda dtype: initializers.orthogonal_per_gate(KEY, 4, 4, 2, dtype),
        lambda dtype: initializers.chrono_bias(KEY, 4, 10, dtype),
    ],
)
class TestDtypes:
    @pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
    def test_short_ones_are_drawn_in_float32_and_rounded(self, draw, dtype):
        assert draw(dtype).dtype == dtype
        np.testing.assert_array_equal(draw(dtype), draw(jnp.float32).astype(dtype))

    def test_float64_has_its_digits(self, draw, x64):
        drawn = draw(jnp.float64)
        assert drawn.dtype == jnp.float64
        assert jnp.any(drawn != drawn.astype(jnp.float32))

    @pytest.mark.parametrize("dtype", [jnp.int32, jnp.bool_, jnp.complex64])
    def test_others_raise(self, draw, dtype):
        with pytest.raises(TypeError, match=r"param_dtype.* must be real and floating, got"):
            draw(dtype)


def test_a_float64_block_is_orthogonal_to_its_last_digits(x64):
    kernel = initializers.orthogonal_per_gate(KEY, 16, 16, 1, jnp.float64)
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(16), atol=1e-14)


def test_too_short_a_dependency_raises():
    with pytest.raises(ValueError, match="longest must be at least 3 steps, got 2"):
        initializers.chrono_bias(KEY, 4, 2)
