"""Where a row begins, from either end, and what the sequences inside of it start from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiler import temporary_bytes
from support.lstm_example import SMOOTHER, assert_close

import jaxrnn as jr
from jaxrnn.layers import Directions

# A letter is a real step and a capital starts a new sequence; "." is padding, and "," padding that
# starts a new sequence.
ROWS = ("abcdef", "abcd..", "..abcd", "a.bc.d", "AbCdEf", ".aB,cD", "Ab,...", "......", "...,.A")
SIGNS = np.array([list(row) for row in ROWS])
MASK = np.char.isalpha(SIGNS)
RESET = np.char.isupper(SIGNS) | (SIGNS == ",")
NUMBER = np.cumsum(RESET, 1)
NUM_STARTS = 4
RATE = np.float64(0.5)


def normal(seed, tree):
    generator = np.random.default_rng(seed)

    def draw(leaf):
        drawn = generator.standard_normal((2, *leaf.shape))
        is_complex = jnp.issubdtype(leaf.dtype, jnp.complexfloating)
        return jnp.asarray(drawn[0] + 1j * drawn[1] if is_complex else drawn[0], leaf.dtype)

    return jax.tree.map(draw, tree)


def weighted(tree):
    leaves = jax.tree.leaves(tree)
    return sum(jnp.sum(jnp.sin(jnp.abs(leaf + 0.1 * i))) for i, leaf in enumerate(leaves))


def made(model, num_inputs=2):
    """Parameters, inputs, and starts that are no initial carries."""
    with jax.enable_x64(True):
        params = model.init(jax.random.key(0), num_inputs)
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
        xs = normal(1, jnp.zeros((*MASK.shape, num_inputs)))
        starts = normal(2, model.initial_carry(params, (len(ROWS), NUM_STARTS)))
    return params, xs, starts


def alone(model, params, xs, carries, reverse=False):
    """Every sequence of every row as a row of its own, from carries `[B, 1 + S, ...]`."""
    numbers = np.arange(NUM_STARTS + 1)
    mask = MASK[:, None] & (NUMBER[:, None] == numbers[:, None])
    repeated = jnp.repeat(xs[:, None], len(numbers), 1)
    rollout = jr.unroll(model, params, repeated, carry=carries, mask=mask, reverse=reverse)
    return rollout.outputs.sum(1), rollout.carry


def after(first, starts):
    return jax.tree.map(lambda leaf, rest: jnp.concatenate([leaf[:, None], rest], 1), first, starts)


def of_sequence(number, tree):
    return jax.tree.map(lambda leaf: leaf[jnp.arange(len(ROWS)), number], tree)


def with_gradients(run, *args):
    def loss(*args):
        rolled = run(*args)
        return weighted(rolled), rolled

    argnums = tuple(range(len(args)))
    return jax.jit(jax.value_and_grad(loss, argnums, has_aux=True, allow_int=True))(*args)


def test_a_carry_at_both_ends(x64):
    """That of the backward direction comes before the last step, wherever padding and resets are.

    Each direction is compared with the cell that reads a row turned round by hand.
    """
    cells = Directions(jr.lstm(3), jr.elman(2))
    layer = jr.bidirectional(*cells)
    params, xs, _ = made(layer)
    carry = normal(3, layer.initial_carry(params, (len(ROWS),)))

    def together(params, xs, carry):
        rollout = jr.unroll(layer, params, xs, carry=carry, mask=MASK, reset=RESET)
        return rollout.outputs, rollout.carry

    def apart(params, xs, carry):
        forward = jr.unroll(
            cells.forward, params.forward, xs, carry=carry.forward, mask=MASK, reset=RESET
        )
        # Turned round, the flag before step t comes before step t - 1.
        reset = np.roll(np.where(np.arange(xs.shape[1]) == 0, False, RESET)[:, ::-1], 1, 1)
        flags = {"mask": MASK[:, ::-1], "reset": reset}
        turned = jr.unroll(
            cells.backward, params.backward, xs[:, ::-1], carry=carry.backward, **flags
        )
        outputs = jnp.concatenate([forward.outputs, turned.outputs[:, ::-1]], -1)
        return outputs, Directions(forward.carry, turned.carry)

    assert_close(
        with_gradients(together, params, xs, carry), with_gradients(apart, params, xs, carry)
    )


def test_the_numbers_of_a_carry_at_both_ends():
    """h = (h + x) / 2 from 8 at the start and from 16 at the end, in a stack too."""
    layer = jr.serial(jr.bidirectional(SMOOTHER), jr.dropout(0.5))
    carry = (Directions(jnp.array([8.0]), jnp.array([16.0])), ())
    rollout = jr.unroll(layer, (Directions(RATE, RATE), ()), jnp.zeros((3, 1)), carry=carry)
    assert rollout.outputs.tolist() == [[4, 2], [2, 4], [1, 8]]
    assert rollout.carry[0] == Directions(1, 2)


EVALUATORS = {
    "gru": (
        lambda: jr.gru(3),
        [
            jr.sequential(),
            jr.sequential(checkpoint=4),
            jr.chunked(4, jr.newton()),
            jr.newton(jacobian="diagonal"),
        ],
    ),
    "lru": (
        lambda: jr.lru(2, 2),
        [jr.sequential(), jr.associative(), jr.chunked(4, jr.associative("chunked"))],
    ),
}


@pytest.mark.parametrize("name", EVALUATORS)
def test_each_sequence_starts_from_its_own(name, x64):
    """Values, the last carry and all gradients, under every evaluator."""
    make, evaluators = EVALUATORS[name]
    cell = make()
    params, xs, starts = made(cell)
    carry = normal(3, cell.initial_carry(params, (len(ROWS),)))

    def packed(params, xs, starts, carry, evaluator):
        given = {"starts": starts, "carry": carry, "mask": MASK, "reset": RESET}
        return jr.unroll(cell, params, xs, **given, evaluator=evaluator)[:2]

    def apart(params, xs, starts, carry):
        outputs, last = alone(cell, params, xs, after(carry, starts))
        return of_sequence(NUMBER[:, -1], last), outputs

    want = with_gradients(apart, params, xs, starts, carry)
    for evaluator in evaluators:
        run = lambda *args, evaluator=evaluator: packed(*args, evaluator)  # noqa: E731
        assert_close(with_gradients(run, params, xs, starts, carry), want)


def test_both_directions_start_from_their_own(x64):
    """Entry k is that of the k-th reset's sequence, read from either end; gradients included."""
    layer = jr.serial(jr.bidirectional(jr.elman(2), jr.lstm(2)), jr.dense(2), jr.gru(2))
    params, xs, starts = made(layer)

    def packed(params, xs, starts):
        flags = {"mask": MASK, "reset": RESET}
        return [
            jr.unroll(layer, params, xs, starts=starts, reverse=reverse, **flags).outputs
            for reverse in (False, True)
        ]

    def apart(params, xs, starts):
        carries = after(layer.initial_carry(params, (len(ROWS),)), starts)
        return [alone(layer, params, xs, carries, reverse)[0] for reverse in (False, True)]

    assert_close(
        with_gradients(packed, params, xs, starts), with_gradients(apart, params, xs, starts)
    )


