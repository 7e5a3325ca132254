import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiler import compiled_with_defaults, temporary_bytes

import jaxrnn as jr

KEY = jax.random.key(0)
AUTODIFF = jr.sequential(derivative="autodiff")


def inputs(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def shapes(record, num_inputs):
    return jax.eval_shape(lambda: record.init(KEY, num_inputs))


@pytest.mark.parametrize(("D", "H", "C", "T", "batch"), [(3, 16, 5, 100, 1), (7, 8, 2, 9, 4)])
def test_the_audit_of_the_notes(D, H, C, T, batch):
    model = jr.serial(jr.elman(H), jr.dense(C))
    params = shapes(model, D)
    counted = jr.count_cost(model, params, inputs(batch, T, D))
    assert counted.parameters == H * D + H**2 + H + C * H + C
    assert counted.multiply_adds == batch * T * (H * D + H**2 + C * H)
    assert counted.streaming_memory == batch * H * 4
    assert jr.count_cost(model, params, inputs(T, batch, D), time_major=True) == counted


def test_gates_and_diagonals():
    D, H, T = 3, 8, 10
    lstm = jr.count_cost(jr.lstm(H), shapes(jr.lstm(H), D), inputs(T, D))
    # Four gates, and f c, i g, o tanh(c).
    assert lstm[:2] == (4 * (D * H + H * H + H), T * (4 * (D * H + H * H) + 3 * H))
    assert lstm.streaming_memory == 2 * H * 4
    average = jr.count_cost(jr.ema(), shapes(jr.ema(), D), inputs(T, D))
    assert average[:2] == (D, T * 2 * D)


def test_training_memory_grows_with_time_and_streaming_memory_does_not():
    """Proportional to T H for the states, an LSTM keeps more of each step; √T with checkpoints."""
    H = 16

    def at(cell, T, evaluator=None):
        return jr.count_cost(cell, shapes(cell, 4), inputs(T, 4), evaluator=evaluator)

    for cell, states, most in ((jr.elman(H), 1, 4), (jr.lstm(H), 2, 16)):
        for evaluator in (AUTODIFF, None):
            costs = [at(cell, T, evaluator) for T in (100, 200, 400)]
            growth = np.diff([counted.training_memory for counted in costs]) / (H * 4)
            assert growth[1] == 2 * growth[0]
            # The states themselves, and what else of a step the evaluator keeps.
            assert 100 * states <= growth[0] <= 100 * most
            assert len({counted.streaming_memory for counted in costs}) == 1
    whole = at(jr.elman(H), 400, AUTODIFF).training_memory
    assert at(jr.elman(H), 400, jr.sequential(checkpoint=20)).training_memory < whole / 20


def test_attention_is_quadratic_in_the_length():
    def at(T):
        layer = jr.self_attention(1, window=T)
        params = shapes(layer, 4)
        return jr.count_cost(layer, params, inputs(T, 4))

    short, long = at(256), at(512)
    assert 3 < long.multiply_adds / short.multiply_adds < 4.2
    assert 1.9 < long.streaming_memory / short.streaming_memory < 2.1


@pytest.mark.parametrize("make", [jr.elman, jr.lstm])
def test_agrees_with_what_the_compiler_counts(make):
    cell, D = make(64), 32
    params = shapes(cell, D)

    def loss(params, xs):
        return jr.unroll(cell, params, xs, evaluator=AUTODIFF).outputs.sum()

    def compiled(T):
        arguments = params, inputs(T, D)
        counted = jr.count_cost(cell, *arguments, evaluator=AUTODIFF)
        return counted, compiled_with_defaults(loss, *arguments).cost_analysis()["flops"]

    # A loop's body is counted once there, whatever its length, and a multiply-add as two.
    counted, flops = compiled(1)
    assert 1 <= flops / (2 * counted.multiply_adds) < 1.05

    def temporary(T):
        return temporary_bytes(jax.grad(loss), params, inputs(T, D))

    predicted = [
        jr.count_cost(cell, params, inputs(T, D), evaluator=AUTODIFF)[2] for T in (64, 128)
    ]
    growth = (temporary(128) - temporary(64)) / (predicted[1] - predicted[0])
    assert 0.9 < growth < 1.1


def test_complex_products_are_four_and_both_halves_are_parameters():
    def advance(params, carry, z):
        return carry * params + z

    cell = jr.simple_cell(
        lambda key, num_inputs: jnp.ones(num_inputs, jnp.complex64),
        advance,
        3,
        initial_carry=lambda params, batch_shape=(): jnp.zeros((*batch_shape, 3), jnp.complex64),
        emit=lambda params, carry, x: carry.real,
    )
    counted = jr.count_cost(cell, cell.init(KEY, 3), inputs(5, 3))
    assert (counted.parameters, counted.multiply_adds, counted.streaming_memory) == (6, 60, 24)


def test_layers_that_cannot_stream_and_loops_without_a_count():
    layer = jr.bidirectional(jr.elman(2), jr.elman(2))
    params = shapes(layer, 3)
    assert jr.count_cost(layer, params, inputs(4, 3)).streaming_memory is None
    cell = jr.elman(2)
    with pytest.raises(ValueError, match="must not loop until something converges"):
        jr.count_cost(cell, shapes(cell, 3), inputs(4, 3), evaluator=jr.newton())


def test_more_histories_than_states():
    """With one bit a number, 2 numbers have 4 states; of the 8 histories of 3 inputs two meet."""
    cell = jr.elman(2)
    params = cell.init(KEY, 1)
    bits = jr.state_capacity_bits(cell, params, bits_per_number=1)
    assert bits == 2
    histories = jnp.array(np.indices((2,) * (bits + 1)).reshape(bits + 1, -1).T, jnp.float32)
    carry = jr.unroll(cell, params, histories[..., None]).carry.h
    assert len({tuple(row) for row in np.sign(carry)}) <= 2**bits < len(histories)
    # The LRU has three complex numbers, each two of 32 bits.
    for record, expected in ((cell, 64), (jr.lstm(4), 256), (jr.dense(4), 0), (jr.lru(2, 3), 192)):
        assert jr.state_capacity_bits(record, shapes(record, 1)) == expected
    with pytest.raises(ValueError, match="bits_per_number must be at least 1"):
        jr.state_capacity_bits(cell, params, bits_per_number=0)
