import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, T = 3, 5, 20


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def positive(u):
    """The candidate of the paper's form over logarithms."""
    return jnp.where(u >= 0, u + 0.5, jax.nn.sigmoid(u))


def random_case(cell):
    params = cell.init(jax.random.key(0), D)
    params = params._replace(bias=jax.random.normal(jax.random.key(1), params.bias.shape))
    return params, jax.random.normal(jax.random.key(2), (T, D))


def oracle(params, xs, activation):
    kernels, biases = np.split(params.kernel, 2, axis=1), np.split(params.bias, 2)
    h, hs = np.zeros(H), []
    for x in np.asarray(xs):
        z = sigmoid(x @ kernels[0] + biases[0])
        h = (1 - z) * h + z * activation(x @ kernels[1] + biases[1])
        hs.append(h)
    return np.array(hs)


@pytest.mark.parametrize("activation", [lambda u: u, positive])
def test_against_the_equations(x64, activation):
    cell = jr.min_gru(H, activation, param_dtype=jnp.float64)
    params, xs = random_case(cell)
    want = oracle(params, xs, activation)
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, want, rtol=1e-12)


def test_the_positive_candidate_is_the_scan_over_logarithms(x64):
    # log h = logaddexp(log a + log h, log b), as the paper computes it.
    cell = jr.min_gru(H, positive, param_dtype=jnp.float64)
    params, xs = random_case(cell)
    z, g = np.split(xs @ params.kernel + params.bias, 2, axis=-1)
    log_z, log_keep = -np.logaddexp(0, -z), -np.logaddexp(0, z)
    log_g = np.log(positive(g))
    log_h, want = np.full(H, -np.inf), []
    for t in range(T):
        log_h = np.logaddexp(log_keep[t] + log_h, log_z[t] + log_g[t])
        want.append(np.exp(log_h))
    outputs = jr.unroll(cell, params, xs).outputs
    np.testing.assert_allclose(outputs, want, rtol=1e-12)
    assert outputs.min() > 0


def test_a_constant_gate_is_an_average(x64):
    cell = jr.min_gru(D, param_dtype=jnp.float64)
    decays = np.array([0.2, 0.5, 0.99])
    gate_bias = np.log1p(-decays) - np.log(decays)
    params = jr.cells.MinGRUParams(
        kernel=jnp.concatenate([jnp.zeros((D, D)), jnp.eye(D)], axis=1),
        bias=jnp.concatenate([gate_bias, jnp.zeros(D)]),
    )
    xs = jax.random.normal(jax.random.key(2), (2, T, D))
    average = jr.ema(decays.tolist(), param_dtype=jnp.float64)
    want = jr.unroll(average, average.init(jax.random.key(0), D), xs).outputs
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, want, rtol=1e-12)


def test_the_state_is_a_mean_of_the_candidates(x64):
    cell = jr.min_gru(H, jnp.tanh, param_dtype=jnp.float64)
    params, xs = random_case(cell)
    assert np.abs(jr.unroll(cell, params, 20 * xs).outputs).max() <= 1


def test_wrong_arguments_raise():
    with pytest.raises(TypeError, match="activation must be a function"):
        jr.min_gru(3, "tanh")
    with pytest.raises(ValueError, match="num_units must be at least 1"):
        jr.min_gru(0)
