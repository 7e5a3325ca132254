from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.diagnostics._jacobians import carry_jacobians
from jaxrnn.diagnostics._spectrum import jacobian_spectrum, orthogonal_columns

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
    shear = jnp.eye(7).at[0, 1].set(1.0).at[1, 1].set(1e-3)
    both = jnp.stack([orthogonal, shear]), jnp.stack([scales, jnp.zeros(7)])
    columns, logs = jax.jit(orthogonal_columns)(*both)
    np.testing.assert_allclose(np.sort(logs[0]), np.sort(scales), atol=1e-12)
    expected = np.linalg.svd(shear, compute_uv=False)
    np.testing.assert_allclose(np.sort(jnp.exp(logs[1]))[::-1], expected, rtol=1e-12)
    np.testing.assert_allclose(columns[1].T @ columns[1], np.eye(7), atol=1e-12)


def test_a_reset_cuts_the_product_and_padding_is_the_identity(x64):
    cell = jr.elman(2, param_dtype=jnp.float64)
    params = cell.init(KEY, 1)
    spectrum = jax.jit(lambda xs, m, r: jacobian_spectrum(cell, params, xs, mask=m, reset=r))
    order = jnp.array([0, 2, 3, 4, 1])
    xs = jax.random.normal(KEY, (5, 1)).at[1].set(jnp.nan)
    mask = jnp.arange(5) != 1
    reset = jnp.arange(5) == 3
    logs = spectrum(xs, mask, reset)
    padded_behind = spectrum(xs[order], mask[order], reset[order])
    np.testing.assert_array_equal(logs[1], logs[0])
    np.testing.assert_allclose(logs[order[:4]], padded_behind[:4], rtol=1e-12)
    assert (logs[3:] == -jnp.inf).all() and jnp.isfinite(logs[:3]).all()


def test_complex_values_come_twice(x64):
    cell = jr.lru(2, 3, param_dtype=jnp.float64)
    params = jax.jit(cell.init, static_argnums=1)(KEY, 1)
    logs = jacobian_spectrum(cell, params, jnp.ones((50, 1)))[-1]
    a = np.asarray(jax.tree.leaves(cell.project(params, jnp.ones(1)).a)[0])
    np.testing.assert_allclose(logs, np.repeat(np.sort(50 * np.log(abs(a)))[::-1], 2), rtol=1e-10)


def test_start_is_a_number_of_steps():
    cell = jr.elman(2)
    with pytest.raises(ValueError, match="start must be an int of at least 0"):
        jacobian_spectrum(cell, cell.init(KEY, 1), jnp.ones((2, 1)), start=-1)


def test_directions_that_a_step_erases(x64):
    """Dead relus leave zero rows; what cancels there neither rotates for ever nor spreads."""
    cell = jr.elman(12, jax.nn.relu, param_dtype=jnp.float64)
    params = cell.init(KEY, 4)
    xs = jax.random.normal(KEY, (8, 4))
    logs = jacobian_spectrum(cell, params, xs)
    product = np.eye(12)
    for t, jacobian in enumerate(np.asarray(carry_jacobians(cell, params, xs))):
        product = jacobian @ product
        values = np.linalg.svd(product, compute_uv=False)
        rank = int((values > 1e-12).sum())
        assert rank < 12
        np.testing.assert_allclose(np.exp(logs[t, :rank]), values[:rank], rtol=1e-9)
        assert (logs[t, rank:] < -30).all()
