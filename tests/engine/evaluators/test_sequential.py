"""Scan and checkpointed scan: the same numbers for every chunk size and every T."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.engine.evaluators.chunked import sqrt_size

CELL = jr.learned_initial_carry(jr.lstm(2, param_dtype=jnp.float64))
NUM_STEPS = 7


def arguments(num_steps):
    generator = np.random.default_rng(0)
    xs = generator.standard_normal((3, num_steps, 2))
    mask = generator.random((3, num_steps)) < 0.7
    reset = generator.random((3, num_steps)) < 0.3
    return xs, mask, reset


def value_and_gradient(evaluator, num_steps):
    params = CELL.init(jax.random.key(0), 2)

    def loss(params, xs, mask, reset):
        rollout = jr.unroll(CELL, params, xs, mask=mask, reset=reset, evaluator=evaluator)
        return (rollout.outputs**2).sum() + (rollout.carry.c**3).sum(), rollout[:2]

    return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, *arguments(num_steps))


@functools.cache
def plain(num_steps):
    return value_and_gradient(jr.sequential(), num_steps)


EVALUATORS = {
    "one step a chunk": (jr.sequential(checkpoint=1), NUM_STEPS),
    "a rest of one": (jr.sequential(checkpoint=2), NUM_STEPS),
    "a rest of two": (jr.sequential(checkpoint=5), NUM_STEPS),
    "one chunk": (jr.sequential(checkpoint=7), NUM_STEPS),
    "no whole chunk": (jr.sequential(checkpoint=8), NUM_STEPS),
    "no rest": (jr.sequential(checkpoint=3), 6),
    "the square root": (jr.sequential(checkpoint="sqrt"), NUM_STEPS),
    "the square root of one": (jr.sequential(checkpoint="sqrt"), 1),
    "unrolled": (jr.sequential(scan_unroll=3), NUM_STEPS),
    "unrolled in chunks": (jr.sequential(scan_unroll=2, checkpoint=4), NUM_STEPS),
    "chunks in chunks": (jr.chunked(4, jr.sequential(checkpoint=2)), NUM_STEPS),
}


@pytest.mark.parametrize("name", EVALUATORS)
def test_values_and_gradients_are_those_of_the_plain_scan(name, x64):
    evaluator, num_steps = EVALUATORS[name]
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14),
        value_and_gradient(evaluator, num_steps),
        plain(num_steps),
    )


def test_no_steps_differentiate(x64):
    (_, (_, outputs)), gradients = value_and_gradient(jr.sequential(checkpoint="sqrt"), 0)
    assert outputs.shape == (3, 0, 2)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


def test_a_step_is_run_again_for_the_gradient_of_its_chunk_only(x64):
    """Counted in the program: with chunks, the primal step stands in the backward scan too."""
    params = CELL.init(jax.random.key(0), 2)

    def num_tanh(**options):
        evaluator = jr.sequential(derivative="autodiff", **options)

        def loss(params, xs):
            return jr.unroll(CELL, params, xs, evaluator=evaluator).outputs.sum()

        return str(jax.make_jaxpr(jax.grad(loss))(params, jnp.ones((8, 2)))).count("= tanh ")

    assert num_tanh() == 2
    assert num_tanh(checkpoint=4) == 4


@pytest.mark.parametrize(
    ("num_steps", "size"), [(0, 1), (1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4), (10**6, 1000)]
)
def test_the_square_root_is_rounded_up(num_steps, size):
    assert sqrt_size(num_steps) == size


WRONG = {
    "no steps": ({"checkpoint": 0}, ValueError, "checkpoint must be at least 1, got 0"),
    "a word": ({"checkpoint": "log"}, TypeError, "checkpoint must be an int, got 'log'"),
    "a float": ({"checkpoint": 2.0}, TypeError, "checkpoint must be an int, got 2.0"),
    "a bool": ({"checkpoint": True}, TypeError, "checkpoint must be an int, got True"),
    "no unrolling": ({"scan_unroll": 0}, ValueError, "scan_unroll must be at least 1"),
    "unrolling by a bool": ({"scan_unroll": True}, TypeError, "scan_unroll must be an int"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_counts_raise(name):
    options, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        jr.sequential(**options)


@pytest.mark.parametrize("size", [0, -2])
def test_a_wrong_chunk_raises(size):
    with pytest.raises(ValueError, match="size must be at least 1"):
        jr.chunked(size)


@pytest.mark.parametrize(
    ("size", "inner", "error", "message"),
    [
        (lambda num_steps: 0, None, ValueError, r"size\(T\) must be at least 1, got 0"),
        (2, jr.sequential, TypeError, "inner must be an Evaluator"),
        ([2], None, TypeError, "size must be an int"),
    ],
)
def test_a_chunk_that_cannot_be_run_raises(size, inner, error, message):
    cell = jr.elman(2)
    params = cell.init(jax.random.key(0), 2)
    with pytest.raises(error, match=message):
        jr.unroll(cell, params, jnp.ones((4, 2)), evaluator=jr.chunked(size, inner))


def test_a_chunk_longer_than_the_sequence_runs_without_jit():
    cell = jr.elman(2)
    params, xs = cell.init(jax.random.key(0), 2), jnp.ones((4, 2))
    for size in (4, 9):
        with jax.disable_jit():
            got = jr.unroll(cell, params, xs, evaluator=jr.chunked(size, jr.newton()))
        want = jr.unroll(cell, params, xs, evaluator=jr.chunked(size, jr.newton()))
        np.testing.assert_allclose(got.outputs, want.outputs, rtol=1e-6)
        assert want.info.chunks.converged.shape == (4 // size,)


@pytest.mark.parametrize(
    ("evaluator", "want"),
    [
        (None, jr.sequential()),
        (jr.sequential(), jr.sequential()),
        (jr.sequential(checkpoint=2), jr.sequential(checkpoint=2)),
    ],
)
def test_info_is_the_evaluator(evaluator, want):
    cell = jr.elman(2)
    params = cell.init(jax.random.key(0), 2)
    assert jr.unroll(cell, params, jnp.ones((4, 2)), evaluator=evaluator).info == want
