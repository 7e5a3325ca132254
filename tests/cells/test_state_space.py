import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrnn.cells._linear import bilinear, relative_expm1, zero_order_hold


@pytest.mark.parametrize("angle", [0.0, np.pi, 2.0])
def test_relative_expm1_and_its_derivatives(x64, angle):
    # φ(z) = ∫₀¹ exp(s z) ds and its derivatives ∫₀¹ sⁿ exp(s z) ds, by Gauss's rule.
    nodes, weights = np.polynomial.legendre.leggauss(40)
    s, weights = (nodes + 1) / 2, weights / 2
    derivative = relative_expm1
    for order in range(3):
        for size in (0.0, 1e-9, 1e-3, 0.09, 0.11, 0.49, 0.51, 1.0, 5.0):
            z = size * np.exp(1j * angle)
            want = np.sum(weights * s**order * np.exp(s * z))
            np.testing.assert_allclose(derivative(jnp.asarray(z)), want, rtol=1e-14 * 20**order)
        derivative = jax.grad(derivative, holomorphic=True)


def test_relative_expm1_of_real_numbers():
    z = jnp.array([-1e30, -100.0, -1e-3, 0.0, 1e-3, 0.5])
    want = np.array([1e-30, 0.01, 0.9995001666, 1.0, 1.0005001667, 1.2974425414])
    np.testing.assert_allclose(relative_expm1(z), want, rtol=1e-6)
    slopes = jax.vmap(jax.grad(relative_expm1))(z)
    want = [1e-60, 1e-4, 0.4996667916, 0.5, 0.5003334583, 0.7025574587]
    np.testing.assert_allclose(slopes, want, rtol=1e-5, atol=1e-12)


def test_without_an_eigenvalue_both_discretizations_are_a_sum():
    for discretize in (zero_order_hold, bilinear):
        a, gain = discretize(jnp.zeros(2), jnp.array([0.25, 2.0]))
        np.testing.assert_array_equal(a, [1, 1])
        np.testing.assert_array_equal(gain, [0.25, 2.0])


def test_a_discrete_step_ends_where_the_constant_input_drives_it(x64):
    # h' = λ h + 1 rests at -1 / λ, which no step leaves.
    eigenvalues = jnp.array([-0.5 + 3j, -20.0, -1e-3 + 0j])
    for discretize in (zero_order_hold, bilinear):
        a, gain = discretize(eigenvalues, 0.3)
        np.testing.assert_allclose(-a / eigenvalues + gain, -1 / eigenvalues, rtol=1e-12)
