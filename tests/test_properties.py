"""Random masks, resets and cuts against the slow obvious thing: a loop over rows and steps.

The loop knows no engine: it splits a row into its sequences, drops the masked steps, runs each
sequence with project, advance and emit, and goes back through the same steps for the gradient.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxrnn as jr

D, H = 2, 2
CELLS = {
    "elman": jr.elman(H),
    "lstm": jr.lstm(H, peephole=True),
    "gru": jr.gru(H),
    "gru before": jr.gru(H, reset_after=False),
    "mgu": jr.mgu(H),
    "zoneout": jr.zoneout(jr.gru(H), 0.3),
    "learned lstm": jr.learned_initial_carry(jr.lstm(H, projection=1, coupled=True)),
}
# Cell, batch axes, T: few, because each is compiled once in both directions.
SHAPES = [
    ("elman", (), 5),
    ("elman", (2, 2), 4),
    ("elman", (3,), 0),
    ("lstm", (3,), 6),
    ("lstm", (2,), 1),
    ("learned lstm", (3,), 6),
    ("gru", (3,), 5),
    ("gru before", (2,), 5),
    ("mgu", (3,), 5),
    ("zoneout", (2,), 5),
]
EXAMPLES = 40


def pieces(reset, reverse):
    """The steps of a row in the order they are read, cut into sequences.

    The first one goes on from the given carry, the others start from the initial carry.
    """
    starts = [t for t, flag in enumerate(reset) if flag]
    bounds = [0, *starts, len(reset)]
    cut = [list(range(*span)) for span in zip(bounds, bounds[1:], strict=False)]
    if not reverse:
        return cut
    # Nothing stands before step 0, so a sequence that starts there cuts nothing off.
    cut = cut[1:] if starts and starts[0] == 0 else cut
    return [steps[::-1] for steps in reversed(cut)]


@functools.cache
def single_step(name):
    """`(params, carry, x) -> (carry, y)` of one row, and its pullback."""
    cell = CELLS[name]

    def step(params, carry, x):
        if cell.prepare is not None:
            xs = cell.prepare(params, None, x[None], None)
            x = jax.tree.map(lambda leaf: leaf[0], xs)
        carry = cell.advance(params, carry, cell.project(params, x))
        return carry, cell.emit(params, carry, x)

    def pullback(params, carry, x, cotangent):
        return jax.vjp(step, params, carry, x)[1](cotangent)

    def initial_pullback(params, cotangent):
        return jax.vjp(lambda params: cell.initial_carry(params), params)[1](cotangent)[0]

    return jax.jit(step), jax.jit(pullback), jax.jit(initial_pullback)


def slow_row(name, params, carry, xs, mask, reset, weights, reverse):
    """Outputs, the last carry and all gradients of one row for the loss of `fast`."""
    step, pullback, initial_pullback = single_step(name)
    output_weights, carry_weights = weights
    outputs, xs_gradient = np.zeros_like(output_weights), np.zeros_like(xs)
    tape = []
    for number, piece in enumerate(pieces(reset, reverse)):
        carry = carry if number == 0 else CELLS[name].initial_carry(params)
        real = [t for t in piece if mask[t]]
        tape.append((number, real, []))
        for t in real:
            tape[-1][2].append(carry)
            carry, outputs[t] = step(params, carry, xs[t])
    gradient = jax.tree.map(np.zeros_like, params)
    pulled = carry_weights
    for number, real, carries in reversed(tape):
        for t, before in zip(reversed(real), reversed(carries), strict=True):
            cotangent = (pulled, output_weights[t])
            of_params, pulled, xs_gradient[t] = pullback(params, before, xs[t], cotangent)
            gradient = jax.tree.map(np.add, gradient, of_params)
        if number > 0:
            gradient = jax.tree.map(np.add, gradient, initial_pullback(params, pulled))
            pulled = jax.tree.map(np.zeros_like, pulled)
    return (outputs, carry, pulled, xs_gradient), gradient


@functools.cache
def fast(name, reverse):
    """The same from `unroll`."""
    cell = CELLS[name]

    def loss(params, carry, xs, mask, reset, weights):
        rollout = jr.unroll(cell, params, xs, carry=carry, mask=mask, reset=reset, reverse=reverse)
        rolled = (rollout.outputs, rollout.carry)
        products = jax.tree.map(jnp.multiply, weights, rolled)
        return sum(map(jnp.sum, jax.tree.leaves(products))), rolled

    return jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))


def flags(shape):
    size = int(np.prod(shape))
    return st.lists(st.booleans(), min_size=size, max_size=size).map(
        lambda values: np.array(values, bool).reshape(shape)
    )


def shapes_of(name, shape):
    """Params, carry, xs and weights of the outputs and the last carry, as shapes."""
    cell = CELLS[name]
    params = jax.eval_shape(lambda key: cell.init(key, D), jax.random.key(0))
    carry = jax.eval_shape(lambda params: cell.initial_carry(params, shape[:-1]), params)
    xs = jax.ShapeDtypeStruct((*shape, D), float)
    outputs = jax.ShapeDtypeStruct((*shape, cell.num_outputs(D)), float)
    return params, carry, xs, (outputs, carry)


def normal_like(seed, shapes):
    generator = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: generator.standard_normal(leaf.shape), shapes)


def at(row, tree):
    return jax.tree.map(lambda leaf: leaf[row], tree)


def assert_close(got, want):
    def leaf_close(got, want):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)

    jax.tree.map(leaf_close, got, want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("name", "batch_shape", "num_steps"), SHAPES)
def test_unroll_is_the_loop_over_rows_and_steps(name, batch_shape, num_steps, reverse):
    shape = (*batch_shape, num_steps)

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(flags(shape), flags(shape), st.integers(0, 2**16))
    def agree(mask, reset, seed):
        params, carry, xs, weights = normal_like(seed, shapes_of(name, shape))
        poisoned = np.where(mask[..., None], xs, np.nan)
        arguments = (carry, poisoned, mask, reset, weights)
        gradients, rolled = jax.device_get(fast(name, reverse)(params, *arguments))
        total = jax.tree.map(np.zeros_like, params)
        for row in np.ndindex(batch_shape):
            slow, gradient = slow_row(name, params, *at(row, arguments), reverse)
            assert_close(at(row, (*rolled, *gradients[1:])), slow)
            total = jax.tree.map(np.add, total, gradient)
        assert_close(gradients[0], total)

    with jax.enable_x64(True):
        agree()


@functools.cache
def forward(name):
    def run(params, carry, xs, mask, reset):
        rollout = jr.unroll(CELLS[name], params, xs, carry=carry, mask=mask, reset=reset)
        return rollout.outputs, rollout.carry

    return jax.jit(run)


@pytest.mark.parametrize("name", ["elman", "learned lstm"])
def test_a_cut_anywhere_changes_nothing(name):
    num_steps, cell = 6, CELLS[name]

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(flags((3, num_steps)), flags((3, num_steps)), st.integers(0, num_steps))
    def agree(mask, reset, cut):
        params = normal_like(0, shapes_of(name, (3, num_steps))[0])
        carry = cell.initial_carry(params, (3,))
        xs = np.random.default_rng(cut).standard_normal((3, num_steps, D))
        whole, last = forward(name)(params, carry, xs, mask, reset)
        parts = []
        for span in (np.s_[:, :cut], np.s_[:, cut:]):
            outputs, carry = forward(name)(params, carry, xs[span], mask[span], reset[span])
            parts.append(outputs)
        assert_close((np.concatenate(parts, 1), carry), (whole, last))

    with jax.enable_x64(True):
        agree()
