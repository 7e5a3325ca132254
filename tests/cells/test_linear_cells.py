"""What every linear cell must show; adding one is one line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_cell

CELLS = {
    "ema": lambda dtype: jr.ema(0.7, param_dtype=dtype),
    "diagonal_rnn": lambda dtype: jr.diagonal_rnn(4, param_dtype=dtype),
    "diagonal_rnn signed selective": lambda dtype: jr.diagonal_rnn(
        4, (-1, 1), selective=True, param_dtype=dtype
    ),
    "lru": lambda dtype: jr.lru(5, 6, r_max=0.99, param_dtype=dtype),
    "min_gru": lambda dtype: jr.min_gru(4, param_dtype=dtype),
    "min_lstm": lambda dtype: jr.min_lstm(4, forget_bias=1.0, param_dtype=dtype),
    "rg_lru": lambda dtype: jr.rg_lru(num_blocks=2, param_dtype=dtype),
    "s4d": lambda dtype: jr.s4d(6, param_dtype=dtype),
    "s4d real bilinear": lambda dtype: jr.s4d(
        3, "real", discretization="bilinear", param_dtype=dtype
    ),
    "s5": lambda dtype: jr.s5(5, 8, num_blocks=2, param_dtype=dtype),
}
COMPLEX = ("lru", "s4d", "s5")
IN_PARALLEL = (jr.associative(), jr.chunked(3, jr.associative("chunked")))
FOR_REAL = (jr.newton(), jr.newton(jacobian="diagonal"))


def make(name, dtype=jnp.float32):
    cell = CELLS[name](dtype)
    return cell, cell.init(jax.random.key(0), 4)


@pytest.mark.parametrize("name", CELLS)
def test_laws_and_the_parallel_forms(name):
    evaluators = IN_PARALLEL if name in COMPLEX else IN_PARALLEL + FOR_REAL
    check_cell(CELLS[name](jnp.float32), num_inputs=4, evaluators=evaluators)


@pytest.mark.parametrize("name", COMPLEX)
def test_newton_refuses_a_complex_carry(name):
    cell, params = make(name)
    with pytest.raises(TypeError, match="carry of real floating arrays"):
        jr.unroll(cell, params, jnp.ones((3, 4)), evaluator=jr.newton())


@pytest.mark.parametrize("name", CELLS)
def test_float32_over_4096_steps(name):
    cell, params = make(name)
    xs = jax.random.normal(jax.random.key(1), (4096, 4))
    run = jax.jit(lambda params, xs: jr.unroll(cell, params, xs).outputs)
    outputs = run(params, xs)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (params, xs))
        want = np.asarray(run(*wide))
    assert want.dtype == np.float64
    error = np.abs(outputs - want).max() / np.abs(want).max()
    assert 0 < error < 2e-5


@pytest.mark.parametrize("name", CELLS)
def test_all_float_leaves_have_the_param_dtype(name):
    for dtype in (jnp.float32, jnp.bfloat16):
        assert {leaf.dtype for leaf in jax.tree.leaves(make(name, dtype)[1])} == {jnp.dtype(dtype)}


@pytest.mark.parametrize("name", CELLS)
def test_a_wrong_width_raises(name):
    cell, params = make(name)
    with pytest.raises(ValueError, match=r"(params\.\w+|xs) must have the (shape|width) .*4"):
        jr.unroll(cell, params, jnp.ones((3, 1)))


@pytest.mark.parametrize("name", CELLS)
def test_parameters_are_real_and_floating(name):
    with pytest.raises(TypeError, match="param_dtype must be real and floating, got .*int32"):
        make(name, jnp.int32)
