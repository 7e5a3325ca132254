"""The engine's door: worked numbers, and what users of other libraries stumbled over.

"Thread n" is the n-th thread of the list of peers' issues that the library was designed against.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn import checks

NUM_STEPS = 6
LENGTHS = np.array([6, 3, 0])
MASK = np.arange(NUM_STEPS) < LENGTHS[:, None]


@pytest.fixture(autouse=True)
def in_float64(x64):
    """Every number here is compared in float64."""


@functools.cache
def lstm():
    with jax.enable_x64(True):
        cell = jr.lstm(3, param_dtype=jnp.float64)
        params = cell.init(jax.random.key(0), 2)
        # A bias makes padding of zeros move an unguarded state.
        return cell, params._replace(bias=params.bias + 0.3)


def inputs(*leading, seed=1):
    return np.random.default_rng(seed).standard_normal((*leading, 2))


SMOOTHER = jr.simple_cell(
    init=lambda key, num_inputs: jnp.full((), 0.5),
    advance=lambda rate, carry, z: rate * carry + (1 - rate) * z,
    num_outputs=1,
)


def smooth(xs, rate=0.5, **arguments):
    return jr.unroll(SMOOTHER, jnp.full((), rate), jnp.asarray(xs)[:, None], **arguments)


def assert_close(got, want, rtol=1e-10):
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-12), got, want
    )


def assert_equal(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


# Worked numbers.


def test_exponential_smoothing_has_the_states_of_the_worked_example():
    """α = 1/2 on [2, 0, 4] from 0."""
    rollout = smooth([2.0, 0.0, 4.0])
    assert rollout.outputs[:, 0].tolist() == [1.0, 0.5, 2.25]
    assert rollout.carry.tolist() == [2.25]


def test_sensitivity_to_the_first_carry_is_alpha_to_the_third():
    def last(carry):
        return smooth([2.0, 0.0, 4.0], carry=carry).carry[0]

    assert jax.grad(last)(jnp.zeros(1)).tolist() == [1 / 8]


def test_an_input_m_steps_old_weighs_one_minus_alpha_alpha_to_the_m():
    def last(xs):
        return smooth(xs, rate=0.75).carry[0]

    weights = jax.grad(last)(jnp.zeros(5))
    np.testing.assert_allclose(weights, [0.25 * 0.75**m for m in (4, 3, 2, 1, 0)], rtol=1e-14)


def test_detaching_keeps_the_value_and_cuts_the_gradient():
    """Thread 41: a detached carry goes on with 0.5; a reset one starts from 0."""

    def in_two_chunks(carry, cut):
        first = smooth([2.0, 0.0], carry=carry).carry
        second = smooth([4.0], carry=cut(first)).carry[0]
        return second, first[0]

    def value_and_slope(cut):
        (second, first), slope = jax.value_and_grad(in_two_chunks, has_aux=True)(jnp.zeros(1), cut)
        return float(first), float(second), float(slope[0])

    assert value_and_slope(lambda carry: carry) == (0.5, 2.25, 1 / 8)
    assert value_and_slope(jr.detach) == (0.5, 2.25, 0.0)
    assert value_and_slope(jnp.zeros_like) == (0.5, 2.0, 0.0)


def test_a_scalar_tanh_state_and_its_gradient():
    """u = w = 1/2 on [1, 2, 0], forward and backward by hand."""
    h = [0.0]
    xs = [1.0, 2.0, 0.0]
    for x in xs:
        h.append(math.tanh(0.5 * x + 0.5 * h[-1]))
    pulled, of_w = 1.0, 0.0
    for t in (2, 1, 0):
        pulled *= 1 - h[t + 1] ** 2
        of_w += pulled * h[t]
        pulled *= 0.5
    params = jr.ElmanParams(jnp.full((1, 1), 0.5), jnp.full((1, 1), 0.5), jnp.zeros(1))

    def last(params):
        rollout = jr.unroll(jr.elman(1), params, jnp.array(xs)[:, None])
        return rollout.carry.h[0], rollout.outputs[:, 0]

    gradient, outputs = jax.grad(last, has_aux=True)(params)
    np.testing.assert_allclose(outputs, h[1:], rtol=1e-14)
    np.testing.assert_allclose(gradient.recurrent_kernel[0, 0], of_w, rtol=1e-14)


# Masks.


def test_interior_masks_skip_the_carry():
    """Thread 27: any mask, not only right padding, and it keeps the carry."""
    cell, params = lstm()
    xs = inputs(NUM_STEPS)
    mask = np.array([0, 1, 0, 1, 1, 0], bool)
    rollout = jr.unroll(cell, params, xs, mask=mask)
    alone = jr.unroll(cell, params, xs[mask])
    assert_close(rollout.carry, alone.carry)
    assert_close(rollout.outputs[mask], alone.outputs)
    assert not rollout.outputs[~mask].any()


def test_the_amount_of_padding_does_not_matter():
    """Thread 4: zeros in padding moved the state through biases."""
    cell, params = lstm()
    xs = inputs(3)
    short = jr.unroll(cell, params, xs)
    for padding in (1, 3):
        padded = np.concatenate([xs, np.zeros((padding, 2))])
        rollout = jr.unroll(cell, params, padded, mask=np.arange(3 + padding) < 3)
        assert_close(rollout.carry, short.carry)


def test_reading_backwards_starts_behind_the_padding():
    """Threads 5 and 7: the backward pass of peers started in the padding."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    rollout = jr.unroll(cell, params, xs, mask=MASK, reverse=True)
    for row, length in enumerate(LENGTHS[:2]):
        alone = jr.unroll(cell, params, xs[row, :length], reverse=True)
        assert_close(rollout.outputs[row, :length], alone.outputs)
        assert_close(jax.tree.map(lambda leaf: leaf[row], rollout.carry), alone.carry)  # noqa: B023


