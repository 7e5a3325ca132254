"""jit, grad, vmap and jvp, and how often a call compiles."""

import jax
import jax.numpy as jnp
import numpy as np
from support.lstm_example import (
    MASK,
    NUM_STEPS,
    assert_close,
    inputs,
    lstm,
)

import jaxrnn as jr


def test_transformations_compose():
    """pytorch#5261: vmap, double backward and forward mode, which RNN kernels lack."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)

    def last(params, xs):
        return jr.unroll(cell, params, xs, mask=np.arange(NUM_STEPS) < 5).carry.h.sum()

    batched = jr.unroll(cell, params, xs, mask=np.tile(np.arange(NUM_STEPS) < 5, (3, 1))).carry.h
    assert_close(jax.vmap(last, (None, 0))(params, xs), batched.sum(-1))
    tangent = jax.tree.map(jnp.ones_like, params)
    _, forward = jax.jvp(lambda params: last(params, xs[0]), (params,), (tangent,))
    backward = jax.grad(last)(params, xs[0])
    assert_close(forward, sum(leaf.sum() for leaf in jax.tree.leaves(backward)))


def test_double_backward_is_the_difference_of_gradients():
    """pytorch#5261."""
    cell, params = lstm()
    xs = inputs(NUM_STEPS)
    direction = inputs(NUM_STEPS, seed=3)

    @jax.jit
    def gradient(xs):
        return jax.grad(lambda xs: jr.unroll(cell, params, xs).carry.h.sum())(xs)

    def slope(xs):
        return (gradient(xs) * direction).sum()

    difference = (gradient(xs + 1e-5 * direction) - gradient(xs - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(jax.grad(slope)(xs), difference, atol=1e-8)


def test_jit_needs_no_key():
    """flax#4713: zeros drew a key, which failed under jit."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    jitted = jax.jit(lambda params, xs: jr.unroll(cell, params, xs))(params, xs)
    assert_close(jitted.outputs, jr.unroll(cell, params, xs).outputs)


def test_the_path_that_ran_is_told():
    """keras#20902: the fused path was silently not taken."""
    cell, params = lstm()
    rollout = jax.jit(lambda xs: jr.unroll(cell, params, xs))(inputs(NUM_STEPS))
    assert rollout.info == jr.sequential()


def test_the_program_does_not_grow_with_the_sequence():
    """jax#2777: unrolled loops compile ever longer."""
    cell, params = lstm()

    def size(num_steps):
        loss = lambda params: jr.unroll(cell, params, inputs(num_steps)).outputs.sum()  # noqa: E731
        return len(str(jax.make_jaxpr(jax.grad(loss))(params)).splitlines())

    assert size(2000) == size(3000)


def counting(cell, traces):
    def advance(*args):
        traces.append(1)
        return cell.advance(*args)

    return cell._replace(advance=advance)


def test_one_compilation_per_shape():
    traces = []
    cell = counting(jr.elman(2), traces)
    params = cell.init(jax.random.key(0), 2)
    run = jax.jit(lambda params, xs, mask: jr.unroll(cell, params, xs, mask=mask).outputs)
    run(params, inputs(3, NUM_STEPS), MASK)
    first = len(traces)
    run(jax.tree.map(lambda leaf: 2 * leaf, params), inputs(3, NUM_STEPS, seed=2), ~MASK)
    assert first > 0 and len(traces) == first


def test_a_kept_cell_compiles_once_outside_jit():
    traces = []
    cell = counting(jr.elman(2), traces)
    params = cell.init(jax.random.key(0), 2)
    jr.unroll(cell, params, inputs(3, NUM_STEPS))
    first = len(traces)
    for seed in (2, 3):
        jr.unroll(cell, params, inputs(3, NUM_STEPS, seed=seed))
        jr.unroll(cell._replace(), params, inputs(3, NUM_STEPS, seed=seed))
    assert len(traces) == first
    jr.unroll(cell, params, inputs(3, NUM_STEPS + 1))
    assert len(traces) > first


def test_streaming_compiles_once():
    traces = []
    cell = counting(jr.elman(2), traces)
    params = cell.init(jax.random.key(0), 2)
    carry = cell.initial_carry(params, (3,))
    counts = []
    for x in inputs(NUM_STEPS, 3):
        carry, _ = jr.step(cell, params, carry, x)
        counts.append(len(traces))
    assert len(set(counts)) == 1
