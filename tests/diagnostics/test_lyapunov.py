import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.diagnostics._jacobians import carry_jacobians
from jaxrnn.diagnostics._lyapunov import lyapunov_exponents

KEY = jax.random.key(0)


def henon():
    """x' = 1 - 1.4 x² + y, y' = 0.3 x."""

    def advance(params, carry, z):
        del z
        x, y = carry[..., 0], carry[..., 1]
        return jnp.stack([1 - params["a"] * x**2 + y, params["b"] * x], axis=-1)

    return jr.simple_cell(
        lambda key, num_inputs: {"a": jnp.float64(1.4), "b": jnp.float64(0.3)}, advance, 2
    )


def linear(matrix):
    def advance(params, carry, z):
        del z
        return carry @ params.T

    return jr.simple_cell(lambda key, num_inputs: matrix, advance, len(matrix))


def benettin(jacobians, frame):
    """Gram and Schmidt step by step."""
    sums = np.zeros(frame.shape[1])
    for jacobian in jacobians:
        frame = jacobian @ frame
        for i in range(frame.shape[1]):
            for j in range(i):
                frame[:, i] -= frame[:, i] @ frame[:, j] * frame[:, j]
            norm = np.linalg.norm(frame[:, i])
            sums[i] += np.log(norm)
            frame[:, i] /= norm
    return sums / len(jacobians)


def test_the_henon_map(x64):
    """About 0.419 and -1.623; the sum is log 0.3: the determinant is constant."""
    cell = henon()
    params = cell.init(KEY, 1)
    found = lyapunov_exponents(cell, params, jnp.zeros((40_000, 1)), num_transient_steps=100)
    np.testing.assert_allclose(found, [0.419, -1.623], atol=0.004)
    np.testing.assert_allclose(found.sum(), np.log(0.3), rtol=1e-10)


def test_a_linear_map_has_the_logarithms_of_its_eigenvalues(x64):
    matrix = jnp.array([[0.5, 3.0, 0.0], [0.0, 1.25, 1.0], [0.0, 0.0, -0.125]])
    cell = linear(matrix)
    xs = jnp.zeros((300, 1))
    found = lyapunov_exponents(cell, matrix, xs, num_transient_steps=150)
    np.testing.assert_allclose(found, np.log([1.25, 0.5, 0.125]), rtol=1e-10)
    largest = lyapunov_exponents(cell, matrix, xs, num_transient_steps=150, num_exponents=1)
    np.testing.assert_allclose(largest, np.log([1.25]), rtol=1e-10)


def test_a_diagonal_cell_has_the_logarithms_of_its_decays(x64):
    cell = jr.diagonal_rnn(4, (-1, 1), param_dtype=jnp.float64)
    params = cell.init(KEY, 2)._replace(eigenvalue_logit=jnp.array([6.0, -2.0, 1.0, 0.3]))
    found = lyapunov_exponents(cell, params, jnp.ones((400, 2)), num_transient_steps=200)
    expected = np.sort(np.log(np.abs(np.tanh([3.0, -1.0, 0.5, 0.15]))))[::-1]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_padding_does_not_count_and_a_reset_is_left_out(x64):
    """Each row as Gram and Schmidt go through its real steps, one by one."""
    cell = jr.gru(2, param_dtype=jnp.float64)
    params = cell.init(KEY, 1)
    xs = jax.random.normal(KEY, (3, 9, 1))
    mask = jnp.ones((3, 9), bool).at[0, jnp.array([2, 3, 8])].set(False).at[2].set(False)
    reset = jnp.zeros((3, 9), bool).at[:2, 4].set(True)
    exponents = jax.jit(lambda xs: lyapunov_exponents(cell, params, xs, mask=mask, reset=reset))
    padded = exponents(jnp.where(mask[..., None], xs, jnp.nan))
    np.testing.assert_array_equal(padded, exponents(jnp.where(mask[..., None], xs, 7)))
    jacobians = carry_jacobians(cell, params, xs, mask=mask, reset=reset)
    for row in range(2):
        kept = np.asarray(jacobians[row])[np.asarray(mask & ~reset)[row]]
        # Over few steps exponents depend on the first frame: the library's own.
        frame = np.linalg.qr(np.asarray(jax.random.normal(KEY, (2, 2), jnp.float64)))[0]
        expected = np.sort(benettin(kept, frame))[::-1]
        np.testing.assert_allclose(padded[row], expected, rtol=1e-10)
    assert np.isnan(padded[2]).all()


def test_a_number_that_makes_no_sense_is_refused():
    cell = jr.elman(2)
    params = cell.init(KEY, 1)
    with pytest.raises(ValueError, match="num_exponents must be at most 2, got 3"):
        lyapunov_exponents(cell, params, jnp.ones((3, 1)), num_exponents=3)
    with pytest.raises(ValueError, match="num_transient_steps"):
        lyapunov_exponents(cell, params, jnp.ones((3, 1)), num_transient_steps=-1)