def test_the_last_carry_read_backwards_is_the_one_at_the_first_step():
    """Thread 17: which part of h_n is the backward one."""
    cell, params = lstm()
    rollout = jr.unroll(cell, params, inputs(3, NUM_STEPS), reverse=True)
    assert_equal(rollout.carry.h, rollout.outputs[:, 0])


@pytest.mark.parametrize("dtype", [bool, np.int32, np.uint8, np.float32, jnp.bfloat16])
def test_masks_and_resets_of_zeros_and_ones_are_flags(dtype):
    """Thread 9: int dones used as indices reset the wrong rows."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    reset = np.arange(NUM_STEPS) == np.array([[1], [2], [0]])
    want = jr.unroll(cell, params, xs, mask=MASK, reset=reset)
    got = jr.unroll(
        cell, params, xs, mask=jnp.asarray(MASK, dtype), reset=jnp.asarray(reset, dtype)
    )
    assert_equal(got, want)


WRONG_FLAGS = {
    "lengths": (LENGTHS, ValueError, "mask_from_lengths"),
    "lengths in a column": (LENGTHS[:, None], ValueError, r"\(3, 6\)"),
    "ints above one": (MASK * LENGTHS[:, None], ValueError, "mask_from_lengths"),
    "floats between": (np.full((3, 6), 0.5), ValueError, "only 0 and 1"),
    "NaN": (np.full((3, 6), np.nan), ValueError, "only 0 and 1"),
    "complex": (MASK + 0j, TypeError, "complex"),
    "words": ("right", TypeError, "right"),
    "one axis too few": (MASK[0], ValueError, r"\(3, 6\)"),
    "one axis too many": (MASK[..., None], ValueError, r"\(3, 6\)"),
    "time first": (MASK.T, ValueError, r"\(3, 6\)"),
    "an axis to broadcast": (MASK[:1], ValueError, r"\(3, 6\)"),
}


@pytest.mark.parametrize("argument", ["mask", "reset"])
@pytest.mark.parametrize("name", WRONG_FLAGS)
def test_other_flags_raise(name, argument):
    """Nothing is broadcast, cast or clamped in silence."""
    flags, error, message = WRONG_FLAGS[name]
    cell, params = lstm()
    with pytest.raises(error, match=f"{argument} must.*{message}"):
        jr.unroll(cell, params, inputs(3, NUM_STEPS), **{argument: flags})


def test_lengths_out_of_range_raise():
    """Threads 23 and 26: peers clamped a length above T, or wrapped 0 round to the end."""
    with pytest.raises(ValueError, match="seq_lengths must lie in 0"):
        jr.mask_from_lengths(np.array([7, 3]), NUM_STEPS)
    with pytest.raises(ValueError, match="seq_lengths must lie in 0"):
        jr.mask_from_lengths(np.array([-1, 3]), NUM_STEPS)


@pytest.mark.parametrize("reverse", [False, True])
def test_length_zero_gives_the_carry_back_and_zeros(reverse):
    """Threads 23, 24 and 25: length 0 crashed, or gave the carry behind the padding."""
    cell, params = lstm()
    xs = np.where(MASK[..., None], inputs(3, NUM_STEPS), np.nan)
    carry = jax.tree.map(jnp.ones_like, cell.initial_carry(params, (3,)))
    rollout = jr.unroll(cell, params, xs, mask=MASK, carry=carry, reverse=reverse)
    assert_equal(jax.tree.map(lambda leaf: leaf[2], rollout.carry), jr.LSTMCarry(*[np.ones(3)] * 2))
    assert not rollout.outputs[2].any()


def test_a_batch_of_nothing_but_padding():
    """Threads 23 and 25: all lengths 0, forward and backward."""
    cell, params = lstm()
    xs = np.full((3, NUM_STEPS, 2), np.nan)

    def loss(params, xs):
        rollout = jr.unroll(cell, params, xs, mask=np.zeros((3, NUM_STEPS), bool))
        return rollout.outputs.sum() + sum(leaf.sum() for leaf in rollout.carry), rollout.carry

    gradients, carry = jax.grad(loss, (0, 1), has_aux=True)(params, xs)
    assert_equal(carry, cell.initial_carry(params, (3,)))
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradients))


def test_the_number_of_steps_stays_when_every_row_is_shorter():
    """Thread 26: pack and pad cut T down to the longest row."""
    cell, params = lstm()
    rollout = jr.unroll(cell, params, inputs(3, NUM_STEPS), mask=MASK & (np.arange(NUM_STEPS) < 3))
    assert rollout.outputs.shape == (3, NUM_STEPS, 3)


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e300])
def test_padding_reaches_neither_values_nor_gradients(poison):
    """Threads 18 and 19: a `where` behind the step leaves NaN in its gradient."""
    cell, params = lstm()
    weights = np.random.default_rng(2).standard_normal((3, NUM_STEPS, 3))

    def loss(params, xs):
        rollout = jr.unroll(cell, params, xs, mask=MASK)
        return (weights * rollout.outputs).sum() + rollout.carry.c.sum(), rollout

    gradient = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
    xs = inputs(3, NUM_STEPS)
    clean = gradient(params, xs)
    assert_equal(gradient(params, np.where(MASK[..., None], xs, poison)), clean)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(clean))
    assert not clean[0][1][~MASK].any()


def test_a_real_nan_shows():
    """Thread 20: NaN under a True mask is data, and must not be hidden."""
    cell, params = lstm()
    xs = inputs(NUM_STEPS)
    xs[2] = np.nan
    reset = np.arange(NUM_STEPS) == 4
    finite = jnp.isfinite(jr.unroll(cell, params, xs, reset=reset).outputs).all(-1)
    assert finite.tolist() == [True, True, False, False, True, True]


def test_a_row_is_the_same_alone_and_in_a_batch():
    """Thread 21: a sample that was fine alone became NaN in a batch."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    xs[0] = np.nan
    rollout = jr.unroll(cell, params, xs)
    assert_close(rollout.outputs[1], jr.unroll(cell, params, xs[1]).outputs)


