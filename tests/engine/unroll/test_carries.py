"""Carries of any shape, where they start, and where a reset puts them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.lstm_example import (
    NUM_STEPS,
    SMOOTHER,
    assert_equal,
    inputs,
    lstm,
    smooth,
)

import jaxrnn as jr
from jaxrnn.engine import precision


class Pair(NamedTuple):
    first: Any
    second: Any


def counter_cell():
    """The output is neither the first leaf nor any leaf; one leaf is an int."""

    def initial_carry(params, batch_shape=()):
        dtype = precision.compute_dtype(params)
        return Pair(jnp.zeros(batch_shape, jnp.int32), jnp.zeros((*batch_shape, 2), dtype))

    def advance(params, carry, z):
        return Pair(carry.first + 1, carry.second + params * z)

    def emit(params, carry, x):
        return 10 * carry.second + carry.first[..., None] + 0 * x

    return jr.simple_cell(
        lambda key, num_inputs: jnp.ones(()), advance, 2, initial_carry=initial_carry, emit=emit
    )


def test_an_output_that_is_no_leaf_of_the_carry():
    """keras#11472: a masked step repeated the first state as if it were the output."""
    xs = np.ones((2, 4, 2))
    mask = np.array([[1, 1, 0, 0], [0, 1, 0, 1]], bool)
    rollout = jr.unroll(counter_cell(), jnp.ones(()), xs, mask=mask)
    assert rollout.outputs[..., 0].tolist() == [[11, 22, 0, 0], [0, 11, 0, 22]]
    assert rollout.carry.first.tolist() == [2, 2]


@pytest.mark.parametrize("checkpoint", [None, "sqrt"])
def test_an_int_in_the_carry_differentiates(checkpoint):
    """jax#22045: the backward pass of scan failed on an int leaf."""
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
    """jax#22045 and flax#868: the int is kept, the rest learns."""
    cell = jr.learned_initial_carry(counter_cell())
    params = cell.init(jax.random.key(0), 2)
    reset = np.array([0, 0, 1, 0], bool)

    def loss(params):
        return jr.unroll(cell, params, np.ones((4, 2)), reset=reset).outputs.sum()

    gradient = jax.grad(loss, allow_int=True)(params)
    assert gradient.initial_carry.second.tolist() == [40, 40]


def test_a_matrix_memory_is_masked_and_reset_by_row():
    """keras#11498: the mask was tiled on the wrong axes for states of more than two axes."""

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


def test_no_carry_is_the_initial_carry():
    """mlx#3249: hidden=None differed from an explicit zero."""
    cell, params = lstm()
    xs = inputs(3, NUM_STEPS)
    assert_equal(
        jr.unroll(cell, params, xs, carry=cell.initial_carry(params, (3,))),
        jr.unroll(cell, params, xs),
    )


def test_a_reset_means_that_x_starts_a_sequence():
    """JaxMARL#119: the carry was reset one step too late, by the done of the step itself."""
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
    """flax#868."""
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
    """flax#3613, flax#4513, haiku#388: (c, h) for (h, c), unreadable errors, classes lost."""
    change, error, message = WRONG_CARRIES[name]
    cell, params = lstm()
    carry = change(cell.initial_carry(params, (3,)))
    with pytest.raises(error, match=message):
        jr.unroll(cell, params, inputs(3, NUM_STEPS), carry=carry)
