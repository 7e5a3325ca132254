import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, T = 3, 5, 20


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def oracle(params, xs, signed):
    h, hs = np.zeros(H), []
    for x in np.asarray(xs):
        u = np.asarray(params.eigenvalue_logit)
        if params.eigenvalue_kernel is not None:
            u = u + x @ params.eigenvalue_kernel
        h = (2 * sigmoid(u) - 1 if signed else sigmoid(u)) * h + x @ params.kernel + params.bias
        hs.append(h)
    return np.array(hs)


@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("eigenvalue_range", [(0, 1), (-1, 1)])
def test_against_the_equations(x64, eigenvalue_range, selective):
    cell = jr.diagonal_rnn(H, eigenvalue_range, selective=selective, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    params = params._replace(bias=jax.random.normal(jax.random.key(1), (H,)))
    xs = jax.random.normal(jax.random.key(2), (T, D))
    want = oracle(params, xs, signed=eigenvalue_range == (-1, 1))
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, want, rtol=1e-11)


def counter(eigenvalue_range):
    """A selective cell without input of its own, h₀ = 1: a bit of 1 has the logit -60, 0 has 60."""
    cell = jr.learned_initial_carry(
        jr.diagonal_rnn(1, eigenvalue_range, selective=True, param_dtype=jnp.float64)
    )
    params = jr.cells.DiagonalRNNParams(
        jnp.zeros((1, 1)), jnp.zeros(1), jnp.full(1, 60.0), jnp.full((1, 1), -120.0)
    )
    return cell, cell.init(jax.random.key(0), 1)._replace(
        cell=params, initial_carry=jr.cells.LinearCarry(jnp.ones(1))
    )


def test_negative_eigenvalues_count_modulo_two(x64):
    bits = np.random.default_rng(0).integers(0, 2, (4, 500, 1)).astype(float)
    parity = bits.cumsum(axis=1) % 2
    cell, params = counter((-1, 1))
    np.testing.assert_array_equal(jr.unroll(cell, params, bits).outputs, 1 - 2 * parity)


def test_positive_eigenvalues_never_change_the_sign(x64):
    bits = np.random.default_rng(0).integers(0, 2, (4, 500, 1)).astype(float)
    cell, params = counter((0, 1))
    assert (jr.unroll(cell, params, bits).outputs >= 0).all()


@pytest.mark.parametrize("eigenvalue_range", [(0, 1), (-1, 1)])
def test_eigenvalues_and_variance_at_the_start(x64, eigenvalue_range):
    cell = jr.diagonal_rnn(20_000, eigenvalue_range, r_min=0.5, r_max=0.99, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 16)
    eigenvalues = np.asarray(cell.project(params, jnp.zeros(16)).a.h)
    assert (np.abs(eigenvalues) > 0.5).all() and (np.abs(eigenvalues) < 0.99).all()
    negative = (eigenvalues < 0).mean()
    assert negative == 0 if eigenvalue_range == (0, 1) else abs(negative - 0.5) < 0.02
    area = (eigenvalues**2 - 0.5**2) / (0.99**2 - 0.5**2)
    np.testing.assert_allclose(np.quantile(area, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)
    variance = (params.kernel**2).sum(axis=0) / (1 - eigenvalues**2)
    np.testing.assert_allclose(variance.mean(), 1, rtol=0.02)


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match=r"eigenvalue_range must be \(0, 1\) or \(-1, 1\)"):
        jr.diagonal_rnn(3, (0, 2))
    with pytest.raises(ValueError, match="0 <= r_min < r_max <= 1"):
        jr.diagonal_rnn(3, r_max=1.5)
    with pytest.raises(ValueError, match="num_units must be at least 1"):
        jr.diagonal_rnn(0)