# Cells of other shapes.


class Pair(NamedTuple):
    first: Any
    second: Any


def counter_cell():
    """The output is neither the first leaf nor any leaf; one leaf is an int."""

    def initial_carry(params, batch_shape=()):
        dtype = checks.compute_dtype(params)
        return Pair(jnp.zeros(batch_shape, jnp.int32), jnp.zeros((*batch_shape, 2), dtype))

    def advance(params, carry, z):
        return Pair(carry.first + 1, carry.second + params * z)

    def emit(params, carry, x):
        return 10 * carry.second + carry.first[..., None] + 0 * x

    return jr.simple_cell(
        lambda key, num_inputs: jnp.ones(()), advance, 2, initial_carry=initial_carry, emit=emit
    )


def test_an_output_that_is_no_leaf_of_the_carry():
    """Thread 2: a masked step repeated the first state as if it were the output."""
    xs = np.ones((2, 4, 2))
    mask = np.array([[1, 1, 0, 0], [0, 1, 0, 1]], bool)
    rollout = jr.unroll(counter_cell(), jnp.ones(()), xs, mask=mask)
    assert rollout.outputs[..., 0].tolist() == [[11, 22, 0, 0], [0, 11, 0, 22]]
    assert rollout.carry.first.tolist() == [2, 2]


