import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_cell

D, BLOCKS, T = 6, 3, 20


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def oracle(params, xs, full_start=()):
    """One row; steps in `full_start` begin a sequence whose first input is not scaled."""
    width = D // BLOCKS
    kernels = np.zeros((2, D, D))
    for block in range(BLOCKS):
        rows = slice(block * width, (block + 1) * width)
        for gate in range(2):
            columns = slice(gate * width, (gate + 1) * width)
            kernels[gate][rows, rows] = params.gate_kernel[block][:, columns]
    biases = np.split(params.gate_bias, 2)
    a = sigmoid(np.asarray(params.eigenvalue_logit))
    h, hs = np.zeros(D), []
    for t, x in enumerate(np.asarray(xs)):
        r, i = (sigmoid(x @ kernels[gate] + biases[gate]) for gate in range(2))
        decay = a ** (8 * r)
        if t in full_start:
            h = i * x
        else:
            h = decay * h + np.sqrt(1 - decay**2) * (i * x)
        hs.append(h)
    return np.array(hs)


def random_case(cell):
    params = cell.init(jax.random.key(0), D)
    params = params._replace(gate_bias=jax.random.normal(jax.random.key(1), (2 * D,)))
    return params, jax.random.normal(jax.random.key(2), (T, D))


def test_against_the_equations(x64):
    cell = jr.rg_lru(BLOCKS, param_dtype=jnp.float64)
    params, xs = random_case(cell)
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, oracle(params, xs), rtol=1e-11)


def test_the_first_input_of_every_sequence_enters_at_full_size(x64):
    cell = jr.rg_lru(BLOCKS, normalized_start=False, param_dtype=jnp.float64)
    params, xs = random_case(cell)
    reset = np.isin(np.arange(T), [7, 8, 15])
    outputs = jr.unroll(cell, params, xs, reset=reset).outputs
    np.testing.assert_allclose(outputs, oracle(params, xs, {0, 7, 8, 15}), rtol=1e-11)
    assert np.abs(outputs[7:] - oracle(params, xs, {0})[7:]).max() > 1e-2


def test_a_full_start_keeps_the_laws_and_the_parallel_forms_refuse_it():
    cell = jr.rg_lru(normalized_start=False)
    check_cell(cell)
    params = cell.init(jax.random.key(0), 3)
    for evaluator, message in (
        (jr.associative(), "needs a linear cell"),
        (jr.newton(), "carry of real floating arrays"),
    ):
        with pytest.raises(TypeError, match=message):
            jr.unroll(cell, params, jnp.ones((4, 3)), evaluator=evaluator)


def test_decays_start_uniform_at_an_open_gate(x64):
    cell = jr.rg_lru(2000, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 2000)
    open_gate = params._replace(gate_bias=jnp.full(4000, 40.0))
    decays = np.asarray(cell.project(open_gate, jnp.zeros(2000)).a.h)
    share = (decays - 0.9) / (0.999 - 0.9)
    assert (share > 0).all() and (share < 1).all()
    np.testing.assert_allclose(np.quantile(share, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.05)


def test_white_noise_keeps_its_variance(x64):
    # The gates are constant, i = 1, and a² + √(1 - a²)² = 1.
    cell = jr.rg_lru(D, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    params = params._replace(
        gate_kernel=jnp.zeros_like(params.gate_kernel),
        gate_bias=jnp.concatenate([jax.random.normal(jax.random.key(1), (D,)), jnp.full(D, 50.0)]),
    )
    z = cell.project(params, jnp.ones(D))
    np.testing.assert_allclose(z.a.h**2 + z.b.h**2, 1, rtol=1e-12)


def test_the_slope_of_the_root_where_the_gate_closes(x64):
    # d/dr √(1 - a²) by hand, against a gate that is all but closed; at -2000 it underflows to 0.
    cell = jr.rg_lru(param_dtype=jnp.float64)
    params = jr.cells.RGLRUParams(jnp.zeros(1), jnp.zeros((1, 1, 2)), jnp.zeros(2))

    def scale(logit):
        bias = jnp.stack([logit, jnp.asarray(50.0)])
        return cell.project(params._replace(gate_bias=bias), jnp.ones(1)).b.h[0]

    for logit in (-30.0, -5.0, 0.0, 5.0):
        r = sigmoid(logit)
        rate = 8 * np.log(2)
        root = np.sqrt(-np.expm1(-2 * rate * r))
        want = rate * np.exp(-2 * rate * r) / root * r * (1 - r)
        np.testing.assert_allclose(scale(jnp.asarray(logit)), root, rtol=1e-12)
        np.testing.assert_allclose(
            jax.grad(scale)(jnp.asarray(logit)), want, rtol=1e-10, atol=1e-15
        )
    assert float(jax.grad(scale)(jnp.asarray(-2000.0))) == 0


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="num_blocks must divide D = 5, got 2"):
        jr.rg_lru(2).init(jax.random.key(0), 5)
    with pytest.raises(ValueError, match="c must be above 0"):
        jr.rg_lru(c=0.0)
    with pytest.raises(ValueError, match="num_blocks must be at least 1"):
        jr.rg_lru(0)


def test_the_gradient_is_finite_where_the_decay_is_one():
    cell = jr.rg_lru()
    params = cell.init(jax.random.key(0), 4)
    params = params._replace(eigenvalue_logit=jnp.array([105.0, 95.0, 60.0, 5.0]))
    xs = jax.random.normal(jax.random.key(1), (3, 4))
    slopes = jax.grad(lambda params: jr.unroll(cell, params, xs).outputs.sum())(params)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
