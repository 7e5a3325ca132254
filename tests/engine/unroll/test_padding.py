"""Masks: any pattern, what they accept, and what padding may not reach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.lstm_example import (
    LENGTHS,
    MASK,
    NUM_STEPS,
    assert_close,
    assert_equal,
    inputs,
    lstm,
)

import jaxrnn as jr


def test_interior_masks_skip_the_carry():
    """flax#3507: any mask, not only right padding, and it keeps the carry."""
    cell, params = lstm()
    xs = inputs(NUM_STEPS)
    mask = np.array([0, 1, 0, 1, 1, 0], bool)
    rollout = jr.unroll(cell, params, xs, mask=mask)
    alone = jr.unroll(cell, params, xs[mask])
    assert_close(rollout.carry, alone.carry)
    assert_close(rollout.outputs[mask], alone.outputs)
    assert not rollout.outputs[~mask].any()


def test_the_amount_of_padding_does_not_matter():
    """keras#1300: zeros in padding moved the state through biases."""
    cell, params = lstm()
    xs = inputs(3)
    short = jr.unroll(cell, params, xs)
    for padding in (1, 3):
        padded = np.concatenate([xs, np.zeros((padding, 2))])
        rollout = jr.unroll(cell, params, padded, mask=np.arange(3 + padding) < 3)
        assert_close(rollout.carry, short.carry)


def test_reading_backwards_starts_behind_the_padding():
    """keras#7244 and kermitt2/delft#231: the backward pass of peers started in the padding."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    rollout = jr.unroll(cell, params, xs, mask=MASK, reverse=True)
    for row, length in enumerate(LENGTHS[:2]):
        alone = jr.unroll(cell, params, xs[row, :length], reverse=True)
        assert_close(rollout.outputs[row, :length], alone.outputs)
        assert_close(jax.tree.map(lambda leaf: leaf[row], rollout.carry), alone.carry)  # noqa: B023


def test_the_last_carry_read_backwards_is_the_one_at_the_first_step():
    """pytorch#145073: which part of h_n is the backward one."""
    cell, params = lstm()
    rollout = jr.unroll(cell, params, inputs(3, NUM_STEPS), reverse=True)
    assert_equal(rollout.carry.h, rollout.outputs[:, 0])


@pytest.mark.parametrize("dtype", [bool, np.int32, np.uint8, np.float32, jnp.bfloat16])
def test_masks_and_resets_of_zeros_and_ones_are_flags(dtype):
    """rsl_rl#28: int dones used as indices reset the wrong rows."""
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
    """jax#17966 and pytorch#144207: a length above T was clamped, or 0 wrapped to the end."""
    with pytest.raises(ValueError, match="seq_lengths must lie in 0"):
        jr.mask_from_lengths(np.array([7, 3]), NUM_STEPS)
    with pytest.raises(ValueError, match="seq_lengths must lie in 0"):
        jr.mask_from_lengths(np.array([-1, 3]), NUM_STEPS)


@pytest.mark.parametrize("reverse", [False, True])
def test_length_zero_gives_the_carry_back_and_zeros(reverse):
    """jax#17966, pytorch#4582, tensorflow#36139: length 0 crashed, or gave the padding's carry."""
    cell, params = lstm()
    xs = np.where(MASK[..., None], inputs(3, NUM_STEPS), np.nan)
    carry = jax.tree.map(jnp.ones_like, cell.initial_carry(params, (3,)))
    rollout = jr.unroll(cell, params, xs, mask=MASK, carry=carry, reverse=reverse)
    assert_equal(
        jax.tree.map(lambda leaf: leaf[2], rollout.carry), jr.cells.LSTMCarry(*[np.ones(3)] * 2)
    )
    assert not rollout.outputs[2].any()


def test_a_batch_of_nothing_but_padding():
    """jax#17966 and tensorflow#36139: all lengths 0, forward and backward."""
    cell, params = lstm()
    xs = np.full((3, NUM_STEPS, 2), np.nan)

    def loss(params, xs):
        rollout = jr.unroll(cell, params, xs, mask=np.zeros((3, NUM_STEPS), bool))
        return rollout.outputs.sum() + sum(leaf.sum() for leaf in rollout.carry), rollout.carry

    gradients, carry = jax.grad(loss, (0, 1), has_aux=True)(params, xs)
    assert_equal(carry, cell.initial_carry(params, (3,)))
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradients))


def test_the_number_of_steps_stays_when_every_row_is_shorter():
    """pytorch#144207: pack and pad cut T down to the longest row."""
    cell, params = lstm()
    rollout = jr.unroll(cell, params, inputs(3, NUM_STEPS), mask=MASK & (np.arange(NUM_STEPS) < 3))
    assert rollout.outputs.shape == (3, NUM_STEPS, 3)


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e300])
def test_padding_reaches_neither_values_nor_gradients(poison):
    """jax#1052 and keras#2819: a `where` behind the step leaves NaN in its gradient."""
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
    """WeatherGenerator#2723: NaN under a True mask is data, and must not be hidden."""
    cell, params = lstm()
    xs = inputs(NUM_STEPS)
    xs[2] = np.nan
    reset = np.arange(NUM_STEPS) == 4
    finite = jnp.isfinite(jr.unroll(cell, params, xs, reset=reset).outputs).all(-1)
    assert finite.tolist() == [True, True, False, False, True, True]


def test_a_row_is_the_same_alone_and_in_a_batch():
    """pytorch#177016: a sample that was fine alone became NaN in a batch."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    xs[0] = np.nan
    rollout = jr.unroll(cell, params, xs)
    assert_close(rollout.outputs[1], jr.unroll(cell, params, xs[1]).outputs)
