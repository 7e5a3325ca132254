"""What is compiled for a cell does not keep every cell that ever ran."""

import gc
import weakref

import jax
import jax.numpy as jnp

import jaxrnn as jr


def run_another_cell():
    cell = jr.elman(2, activation=lambda u: u)
    jax.eval_shape(lambda: jr.unroll(cell, cell.init(jax.random.key(0), 3), jnp.ones((5, 3))))
    return weakref.ref(cell.init)


def test_cells_that_are_gone_are_let_go_at_last():
    first = run_another_cell()
    for _ in range(128):
        run_another_cell()
    gc.collect()
    assert first() is None


def test_equal_options_are_equal_evaluators():
    assert jr.sequential() == jr.sequential() == jr.auto()
    assert jr.newton(tol=1e-3) == jr.newton(tol=1e-3) != jr.newton(tol=1e-4)
    assert jr.chunked(4, jr.newton()) == jr.chunked(4, jr.newton())
    assert hash(jr.associative()) == hash(jr.associative())