@pytest.mark.parametrize("layer", [jr.causal_conv(3), jr.self_attention(1, window=3)])
def test_windows_start_with_steps_of_their_own(layer, x64):
    params, xs, _ = made(layer)
    counts = np.random.default_rng(5).integers(0, 3, (len(ROWS), NUM_STARTS))
    past = normal(4, jnp.zeros((len(ROWS), NUM_STARTS, 2, 2)))

    def starts_of(past):
        # What a window that has read 0, 1 or 2 steps is.
        return jr.unroll(layer, params, past, mask=np.arange(2) < counts[..., None]).carry

    def packed(params, xs, past):
        flags = {"mask": MASK, "reset": RESET}
        rollout = jr.unroll(layer, params, xs, starts=starts_of(past), **flags)
        return rollout.outputs, rollout.carry

    def apart(params, xs, past):
        carries = after(layer.initial_carry(params, (len(ROWS),)), starts_of(past))
        outputs, last = alone(layer, params, xs, carries)
        return outputs, of_sequence(NUMBER[:, -1], last)

    assert_close(with_gradients(packed, params, xs, past), with_gradients(apart, params, xs, past))


def smoothed(xs, starts, reset, **arguments):
    starts = jnp.asarray(starts)[:, None]
    rollout = jr.unroll(
        SMOOTHER, RATE, jnp.asarray(xs)[:, None], starts=starts, reset=np.array(reset), **arguments
    )
    return rollout.outputs[:, 0].tolist()