@pytest.mark.parametrize("checkpoint", [None, "sqrt"])
def test_an_int_in_the_carry_differentiates(checkpoint):
    """Thread 22: the backward pass of scan failed on an int leaf."""
    cell, evaluator = counter_cell(), jr.sequential(checkpoint=checkpoint)

    def loss(gain, carry):
        rollout = jr.unroll(cell, gain, np.ones((4, 2)), carry=carry, evaluator=evaluator)
        return rollout.outputs[-1].sum()

    carry = cell.initial_carry(jnp.ones(()))
    of_gain, of_carry = jax.grad(loss, (0, 1), allow_int=True)(jnp.ones(()), carry)
    assert of_gain == 80
    assert of_carry.first.dtype == jax.dtypes.float0
    assert of_carry.second.tolist() == [10, 10]


def test_a_learned_carry_with_an_int_differentiates():
    """Thread 22 and 30: the int is kept, the rest learns."""
    cell = jr.learned_initial_carry(counter_cell())
    params = cell.init(jax.random.key(0), 2)
    reset = np.array([0, 0, 1, 0], bool)

    def loss(params):
        return jr.unroll(cell, params, np.ones((4, 2)), reset=reset).outputs.sum()

    gradient = jax.grad(loss, allow_int=True)(params)
    assert gradient.initial_carry.second.tolist() == [40, 40]


def test_a_matrix_memory_is_masked_and_reset_by_row():
    """Thread 3: the mask was tiled on the wrong axes for states of more than two axes."""

    def initial_carry(params, batch_shape=()):
        return jnp.zeros((*batch_shape, 2, 2))

    def advance(params, carry, z):
        return carry + z[..., :, None] * z[..., None, :]

    cell = jr.simple_cell(
        lambda key, num_inputs: (),
        advance,
        2,
        initial_carry=initial_carry,
        emit=lambda params, carry, x: carry[..., 0],
    )
    # As many rows and steps as the memory has rows, so that a wrong axis would fit.
    xs = np.array([[[1.0, 0], [0, 2.0]], [[3.0, 0], [0, 4.0]]])
    mask = np.array([[1, 0], [1, 1]], bool)
    reset = np.array([[0, 0], [0, 1]], bool)
    rollout = jr.unroll(cell, (), xs, mask=mask, reset=reset)
    assert rollout.carry.tolist() == [[[1, 0], [0, 0]], [[0, 0], [0, 16]]]


