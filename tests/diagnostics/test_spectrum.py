from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.diagnostics.jacobians import carry_jacobians
from jaxrnn.diagnostics.spectrum import jacobian_spectrum, orthogonal_columns

KEY = jax.random.key(0)


def test_the_sensitivity_to_the_start_after_three_steps_is_an_eighth():
    cell = jr.ema(0.5)
    logs = jacobian_spectrum(cell, cell.init(KEY, 1), jnp.array([[2.0], [0.0], [4.0]]))
    np.testing.assert_allclose(jnp.exp(logs)[:, 0], [1 / 2, 1 / 4, 1 / 8], rtol=1e-6)


def test_singular_values_of_short_products(x64):
    cell = jr.lstm(3, param_dtype=jnp.float64)
    params = cell.init(KEY, 2)
    xs = jax.random.normal(KEY, (2, 6, 2))
    mask = jnp.array([[1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]], bool)
    carry = jr.carries(cell, params, xs)
    carry = jax.tree.map(lambda leaf: leaf[:, -1], carry)
    jacobians = np.asarray(carry_jacobians(cell, params, xs, carry=carry, mask=mask))
    logs = jacobian_spectrum(cell, params, xs, carry=carry, mask=mask, start=1)
    product = np.eye(jacobians.shape[-1])
    for t in range(1, 6):
        product = jacobians[:, t] @ product
        expected = np.linalg.svd(product, compute_uv=False)
        np.testing.assert_allclose(jnp.exp(logs[:, t]), expected, rtol=1e-9, atol=1e-13)
    assert (logs[:, 0] == 0).all()


def test_long_products_keep_every_singular_value(x64):
    """Upper triangular, the small eigenvalue first: σ of Aⁿ from exact integers."""
    matrix = np.array([[1, 8], [0, 4]])

    def advance(params, carry, z):
        del z
        return carry @ params.T

    cell = jr.simple_cell(lambda key, num_inputs: jnp.asarray(matrix / 16), advance, 2)
    logs = jacobian_spectrum(cell, jnp.asarray(matrix / 16), jnp.zeros((2000, 1)))[-1]
    power = np.linalg.matrix_power(matrix.astype(object), 2000)
    largest = Fraction(int((power**2).sum()), 1)
    digits = 2 * largest.numerator.bit_length()
    # σ₁² ≈ ‖Aⁿ‖² (σ₂ is 4²⁰⁰⁰ times smaller) and σ₁ σ₂ = det.
    log_first = (np.log(float(largest / 2 ** (digits // 2))) + digits // 2 * np.log(2)) / 2
    log_scale = -2000 * np.log(16)
    log_second = 2000 * np.log(4) - log_first
    assert log_second + log_scale < np.log(np.finfo(float).tiny)
    np.testing.assert_allclose(logs, [log_first + log_scale, log_second + log_scale], rtol=1e-11)


def test_values_of_all_sizes_in_one_decomposition(x64):
    orthogonal = jnp.linalg.qr(jax.random.normal(KEY, (7, 7), jnp.float64))[0]
    scales = jnp.array([0.0, -500.0, 3.0, -20.0, 400.0, 3.0, -jnp.inf])
    columns, logs = jax.jit(orthogonal_columns)(orthogonal, scales)
    np.testing.assert_allclose(np.sort(logs), np.sort(scales), atol=1e-12)
    shear = jnp.array([[1.0, 1.0], [0.0, 1e-3]])
    columns, logs = orthogonal_columns(shear, jnp.zeros(2))
    expected = np.linalg.svd(shear, compute_uv=False)
    np.testing.assert_allclose(np.sort(jnp.exp(logs))[::-1], expected, rtol=1e-12)
    np.testing.assert_allclose(columns.T @ columns, np.eye(2), atol=1e-12)


def test_a_reset_cuts_the_product_and_padding_is_the_identity(x64):
    cell = jr.elman(2, param_dtype=jnp.float64)
    params = cell.init(KEY, 1)
    xs = jax.random.normal(KEY, (5, 1)).at[1].set(jnp.nan)
    mask = jnp.array([1, 0, 1, 1, 1], bool)
    reset = jnp.zeros(5, bool).at[3].set(True)
    logs = jacobian_spectrum(cell, params, xs, mask=mask, reset=reset)
    without = jacobian_spectrum(cell, params, xs[mask], reset=reset[mask])
    np.testing.assert_array_equal(logs[1], logs[0])
    np.testing.assert_allclose(logs[mask], without, rtol=1e-12)
    assert (logs[3:] == -jnp.inf).all() and jnp.isfinite(logs[:3]).all()


def test_complex_values_come_twice(x64):
    cell = jr.lru(2, 3, param_dtype=jnp.float64)
    params = cell.init(KEY, 1)
    logs = jacobian_spectrum(cell, params, jnp.ones((50, 1)))[-1]
    a = np.asarray(jax.tree.leaves(cell.project(params, jnp.ones(1)).a)[0])
    np.testing.assert_allclose(logs, np.repeat(np.sort(50 * np.log(abs(a)))[::-1], 2), rtol=1e-10)


def test_start_is_a_number_of_steps():
    cell = jr.elman(2)
    with pytest.raises(ValueError, match="start must be an int of at least 0"):
        jacobian_spectrum(cell, cell.init(KEY, 1), jnp.ones((2, 1)), start=-1)
