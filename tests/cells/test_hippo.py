import numpy as np
import pytest

from jaxrnn.cells._hippo import diagonal_eigenvalues, hippo_eigen, hippo_legs, hippo_normal


def test_legs_keeps_the_legendre_coefficients_of_what_it_has_seen():
    # c' = (A c + B f(t)) / t: for f(t) = t the coefficients on [0, t] are t/2 and t / (2 √3).
    matrix, vector = hippo_legs(4)
    for t in (0.5, 2.0):
        coefficients = t * np.array([0.5, 0.5 / np.sqrt(3), 0, 0])
        slope = (matrix @ coefficients + vector * t) / t
        np.testing.assert_allclose(slope, coefficients / t, atol=1e-12)


@pytest.mark.parametrize("state_size", [4, 16, 64])
def test_the_normal_part(state_size):
    matrix = hippo_normal(state_size)
    np.testing.assert_allclose(matrix + matrix.T, -np.eye(state_size), atol=1e-12)
    np.testing.assert_allclose(matrix @ matrix.T, matrix.T @ matrix, rtol=1e-9, atol=1e-9)
    low_rank = matrix - hippo_legs(state_size)[0]
    assert np.linalg.matrix_rank(low_rank) == 1


@pytest.mark.parametrize("state_size", [4, 64])
def test_eigenvalues_of_the_normal_part(state_size):
    eigenvalues, vectors = hippo_eigen(state_size)
    assert eigenvalues.shape == (state_size // 2,)
    np.testing.assert_array_equal(eigenvalues.real, -0.5)
    assert (np.diff(eigenvalues.imag) > 0).all() and eigenvalues.imag[0] > 0
    residual = hippo_normal(state_size) @ vectors - vectors * eigenvalues
    np.testing.assert_allclose(residual, 0, atol=1e-10)
    gram = vectors.conj().T @ vectors
    np.testing.assert_allclose(gram, np.eye(state_size // 2), atol=1e-12)


def test_diagonal_eigenvalues():
    np.testing.assert_allclose(
        diagonal_eigenvalues("lin", 6), -0.5 + 1j * np.pi * np.array([0, 1, 2])
    )
    np.testing.assert_allclose(
        diagonal_eigenvalues("inv", 4), -0.5 + 4j / np.pi * np.array([3, 1 / 3])
    )
    np.testing.assert_array_equal(diagonal_eigenvalues("real", 3), [-1, -2, -3])
    legs = np.linalg.eigvals(hippo_normal(16))
    np.testing.assert_allclose(
        diagonal_eigenvalues("legs", 16).imag, np.sort(legs.imag)[8:], rtol=1e-9
    )


def test_inv_approaches_legs():
    def gap(state_size):
        inv = diagonal_eigenvalues("inv", state_size).imag.max()
        return abs(inv / diagonal_eigenvalues("legs", state_size).imag.max() - 1)

    assert gap(64) < 0.02
    assert gap(256) < gap(64) < gap(16)


def test_wrong_words_raise():
    with pytest.raises(ValueError, match="eigenvalues must be one of"):
        diagonal_eigenvalues("legt", 4)
    with pytest.raises(ValueError, match="state_size must be even"):
        diagonal_eigenvalues("lin", 5)
