import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_cell

D, H, N, T = 3, 4, 6, 20


def oracle(params, xs):
    eigenvalues = np.exp(-np.exp(params.nu_log) + 1j * np.exp(params.theta_log))
    input_matrix = params.kernel_real + 1j * params.kernel_imag
    output_matrix = params.output_kernel_real + 1j * params.output_kernel_imag
    h, ys = np.zeros(N, complex), []
    for x in np.asarray(xs):
        h = eigenvalues * h + np.exp(params.gamma_log) * (x @ input_matrix)
        ys.append((h @ output_matrix).real + x @ params.skip_kernel)
    return np.array(ys), h


def test_against_the_equations(x64):
    cell = jr.lru(H, N, param_dtype=jnp.float64)
    params = jax.tree.map(np.asarray, cell.init(jax.random.key(0), D))
    xs = jax.random.normal(jax.random.key(1), (T, D))
    rollout = jr.unroll(cell, params, xs)
    ys, h = oracle(params, xs)
    np.testing.assert_allclose(rollout.outputs, ys, rtol=1e-11)
    np.testing.assert_allclose(rollout.carry.h, h, rtol=1e-11)


def test_a_quarter_turn():
    # λ = i/2: the impulse 1 becomes i/2, -1/4, -i/8; C = 1 - i reads Re(h) + Im(h).
    cell = jr.lru(1, 1)
    one = jnp.ones((1, 1))
    params = jr.cells.LRUParams(
        nu_log=jnp.log(jnp.log(2 * one[0])),
        theta_log=jnp.log(jnp.pi / 2 * one[0]),
        gamma_log=0 * one[0],
        kernel_real=one,
        kernel_imag=0 * one,
        output_kernel_real=one,
        output_kernel_imag=-one,
        skip_kernel=0 * one,
    )
    outputs = jr.unroll(cell, params, jnp.eye(4)[0][:, None]).outputs
    np.testing.assert_allclose(outputs[:, 0], [1, 0.5, -0.25, -0.125], atol=1e-7)


@pytest.mark.parametrize("r_min, r_max", [(0.0, 1.0), (0.9, 0.999), (0.999, 1.0)])
def test_eigenvalues_start_uniform_in_the_ring(r_min, r_max):
    cell = jr.lru(1, 20_000, r_min=r_min, r_max=r_max, max_phase=0.3)
    params = cell.init(jax.random.key(0), 1)
    assert all(np.isfinite(leaf).all() for leaf in params)
    radii = np.exp(-np.exp(np.asarray(params.nu_log, np.float64)))
    assert (radii > r_min).all() and (radii < r_max).all()
    area = (radii**2 - r_min**2) / (r_max**2 - r_min**2)
    np.testing.assert_allclose(np.quantile(area, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)
    phases = np.exp(params.theta_log) / 0.3
    assert (phases > 0).all() and (phases < 1).all()
    np.testing.assert_allclose(np.quantile(phases, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)


def test_white_noise_makes_states_of_variance_one(x64):
    # Σₖ |λᵏ γ B|² summed over all ages, without a simulation.
    cell = jr.lru(H, 4000, r_min=0.5, r_max=0.999, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 16)
    squares = np.exp(-2 * np.exp(params.nu_log))
    power = (params.kernel_real**2 + params.kernel_imag**2).sum(axis=0)
    variance = np.exp(2 * params.gamma_log) * power / (1 - squares)
    np.testing.assert_allclose(variance.mean(), 1, rtol=0.02)


def test_a_long_simulation_has_variance_one():
    cell = jr.lru(H, 256, r_min=0.5, r_max=0.99)
    params = cell.init(jax.random.key(0), 16)
    xs = jax.random.normal(jax.random.key(1), (2000, 16))
    hs = jr.carries(cell, params, xs).h[500:]
    np.testing.assert_allclose(np.mean(np.abs(hs) ** 2), 1, rtol=0.05)


def test_stable_for_every_parameter():
    for nu_log in (-20.0, 0.0, 80.0):
        params = jr.lru(1, 1).init(jax.random.key(0), 1)._replace(nu_log=jnp.full(1, nu_log))
        assert np.abs(jr.lru(1, 1).project(params, jnp.ones(1)).a.h) <= 1


def test_laws_with_a_learned_complex_start():
    check_cell(jr.learned_initial_carry(jr.lru(2, 3)), evaluators=(jr.associative(),))


def test_wrong_arguments_raise():
    for r_min, r_max in ((-0.1, 0.5), (0.5, 0.5), (0.5, 1.1)):
        with pytest.raises(ValueError, match="0 <= r_min < r_max <= 1"):
            jr.lru(H, N, r_min=r_min, r_max=r_max)
    with pytest.raises(ValueError, match=r"max_phase must lie in \(0, 2π\], got 7"):
        jr.lru(H, N, max_phase=7.0)
    with pytest.raises(TypeError, match="state_size must be an int"):
        jr.lru(H, 2.0)
