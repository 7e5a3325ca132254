"""Every model in forward mode, against central differences of sixth order in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.frame.models import MODELS, Sizes

B, T, D = 2, 5, 4
SIZES = Sizes.of(D, 2, window=3)
MASK = np.array([[1, 0, 1, 1, 1], [1, 1, 1, 1, 0]]) > 0
RESET = np.array([[0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]) > 0

CASES = {name: (model.make(SIZES), None) for name, model in MODELS.items()} | {
    "a checkpoint": (jr.lstm(D), jr.sequential(checkpoint=2)),
    "chunks": (jr.gru(D), jr.chunked(2)),
    "associative": (jr.min_gru(D), jr.associative()),
    "newton": (jr.gru(D), jr.newton()),
    "newton in chunks": (jr.elman(D), jr.chunked(3, jr.newton(jacobian="diagonal"))),
    "a stack": (jr.serial(jr.bidirectional(jr.gru(2)), jr.block(jr.lstm(D), D)), None),
    "subsample": (jr.serial(jr.gru(D), jr.subsample(2), jr.mgu(D)), None),
}


def moved(tree, seed):
    """A tree of float64 near the given one, or a direction from it."""
    generator = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + 0.3 * generator.standard_normal(leaf.shape), tree)


def check_forward(run, point):
    """The tangent of `run(*point)` along a random direction is its slope there."""
    direction = moved(point, 1)

    @jax.jit
    def at(size):
        there = jax.tree.map(lambda leaf, way: leaf + size * way, point, direction)
        return jax.jvp(run, there, direction)

    size, (_, got) = 1e-3, at(0.0)
    weights = {1: 45, 2: -9, 3: 1}
    slopes = [w * (at(k * size)[0] - at(-k * size)[0]) for k, w in weights.items()]
    want = sum(slopes) / (60 * size)
    np.testing.assert_allclose(got, want, atol=1e-9 * max(1, np.abs(want).max()))


@pytest.mark.parametrize("name", CASES)
def test_unroll(name, x64):
    model, evaluator = CASES[name]
    params = moved(model.init(jax.random.key(0), D), 0)
    xs = moved(np.ones((B, T, D)), 0)
    # A convolution is one only without resets.
    reset = None if name in ("s4", "convolutional") else RESET

    def run(params, xs):
        return jr.unroll(model, params, xs, mask=MASK, reset=reset, evaluator=evaluator).outputs

    check_forward(run, (params, xs))


def test_attention_to_a_source(x64):
    model = jr.encoder_decoder(jr.gru(2), jr.gru(2), jr.dense(2), attention=jr.additive_score(2))
    params = moved(model.init(jax.random.key(0), D, D), 0)
    xs = moved(np.ones((B, T, D)), 0)

    def run(params, source):
        flags = {"source_mask": MASK, "mask": MASK}
        return model.teacher_forced(params, source, xs, **flags).outputs

    check_forward(run, (params, xs))


def test_every_derivative_of_a_step(x64):
    cell = jr.gru(2, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 1)

    def step(h):
        return jr.step(cell, params, jr.cells.GRUCarry(h), jnp.ones(1))[1]

    @jax.jit
    def derivatives(start):
        _, pushed = jax.linearize(step, start)
        forward = jax.jacfwd(step)
        first = jax.jacrev(step)(start), forward(start), jax.vmap(pushed)(jnp.eye(2)).T
        second = jax.jacrev(jax.jacrev(step))(start), jax.hessian(step)(start)
        return first, (*second, jax.jacfwd(forward)(start)), jax.vmap(forward)(start[None])[0]

    first, second, mapped = derivatives(jnp.zeros(2))
    for got in (*first[1:], mapped):
        np.testing.assert_allclose(got, first[0], rtol=1e-10)
    for got in second[1:]:
        np.testing.assert_allclose(got, second[0], rtol=1e-10, atol=1e-14)
    assert np.abs(second[0]).max() > 0.01


def test_a_step_of_layers_that_read_several_steps_at_once():
    """The program alone: what a step computes is what `unroll` does."""
    layer = jr.serial(*(CASES[name][0] for name in ("s4", "mlstm", "mamba2", "self_attention")))
    params = layer.init(jax.random.key(0), D)

    def run(params, x):
        return jr.step(layer, params, None, x)[1]

    y, tangent = jax.eval_shape(lambda *args: jax.jvp(run, args, args), params, jnp.ones((B, D)))
    assert y.shape == tangent.shape
