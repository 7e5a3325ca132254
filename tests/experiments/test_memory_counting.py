"""Counting states: the bounds against brute force, and lines that can fail."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.memory.config import Config
from experiments.memory.counting import (
    Counted,
    Rounding,
    all_histories,
    as_codes,
    carries_of_all,
    count,
    count_rounded,
    initial_params,
    most_bits_right,
    parity_cell,
    rounded,
    shift_register,
)
from experiments.memory.expect import counting, parity_bit, registers

NUM_STEPS = 6


def test_all_histories_are_there_once_and_in_order():
    assert all_histories(3).tolist() == [list(bits) for bits in itertools.product((0, 1), repeat=3)]


def test_the_most_bits_right_is_that_of_the_best_partition_of_three_bits():
    # Every way to give two states to the 8 histories of 3 bits, read by majority.
    histories = all_histories(3)
    best = 0.0
    for states in itertools.product((0, 1), repeat=8):
        states, right = np.array(states), 0
        for state in (0, 1):
            ones = histories[states == state].sum(axis=0)
            right += np.maximum(ones, (states == state).sum() - ones).sum()
        best = max(best, right / histories.size)
    assert most_bits_right(1, 3) == pytest.approx(best)


def test_the_most_bits_right_is_reached_by_the_perfect_code_of_seven_bits():
    # Hamming 1950: 16 words of 7 bits, every other word one bit from one of them.
    assert most_bits_right(4, 7) == 1 - 1 / 8
    assert most_bits_right(7, 7) == most_bits_right(9, 7) == 1
    assert most_bits_right(0, 5) == 0.5


def test_count_of_a_carry_that_is_the_number_of_ones():
    counted = count("ones", 1, 3, np.cumsum(all_histories(4), axis=1))
    assert counted.states.tolist() == [2, 3, 4, 5]
    # n = 2: one history with no ones, two with one of them, of whose four bits two are right.
    assert counted.bits_right[1] == pytest.approx((2 + 2 + 2) / 8)


@pytest.mark.parametrize(("units", "bits"), [(1, 3), (3, 1), (2, 2)])
def test_a_shift_register_holds_the_last_bits_and_nothing_else(units, bits):
    histories = all_histories(NUM_STEPS)
    carries = carries_of_all(shift_register(units, bits), (), histories)
    assert carries.shape == (2**NUM_STEPS, NUM_STEPS, units)
    capacity = units * bits
    newest = histories[:, -capacity:] @ 2 ** np.arange(capacity)[::-1]
    assert (as_codes(carries[:, -1], 2**bits) == newest).all()
    counted = count("register", units, capacity, as_codes(carries, 2**bits))
    assert registers([counted])[1] and counting([counted])[1]
    missing = NUM_STEPS - capacity
    assert counted.bits_right[-1] == pytest.approx(1 - missing / 2 / NUM_STEPS)


def test_one_bit_holds_the_parity_of_all_histories():
    histories = all_histories(NUM_STEPS)
    cell = parity_cell()
    carries = carries_of_all(cell, (), histories)
    assert jr.state_capacity_bits(cell, ()) == 1
    assert (carries[:, -1, 0] == histories.sum(axis=1) % 2).all()


def test_a_rounded_carry_is_in_the_middle_of_one_of_the_parts_and_has_a_derivative():
    cell = jr.gru(3)
    params = cell.init(jax.random.key(0), 1)
    xs = jax.random.normal(jax.random.key(1), (20, 5, 1))
    kept = jnp.array([True, True, False])

    def outputs(params):
        return jr.unroll(rounded(cell, Rounding(4.0, kept)), params, xs).outputs

    values = np.unique(np.asarray(outputs(params))[..., :2])
    assert set(values.tolist()) <= {-0.75, -0.25, 0.25, 0.75} and len(values) > 1
    assert not np.asarray(outputs(params))[..., 2].any()
    gradient = jax.grad(lambda params: outputs(params).sum())(params)
    assert np.abs(gradient.kernel).sum() > 0


def test_the_carries_of_a_rounded_network_keep_to_the_bound():
    config = Config(state_units=(1, 2), state_bits=(1, 2), history_bits=6)
    counted = count_rounded(config, initial_params(config))
    assert [one.capacity for one in counted] == [1, 2, 2, 4]
    assert counting(counted)[1]


def test_the_expectations_of_counting_can_fail():
    good = Counted("good", 1, 2, np.array([2, 4, 4, 4]), np.zeros(4))
    good = good._replace(bits_right=good.most_bits_right)
    assert good.states.tolist() == good.most_states.tolist()
    assert counting([good])[1] and registers([good])[1]
    bad = good._replace(states=good.states + 1), good._replace(bits_right=good.bits_right + 0.01)
    assert not any(counting([good, one])[1] for one in bad)
    assert not registers([good, good._replace(states=good.states - [0, 0, 0, 1])])[1]
    one_bit = Counted("parity", 1, 1, np.array([2, 2]), np.array([1.0, 1.0]))
    assert parity_bit(one_bit)[1]
    for change in (
        {"bits_right": np.array([1.0, 0.99])}, {"states": np.array([2, 3])}, {"capacity": 2},
    ):  # fmt: skip
        assert not parity_bit(one_bit._replace(**change))[1]