# Carries and resets.


def test_no_carry_is_the_initial_carry():
    """Thread 15: hidden=None differed from an explicit zero."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    assert_equal(
        jr.unroll(cell, params, xs, carry=cell.initial_carry(params, (3,))),
        jr.unroll(cell, params, xs),
    )


def test_a_reset_means_that_x_starts_a_sequence():
    """Thread 8: the carry was reset one step too late, by the done of the step itself."""
    done = jnp.array([False, True, False])
    outputs = smooth([2.0, 4.0, 8.0], reset=jr.reset_from_done(done)).outputs
    assert outputs[:, 0].tolist() == [1.0, 2.5, 4.0]


def test_a_reset_on_a_masked_step_counts():
    outputs = smooth([2.0, 9.0, 8.0], mask=[1, 0, 1], reset=[0, 1, 0]).outputs
    assert outputs[:, 0].tolist() == [1.0, 0.0, 4.0]


def test_read_backwards_a_reset_cuts_at_the_same_place():
    """The boundary lies between x = 4 and x = 8, so 4 is the first one of its sequence."""
    outputs = smooth([2.0, 4.0, 8.0], reset=[1, 0, 1], reverse=True).outputs
    assert outputs[:, 0].tolist() == [2.0, 2.0, 4.0]


def test_a_reset_returns_to_the_learned_carry():
    """Thread 30."""
    cell = jr.learned_initial_carry(SMOOTHER)
    params = cell.init(jax.random.key(0), 1)._replace(initial_carry=jnp.array([8.0]))
    reset = jnp.array([False, False, True])
    assert jr.unroll(cell, params, jnp.zeros((3, 1)), reset=reset).outputs[:, 0].tolist() == [
        4.0,
        2.0,
        4.0,
    ]


def test_nan_in_the_carry_ends_at_a_reset():
    """Peers multiply by 1 - reset, and 0 · NaN is NaN, or select and keep NaN in the gradient."""
    cell, params = lstm()
    carry = jax.tree.map(lambda leaf: leaf + jnp.nan, cell.initial_carry(params))
    reset = np.arange(NUM_STEPS) == 0

    def loss(params, carry):
        return jr.unroll(cell, params, inputs(NUM_STEPS), carry=carry, reset=reset).outputs.sum()

    gradients = jax.grad(loss, (0, 1))(params, carry)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


WRONG_CARRIES = {
    "another class": (lambda carry: tuple(carry), TypeError, "carry must have the structure"),
    "another order": (lambda carry: carry[::-1], TypeError, "carry must have the structure"),
    "another dtype": (
        lambda carry: carry._replace(h=carry.h.astype(jnp.float32)),
        TypeError,
        "carry.h must have the dtype float64, got float32",
    ),
    "another batch": (
        lambda carry: jax.tree.map(lambda leaf: leaf[:1], carry),
        ValueError,
        r"carry.h must have the shape \(3, 3\), got \(1, 3\)",
    ),
    "a missing leaf": (lambda carry: carry._replace(c=None), TypeError, "structure"),
}


@pytest.mark.parametrize("name", WRONG_CARRIES)
def test_other_carries_raise(name):
    """Threads 32, 33 and 51: (c, h) for (h, c), unreadable errors, classes lost in reloading."""
    change, error, message = WRONG_CARRIES[name]
    cell, params = lstm()
    carry = change(cell.initial_carry(params, (3,)))
    with pytest.raises(error, match=message):
        jr.unroll(cell, params, inputs(3, NUM_STEPS), carry=carry)


# Layouts and sizes.


def test_two_batch_axes_with_masks_and_a_carry():
    """Peers promise batch axes and take one."""
    cell, params = lstm()
    xs = inputs(2, 3, NUM_STEPS)
    mask = np.stack([MASK, ~MASK])
    carry = jax.tree.map(lambda leaf: leaf + 0.5, cell.initial_carry(params, (2, 3)))
    both = jr.unroll(cell, params, xs, mask=mask, carry=carry)
    assert both.carry.h.shape == (2, 3, 3)
    one = jr.unroll(cell, params, xs[1], mask=mask[1], carry=jax.tree.map(lambda h: h[1], carry))
    assert_close(both.outputs[1], one.outputs)


def test_time_major_moves_every_sequence():
    """Thread 38."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    want = jr.unroll(cell, params, xs, mask=MASK)
    got = jr.unroll(cell, params, np.swapaxes(xs, 0, 1), mask=MASK.T, time_major=True)
    assert_equal(got._replace(outputs=jnp.swapaxes(got.outputs, 0, 1)), want)


