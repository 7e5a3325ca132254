import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.diagnostics._jacobians import carry_jacobians, spectral_radius

KEY = jax.random.key(0)


def elman_jacobians(params, xs, mask, reset):
    """J = diag(1 - h²) Uᵀ, I where masked, 0 at a reset, step by step."""
    kernel, recurrent, bias = (np.asarray(leaf) for leaf in params)
    h, found = np.zeros(len(bias)), []
    for x, real, fresh in zip(xs, mask, reset, strict=True):
        jacobian = np.eye(len(bias))
        if fresh:
            h, jacobian = np.zeros(len(bias)), 0 * jacobian
        if real:
            h = np.tanh(x @ kernel + h @ recurrent + bias)
            jacobian = np.diag(1 - h**2) @ recurrent.T @ jacobian
        found.append(jacobian)
    return np.stack(found)


@pytest.fixture
def problem(x64):
    cell = jr.elman(3, param_dtype=jnp.float64)
    params = cell.init(KEY, 2)
    xs = jax.random.normal(KEY, (2, 6, 2), jnp.float64)
    mask = jnp.array([[1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1]], bool)
    reset = jnp.array([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1]], bool)
    return cell, params, xs, mask, reset


def test_elman_has_the_jacobian_of_the_notes(problem):
    cell, params, xs, mask, reset = problem
    found = jax.jit(lambda *args: carry_jacobians(cell, params, args[0], mask=mask, reset=reset))(
        jnp.where(mask[..., None], xs, jnp.nan)
    )
    for row in range(2):
        expected = elman_jacobians(params, xs[row], mask[row], reset[row])
        np.testing.assert_allclose(found[row], expected, rtol=1e-12, atol=1e-12)


def test_a_layer_has_the_jacobian_of_its_cell(problem):
    cell, params, xs, mask, reset = problem
    layer = jr.serial(cell, jr.dense(2))
    both = (params, layer.init(KEY, 2)[1])
    found = carry_jacobians(layer, both, jnp.moveaxis(xs, 1, 0), mask=mask.T, time_major=True)
    expected = carry_jacobians(cell, params, xs, mask=mask)
    np.testing.assert_allclose(jnp.moveaxis(found, 0, 1), expected, rtol=1e-12, atol=1e-12)


def test_complex_carries_count_as_pairs(x64):
    cell = jr.lru(2, 3, param_dtype=jnp.float64)
    params = jax.jit(cell.init, static_argnums=1)(KEY, 1)
    jacobian = carry_jacobians(cell, params, jnp.ones((1, 1)))[0]
    z = cell.project(params, jnp.ones(1))
    rotation = np.asarray(jax.tree.leaves(z.a)[0])
    expected = np.block(
        [
            [np.diag(rotation.real), -np.diag(rotation.imag)],
            [np.diag(rotation.imag), np.diag(rotation.real)],
        ]
    )
    np.testing.assert_allclose(jacobian, expected, rtol=1e-12, atol=1e-14)


def test_counters_in_a_carry_are_no_coordinates(x64):
    layer = jr.self_attention(1, window=2)
    params = layer.init(KEY, 4)
    like = jax.eval_shape(layer.initial_carry, params)
    num = sum(
        leaf.size for leaf in jax.tree.leaves(like) if jnp.issubdtype(leaf.dtype, jnp.floating)
    )
    assert carry_jacobians(layer, params, jnp.ones((3, 4))).shape == (3, num, num)


def test_without_a_carry_or_a_future_there_is_no_jacobian():
    layer = jr.dense(2)
    with pytest.raises(TypeError, match="model must have a carry of floating"):
        carry_jacobians(layer, layer.init(KEY, 2), jnp.ones((3, 2)))
    layer = jr.bidirectional(jr.elman(2), jr.elman(2))
    with pytest.raises(ValueError, match="model must be causal"):
        carry_jacobians(layer, layer.init(KEY, 2), jnp.ones((3, 2)))
    with pytest.raises(TypeError, match="Cell or a Layer"):
        carry_jacobians(jnp.tanh, (), jnp.ones((3, 2)))


def test_spectral_radius_of_known_matrices():
    rotation = jnp.array([[0.0, -2.0], [2.0, 0.0]])
    shear = jnp.array([[0.5, 100.0], [0.0, -0.25]])
    assert np.allclose(spectral_radius(jnp.stack([rotation, shear])), [2.0, 0.5])
    orthogonal = jr.elman(16).init(KEY, 2).recurrent_kernel
    assert np.isclose(jax.jit(spectral_radius)(orthogonal), 1.0, rtol=1e-5)
    with pytest.raises(ValueError, match="matrix must be square"):
        spectral_radius(jnp.ones((2, 3)))


def test_one_compilation_per_shape():
    traces = []

    def advance(params, carry, z):
        traces.append(z.shape)
        return params * carry + z

    cell = jr.simple_cell(lambda key, num_inputs: jnp.ones(1), advance, 1)
    jacobian = carry_jacobians(cell, jnp.ones(1), jnp.ones((3, 1)))
    once = len(traces)
    doubled = carry_jacobians(cell, 2 * jnp.ones(1), jnp.zeros((3, 1)))
    assert len(traces) == once
    np.testing.assert_array_equal(doubled, 2 * jacobian)
