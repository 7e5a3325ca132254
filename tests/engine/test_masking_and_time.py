"""What a flag means for a tree, and what turning time round does to flags."""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.engine import masking, precision, time
from jaxrnn.engine.masking import zero_masked


class State(NamedTuple):
    vector: Any
    matrix: Any
    count: Any


def state(value, *batch):
    return State(
        jnp.full((*batch, 2), value, jnp.float32),
        jnp.full((*batch, 2, 3), value, jnp.complex64),
        jnp.full(batch, value, jnp.int32),
    )


def test_select_takes_whole_rows_of_every_leaf():
    chosen = masking.select(jnp.array([True, False]), state(1, 2), state(2, 2))
    assert chosen.vector.tolist() == [[1, 1], [2, 2]]
    assert chosen.matrix[0].tolist() == [[1, 1, 1]] * 2
    assert chosen.count.tolist() == [1, 2]
    assert chosen.matrix.dtype == jnp.complex64 and chosen.count.dtype == jnp.int32


def test_the_branch_not_taken_reaches_no_cotangent():
    flag = jnp.array([True, False])

    def total(yes, no):
        return masking.select(flag, yes, no).sum()

    of_yes, of_no = jax.grad(total, (0, 1))(jnp.array([1.0, jnp.nan]), jnp.array([jnp.inf, 2.0]))
    assert of_yes.tolist() == [1, 0] and of_no.tolist() == [0, 1]


def test_zero_masked_gives_zeros_of_every_kind():
    keys = jax.random.split(jax.random.key(0), 2)
    zeroed = zero_masked(jnp.array([True, False]), (state(1, 2), keys))
    assert zeroed[0].vector.tolist() == [[1, 1], [0, 0]] and zeroed[0].count.tolist() == [1, 0]
    assert zeroed[1][0] == keys[0]


def counter():
    """h + 1, started at 0: the simplest carry that tells how often it was advanced."""
    return jr.simple_cell(
        lambda key, num_inputs: (), lambda params, carry, z: carry + 1 + 0 * z, num_outputs=1
    )


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("with_reset", [False, True])
def test_the_guarded_step_resets_first_and_masks_second(with_mask, with_reset):
    rows = np.array(list(itertools.product([False, True], repeat=2)))
    mask = rows[:, 0] if with_mask else None
    reset = rows[:, 1] if with_reset else None
    start, z = jnp.full((4, 1), 5.0), jnp.zeros((4, 1))
    carry = masking.guarded(counter(), (), jnp.zeros((4, 1)), start, z, mask, reset)
    started = np.where(rows[:, 1] & with_reset, 0, 5)
    assert carry[:, 0].tolist() == (started + (rows[:, 0] | (not with_mask))).tolist()


def boundaries(reset):
    """Between which steps a boundary stands."""
    return {(t - 1, t) for t in range(1, len(reset)) if reset[t]}


@pytest.mark.parametrize("reset", list(itertools.product([False, True], repeat=4)))
def test_turned_flags_stand_at_the_same_boundaries(reset):
    turned = time.flip_reset(jnp.array(reset))
    last = len(reset) - 1
    assert {(last - t, last - s) for s, t in boundaries(turned)} == boundaries(reset)
    assert not turned[0]


def test_turning_flags_of_no_steps_and_of_none():
    assert time.flip_reset(None) is None
    assert time.flip_reset(jnp.zeros((0, 2), bool)).shape == (0, 2)
    assert time.flip((None, jnp.arange(3)))[1].tolist() == [2, 1, 0]


def test_backwards_turns_outputs_back_and_leaves_the_carry():
    def unroll(params, carry, steps, key):
        assert steps.mask is None and steps.reset is None
        return jr.Rollout(steps.xs[-1], jnp.cumsum(steps.xs))

    layer = time.backwards(jr.dropout(0.0)._replace(unroll=unroll))
    rollout = layer.unroll((), (), jr.Steps(jnp.array([1, 2, 3])), None)
    assert rollout.outputs.tolist() == [6, 5, 3] and int(rollout.carry) == 1


def test_detach_keeps_values_of_every_kind():
    carry = state(3, 2)
    jax.tree.map(np.testing.assert_array_equal, jr.detach(carry), carry)


def test_select_carry_by_rows():
    chosen = jr.select_carry(jnp.array([False, True]), state(1, 2), state(2, 2))
    assert chosen.count.tolist() == [2, 1]


WRONG_CHOICES = {
    "an int flag": (jnp.array([0, 1]), state(1, 2), TypeError, "flag must be bool, got int32"),
    "another tree": (jnp.array([True, False]), (1,), TypeError, "yes must have the structure"),
    "another batch": (jnp.ones(2, bool), state(1, 3), ValueError, "yes.vector must have the shape"),
    "a flag for steps": (jnp.ones(3, bool), state(1, 2), ValueError, "flag must have the leading"),
    "a flag for entries": (jnp.ones((2, 2), bool), state(1, 2), ValueError, "flag must have the"),
}


@pytest.mark.parametrize("name", WRONG_CHOICES)
def test_other_choices_raise(name):
    flag, yes, error, message = WRONG_CHOICES[name]
    with pytest.raises(error, match=message):
        jr.select_carry(flag, yes, state(2, 2))


def test_broadcast_carry_puts_the_batch_in_front():
    carry = jr.broadcast_carry(state(1), (4, 3))
    assert [leaf.shape for leaf in carry] == [(4, 3, 2), (4, 3, 2, 3), (4, 3)]


def test_what_enters_the_recurrence_is_cast_once():
    tree = {
        "real": jnp.ones(1, jnp.bfloat16),
        "complex": jnp.ones(1, jnp.complex64),
        "int": jnp.ones(1, int),
    }
    cast = precision.in_compute_dtype({"kernel": jnp.ones(1, jnp.bfloat16)}, tree)
    dtypes = {name: str(leaf.dtype) for name, leaf in cast.items()}
    assert dtypes == {"real": "float32", "complex": "complex64", "int": "int32"}


def test_what_enters_a_float64_recurrence_is_float64(x64):
    tree = {"real": jnp.ones(1, jnp.float32), "complex": jnp.ones(1, jnp.complex64)}
    cast = precision.in_compute_dtype({"kernel": jnp.ones(1, jnp.float64)}, tree)
    assert cast["real"].dtype == jnp.float64 and cast["complex"].dtype == jnp.complex128