@pytest.mark.parametrize("checkpoint", [None, "sqrt", 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_no_steps_change_nothing(checkpoint, reverse):
    """T = 0 raised in peers, or was refused."""
    cell, params = lstm()
    carry = jax.tree.map(jnp.ones_like, cell.initial_carry(params, (3,)))
    flags = np.zeros((3, 0), bool)
    rollout = jr.unroll(
        cell,
        params,
        inputs(3, 0),
        carry=carry,
        mask=flags,
        reset=flags,
        reverse=reverse,
        evaluator=jr.sequential(checkpoint=checkpoint),
    )
    assert_equal(rollout.carry, carry)
    assert rollout.outputs.shape == (3, 0, 3)


def test_step_is_unroll_of_one_step():
    cell, params = lstm()
    xs = inputs(3, 2)
    mask, reset = np.array([1, 0, 1], bool), np.array([0, 1, 1], bool)
    carry = jr.unroll(cell, params, xs[:, :1]).carry
    stepped = jr.step(cell, params, carry, xs[:, 1], mask=mask, reset=reset)
    flags = {"mask": mask[:, None], "reset": reset[:, None]}
    rollout = jr.unroll(cell, params, xs[:, 1:], carry=carry, **flags)
    assert_equal(stepped, (rollout.carry, rollout.outputs[:, 0]))


def test_carries_are_the_carry_behind_every_step():
    """Threads 29 and 35: all states, with padding repeating the one before it."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    reset = np.arange(NUM_STEPS) == np.array([[2], [2], [2]])
    after = jr.carries(cell, params, xs, mask=MASK, reset=reset)
    for stop in range(1, NUM_STEPS + 1):
        span = np.s_[:, :stop]
        rollout = jr.unroll(cell, params, xs[span], mask=MASK[span], reset=reset[span])
        assert_close(jax.tree.map(lambda leaf: leaf[:, stop - 1], after), rollout.carry)  # noqa: B023
    of_layer = jr.carries(jr.recurrent(cell), params, xs, mask=MASK, reset=reset)
    assert_close(of_layer, after)
    time_first = jr.carries(cell, params, xs.swapaxes(0, 1), mask=MASK.T, time_major=True)
    assert time_first.c.shape == (NUM_STEPS, 3, 3)


def test_wrong_inputs_raise():
    cell, params = lstm()
    with pytest.raises(ValueError, match="time axis"):
        jr.unroll(cell, params, np.ones(2))
    with pytest.raises(TypeError, match="cell_or_layer must be a Cell or a Layer, got function"):
        jr.unroll(jr.lstm, params, np.ones((3, 2)))


def test_what_cannot_stream_raises():
    backwards = jr.recurrent(jr.elman(2), reverse=True)
    params = backwards.init(jax.random.key(0), 2)
    carry = backwards.initial_carry(params)
    with pytest.raises(ValueError, match="must be causal"):
        jr.step(backwards, params, carry, np.ones(2))
    with pytest.raises(ValueError, match="must be causal"):
        jr.carries(backwards, params, np.ones((4, 2)))
    with pytest.raises(ValueError, match="carry must be None"):
        jr.unroll(backwards, params, np.ones((4, 2)), carry=carry)


def test_a_layer_has_its_own_evaluator():
    layer = jr.recurrent(jr.elman(2))
    with pytest.raises(ValueError, match="evaluator must be None for a layer"):
        jr.unroll(layer, (), np.ones((4, 2)), evaluator=jr.sequential())


def test_an_advance_that_changes_the_carry_is_told():
    def advance(params, carry, z):
        return carry.astype(jnp.float32)

    cell = jr.simple_cell(
        lambda key, num_inputs: (), advance, 1, initial_carry=lambda *_: np.ones(1)
    )
    with pytest.raises(TypeError, match="must have the dtype"):
        jr.unroll(cell, (), np.ones((4, 1)))


# Transformations.


def test_transformations_compose():
    """Thread 48: vmap, double backward and forward mode, which RNN kernels lack."""
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
    """Thread 48."""
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
    """Thread 50: zeros drew a key, which failed under jit."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    jitted = jax.jit(lambda params, xs: jr.unroll(cell, params, xs))(params, xs)
    assert_close(jitted.outputs, jr.unroll(cell, params, xs).outputs)


def test_the_path_that_ran_is_told():
    """Thread 54: the fused path was silently not taken."""
    cell, params = lstm()
    rollout = jax.jit(lambda xs: jr.unroll(cell, params, xs))(inputs(NUM_STEPS))
    assert rollout.info.evaluator == "sequential"


# Compilations.


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


# Precision.


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_the_carry_is_at_least_float32(dtype):
    """Threads 38 and 49: low precision broke the scan's types, or crept into the carry."""
    cell = jr.lstm(3, param_dtype=dtype)
    params = cell.init(jax.random.key(0), 2)
    rollout = jr.unroll(cell, params, jnp.asarray(inputs(3, NUM_STEPS), dtype), mask=MASK)
    assert rollout.outputs.dtype == dtype
    assert {leaf.dtype for leaf in rollout.carry} == {jnp.dtype(jnp.float32)}


def test_outputs_have_the_dtype_of_xs_and_ints_have_none():
    table = jnp.arange(8.0, dtype=jnp.float32).reshape(4, 2)
    cell = jr.simple_cell(
        lambda key, num_inputs: table,
        lambda params, carry, z: 0.5 * carry + z,
        num_outputs=2,
        project=lambda params, x: params[x],
        num_feature_axes=0,
    )
    assert jr.unroll(cell, table, jnp.array([[0, 3, 1]])).outputs.dtype == jnp.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reverse": "yes"}, "reverse must be True or False"),
        ({"time_major": 1}, "time_major must be True or False"),
        ({"evaluator": "sequential"}, "evaluator must be an Evaluator"),
        ({"key": 0}, "key must be one PRNG key"),
        ({"xs": "abc"}, "xs must be a tree of arrays"),
    ],
)
def test_arguments_of_another_kind_are_named(options, message):
    cell = jr.elman(3)
    params = cell.init(jax.random.key(0), 2)
    with pytest.raises(TypeError, match=message):
        jr.unroll(cell, params, **({"xs": jnp.ones((4, 2))} | options))


CELLS_WITH_A_KERNEL = {"elman": jr.elman, "lstm": jr.lstm, "gru": jr.gru, "mgu": jr.mgu}


@pytest.mark.parametrize("make", CELLS_WITH_A_KERNEL.values(), ids=CELLS_WITH_A_KERNEL)
def test_a_wrong_width_is_named(make):
    cell = make(3)
    params = cell.init(jax.random.key(0), 2)
    with pytest.raises(ValueError, match="xs must have the width 2 of the kernel"):
        jr.unroll(cell, params, jnp.ones((4, 5)))
    with pytest.raises(ValueError, match="num_inputs must be at least 1, got 0"):
        cell.init(jax.random.key(0), 0)
