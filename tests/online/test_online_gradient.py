"""The specification of `online_gradient` is `jax.grad` of the summed loss through `unroll`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiler import temporary_bytes

import jaxrnn as jr
from jaxrnn.online._structure import find_recurrences
from jaxrnn.testing import LawBroken, check_cell

D, T, BATCH = 3, 7, (2,)


def loss_of(weights):
    return lambda y: (weights * y + jnp.sin(y)).sum()


def stream(model, batch_shape=BATCH):
    """Parameters, and `(xs, weights, mask, reset)` in float64, time first; NaN in the padding."""
    numbers = np.random.default_rng(0)
    like = jax.eval_shape(lambda key: model.init(key, D), jax.random.key(0))
    params = jax.tree.map(lambda leaf: 0.4 * numbers.normal(size=leaf.shape), like)
    leading = (T, *batch_shape)
    mask, reset = numbers.random(leading) < 0.7, numbers.random(leading) < 0.3
    xs = np.where(mask[..., None], numbers.normal(size=(*leading, D)), np.nan)
    weights = numbers.normal(size=(*leading, model.num_outputs(D)))
    return params, (xs, weights, mask, reset)


def through_time(model, params, steps):
    xs, weights, mask, reset = steps

    def total(params):
        run = jr.unroll(model, params, xs, mask=mask, reset=reset, time_major=True)
        return loss_of(weights)(run.outputs)

    return jax.value_and_grad(total)(params)


def online_sums(model, params, steps, method="exact"):
    online = jr.online_gradient(model, method)

    def body(state, one):
        traces, carry, sums = state
        x, weights, mask, reset = one
        step = online.step(params, traces, carry, x, loss_of(weights), mask=mask, reset=reset)
        sums = jax.tree.map(jnp.add, sums, step.gradients)
        return (step.traces, step.carry, sums), step.loss

    xs = steps[0]
    start = online.init(params, xs[0]), model.initial_carry(params, xs.shape[1:-1])
    state, losses = jax.lax.scan(body, (*start, jax.tree.map(jnp.zeros_like, params)), steps)
    return losses.sum(), state[2]


def assert_close(came, expected, tolerance=1e-10):
    for one, other in zip(jax.tree.leaves(came), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, tolerance, tolerance)


def blocks_of(model, params, method="exact"):
    """For each recurrence `(k, G)`, and m of every leaf of the parameters."""
    x = jax.ShapeDtypeStruct((D,), jnp.float64)
    return [
        (found.members.shape, [owners and owners.block for owners in found.owners])
        for found in find_recurrences(model, method, params, x)
    ]


ELEMENTWISE = {
    "ema": (jr.ema(), (1, 3), [1]),
    "diagonal_rnn": (jr.diagonal_rnn(4, selective=True), (1, 4), [1] * 4),
    "lru": (jr.lru(2, 3), (2, 3), [1] * 5 + [None] * 3),
    "s5": (jr.s5(2, 6), (2, 3), [1] * 5 + [None] * 3),
    "s4d": (jr.s4d(4), (2, 6), [1, 1, 2, None, None, None]),
    "min_gru": (jr.min_gru(4), (1, 4), [1] * 2),
    "min_lstm": (jr.min_lstm(4), (1, 4), [1] * 2),
    "rg_lru": (jr.rg_lru(3, normalized_start=False), (1, 3), [1] * 3),
    "s6": (jr.s6(2), (1, 6), [6, 2, 2, 1, None]),
    "detached lstm": (jr.detached_recurrence(jr.lstm(2)), (2, 2), [1] * 3),
}
OTHERS = {
    "heads": (jr.learned_initial_carry(jr.slstm(4, 2)), (8, 2), [1] * 7),
    "dense": (
        jr.serial(jr.dense(2), jr.gru(2), jr.layer_norm()),
        (2, 1),
        [1] * 6 + [None] * 2,
    ),
}


@pytest.mark.parametrize("name", [*ELEMENTWISE, *OTHERS])
def test_gradients_are_those_of_backpropagation_through_time(name, x64):
    model, shape, blocks = (ELEMENTWISE | OTHERS)[name]
    params, steps = stream(model, {"ema": (), "lru": (2, 1)}.get(name, BATCH))
    assert blocks_of(model, params) == [(shape, blocks)]

    @jax.jit
    def both(params):
        return through_time(model, params, steps), online_sums(model, params, steps)

    expected, came = both(params)
    assert_close(came, expected)


def test_a_stack_is_exact_or_drops_what_later_memories_know(x64):
    first, second = jr.lru(2, 2), jr.min_gru(2)
    model = jr.serial(first, second)
    params, steps = stream(model)
    # Together the two states are one group of 4 + 2 real numbers; apart, each has its own.
    assert [shape for shape, _ in blocks_of(model, params)] == [(6, 1)]
    assert blocks_of(model, params, "layerwise") == [
        ((2, 2), [1] * 5 + [None] * 5),
        ((1, 2), [None] * 5 + [2] * 3 + [1] * 2),
    ]
    xs, weights, mask, reset = steps
    flags = {"mask": mask, "reset": reset, "time_major": True}

    def with_memory_held(params):
        """The loss if the carry that the second layer has before a step were a constant."""
        middle = jr.unroll(first, params[0], xs, **flags).outputs
        after = jr.carries(second, params[1], middle, **flags)
        initial = second.initial_carry(params[1], BATCH)
        before = jax.tree.map(lambda h, h0: jnp.concatenate([h0[None], h[:-1]]), after, initial)

        def run(carry, x, mask, reset):
            return jr.step(second, params[1], carry, x, mask=mask, reset=reset)[1]

        return loss_of(weights)(jax.vmap(run)(jr.detach(before), middle, mask, reset))

    @jax.jit
    def all_of_them(params):
        return (
            through_time(model, params, steps)[1],
            jax.grad(with_memory_held)(params),
            online_sums(model, params, steps)[1],
            online_sums(model, params, steps, "layerwise")[1],
        )

    full, held, exact, layerwise = all_of_them(params)
    assert_close(exact, full)
    # Of the first layer those that reach its state; its readout reaches the second one first.
    assert_close(layerwise, ((*held[0][:5], *full[0][5:]), full[1]))
    assert abs(full[0].kernel_real - held[0].kernel_real).max() > 1e-3


def test_what_one_layer_carries_is_traced_together():
    model = jr.mlstm(2, 2)
    params, _ = stream(model)
    # The matrix and the vector of a head read the stabiliser, which reads neither.
    assert blocks_of(model, params, "layerwise") == blocks_of(model, params)


def test_snap1_keeps_what_a_unit_knows_of_itself(x64):
    model = jr.elman(4)
    params, (xs, weights, _, _) = stream(model, ())
    xs = np.nan_to_num(xs)
    steps = xs, weights, jnp.ones(T, bool), jnp.zeros(T, bool)
    kernel, recurrent_kernel, bias = params
    expected = [np.zeros_like(leaf) for leaf in params]
    h, traces = np.zeros(4), [np.zeros_like(leaf) for leaf in params]
    for x, w in zip(xs, weights, strict=True):
        new = np.tanh(x @ kernel + h @ recurrent_kernel + bias)
        slope = 1 - new**2
        reached = slope * (w + np.cos(new))
        read = x[:, None], h[:, None], np.ones(())
        for total, trace, one in zip(expected, traces, read, strict=True):
            total += one * reached + trace * (recurrent_kernel @ reached)
        for trace, one in zip(traces, read, strict=True):
            trace[...] = slope * (np.diag(recurrent_kernel) * trace + one)
        h = new
    _, came = jax.jit(lambda params: online_sums(model, params, steps, "snap1"))(params)
    assert_close(list(came), expected)
    assert blocks_of(model, params, "snap1") == [((1, 4), [1] * 3)]


def test_memory_does_not_grow_with_the_stream():
    model = jr.min_gru(1)
    params, _ = stream(model)

    def steps(num_steps):
        shapes = {"xs": (num_steps, *BATCH, D), "weights": (num_steps, *BATCH, 1)}
        floats = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes.values()]
        return (*floats, *[jax.ShapeDtypeStruct((num_steps, *BATCH), bool)] * 2)

    def learn(steps):
        return online_sums(model, params, steps)[1]

    short, long = (temporary_bytes(learn, steps(num_steps)) for num_steps in (1_000, 100_000))
    # The losses of all steps, which the caller asked for, are the only thing that is longer.
    assert long - short <= 4 * 99_000


def test_tokens_half_precision_and_nan_before_a_reset():
    model = jr.serial(jr.embed(2), jr.min_gru(2))
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), stream(model)[0])
    online = jr.online_gradient(model)
    tokens, reset = np.array([1, 2]), np.array([True, False])

    @jax.jit
    def step(spoiled):
        traces, carry = online.init(params, tokens), model.initial_carry(params, (2,))
        assert {leaf.dtype for leaf in jax.tree.leaves(traces)} == {jnp.dtype(jnp.float32)}
        before = jax.tree.map(lambda leaf: leaf.at[0].add(spoiled), (traces, carry))
        return online.step(params, *before, tokens, jnp.sum, reset=reset)

    came, expected = step(np.nan), step(0.0)
    jax.tree.map(np.testing.assert_array_equal, came, expected)
    assert {leaf.dtype for leaf in jax.tree.leaves(came.gradients)} == {jnp.dtype(jnp.bfloat16)}


def test_a_detached_recurrence_breaks_one_law():
    with pytest.raises(LawBroken, match="gradient: it agrees with finite differences"):
        check_cell(jr.detached_recurrence(jr.lstm(2)))


def test_errors():
    cell = jr.gru(2)
    params, x = stream(cell)[0], np.ones((2, D))
    online = jr.online_gradient(cell)
    traces, carry, one = jax.jit(
        lambda params: (
            online.init(params, x),
            cell.initial_carry(params, (2,)),
            online.init(params, x[0]),
        )
    )(params)
    with pytest.raises(TypeError, match="model must be a Cell or a Layer, got int"):
        jr.online_gradient(3)
    with pytest.raises(ValueError, match="method must be one of .*, got 'rtrl'"):
        jr.online_gradient(cell, "rtrl")
    with pytest.raises(ValueError, match="model must be causal to stream"):
        jr.online_gradient(jr.bidirectional(cell))
    with pytest.raises(TypeError, match="model must have a carry of floating or complex numbers"):
        jr.online_gradient(jr.dense(2)).init(stream(jr.dense(2))[0], x)
    with pytest.raises(ValueError, match=r"traces\[0\].kernel must have the shape"):
        online.step(params, one, carry, x, jnp.sum)
    with pytest.raises(TypeError, match="traces must have the structure"):
        online.step(params, (), carry, x, jnp.sum)
    with pytest.raises(ValueError, match="carry.h must have the shape"):
        online.step(params, traces, jax.tree.map(lambda h: h[0], carry), x, jnp.sum)
    with pytest.raises(ValueError, match="reset must have the shape"):
        online.step(params, traces, carry, x, jnp.sum, reset=jnp.zeros(3, bool))
    with pytest.raises(TypeError, match="cell must have a Split as its advance"):
        jr.detached_recurrence(jr.lru(2, 2))