def test_the_numbers_of_starts():
    zeros = [0.0, 0.0, 0.0, 0.0]
    # As `pack` flags it: the first step starts a sequence, and so takes the first entry.
    assert smoothed(zeros, [8.0, 16.0], [1, 0, 1, 0]) == [4, 2, 8, 4]
    # Entries without a reset are not read, NaN included.
    assert smoothed(zeros, [8.0, jnp.nan], [1, 0, 0, 0]) == [4, 2, 1, 0.5]
    # Steps before the first reset go on from the carry; without one, from the initial carry.
    assert smoothed(zeros, [16.0], [0, 0, 1, 0], carry=jnp.array([8.0])) == [4, 2, 8, 4]
    assert smoothed(zeros, [16.0], [0, 0, 1, 0]) == [0, 0, 8, 4]
    # A reset at the first step drops the carry, and one on a masked step counts.
    assert smoothed(zeros, [8.0, 16.0], [1, 0, 1, 0], carry=jnp.array([64.0])) == [4, 2, 8, 4]
    assert smoothed(zeros, [8.0, 16.0], [1, 0, 1, 0], mask=np.array([1, 1, 0, 1])) == [4, 2, 0, 8]
    # Read backwards every sequence keeps its entry. The carry is what the row begins with there.
    assert smoothed(zeros, [8.0, 16.0], [1, 0, 1, 0], reverse=True) == [2, 4, 4, 8]
    given = {"reverse": True, "carry": jnp.array([64.0])}
    assert smoothed(zeros, [8.0, 16.0], [1, 0, 1, 0], **given) == [2, 4, 16, 32]


def test_more_resets_than_starts():
    xs, starts = jnp.zeros((2, 4, 1)), jnp.full((2, 1, 1), 8.0)
    reset = jnp.array([[1, 0, 1, 0], [0, 1, 0, 0]], bool)
    with pytest.raises(ValueError, match="every reset of a row, got 1 entries for 2 resets"):
        jr.unroll(SMOOTHER, RATE, xs, starts=starts, reset=reset)
    rollout = jax.jit(lambda reset: jr.unroll(SMOOTHER, RATE, xs, starts=starts, reset=reset))(
        reset
    )
    np.testing.assert_array_equal(rollout.outputs[0, :, 0], [4, 2, np.nan, np.nan])
    np.testing.assert_array_equal(rollout.outputs[1, :, 0], [0, 4, 2, 1])
    assert jnp.isnan(rollout.carry[:, 0]).tolist() == [True, False]


def test_starts_are_read_where_they_are():
    """No carry for every step is made: memory does not grow with T."""
    cell = jr.gru(32)
    params = cell.init(jax.random.key(0), 2)
    starts = cell.initial_carry(params, (2,))

    def last_carry(xs, starts, reset):
        return jr.unroll(cell, params, xs, starts=starts, reset=reset).carry

    arguments = jnp.zeros((500, 2)), starts, jnp.zeros(500, bool)
    assert temporary_bytes(last_carry, *arguments) < 500 * 32 * 8 / 4


def reading_its_carry(params, carry, steps, key):
    return jr.Rollout(carry + steps.xs.sum(0), carry + steps.xs)


def asserting_its_carry(params, carry, steps, key):
    assert isinstance(carry, jax.Array)
    return jr.Rollout(carry, steps.xs)


ATTENDING = jr.cross_attention(jr.dot_score(2), 3, 2)
REFUSED = {
    "no resets": (SMOOTHER, {"reset": None}, "reset must be given with starts"),
    "no memory": (jr.dense(2), {}, "starts must be None for a model without memory"),
    "a source": (ATTENDING, {}, "starts cannot be given to cross_attention"),
    "another axis": (SMOOTHER, {"starts": jnp.zeros((3, 2))}, r"shape \(3, 1\), got \(3, 2\)"),
    "a layer that reads its carry": (
        jr.recurrent(SMOOTHER)._replace(unroll=reading_its_carry),
        {},
        "starts cannot be given to this model: .* has to use jaxrnn.engine.starts",
    ),
    "a layer that asserts its carry": (
        jr.recurrent(SMOOTHER)._replace(unroll=asserting_its_carry),
        {},
        "starts cannot be given to this model: .* has to use jaxrnn.engine.starts",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_starts_that_cannot_be_given(name):
    model, given, message = REFUSED[name]
    params = model.init(jax.random.key(0), 1)
    starts = model.initial_carry(params, (3,))
    with pytest.raises(ValueError, match=message):
        given = {"starts": starts, "reset": np.zeros(4, bool)} | given
        jr.unroll(model, params, jnp.zeros((4, 1)), **given)
