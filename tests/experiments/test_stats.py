"""Means with intervals: groups are drawn, and neighbours together where they depend."""

import numpy as np
import pytest

from experiments.frame.stats import Interval, bootstrap, mean_and_spread, share


def test_an_interval_holds_the_mean_and_knows_a_sure_difference():
    sure = bootstrap(np.full(12, -0.25))
    assert sure == (-0.25, -0.25, -0.25)
    unsure = bootstrap(np.random.default_rng(0).normal(size=50))
    assert unsure.low < unsure.mean < unsure.high


def test_it_is_about_as_wide_as_the_normal_approximation():
    values = np.random.default_rng(1).normal(size=400)
    made = bootstrap(values)
    expected = 2 * 1.96 * values.std() / 20
    assert made.high - made.low == pytest.approx(expected, rel=0.1)


def test_large_groups_count_for_more():
    made = bootstrap([10.0, 0.0], [10, 30])
    assert made.mean == 0.25 and (made.low, made.high) == (0.0, 1.0)


def test_blocks_widen_the_interval_of_values_that_depend_on_their_neighbours():
    values = np.repeat(np.random.default_rng(2).normal(size=40), 5)
    alone, blocks = (bootstrap(values, block=size) for size in (1, 10))
    assert blocks.high - blocks.low > 1.5 * (alone.high - alone.low)


def test_how_numbers_are_shown():
    assert Interval(-0.5, -1, 0.25).shown(1) == "-0.5 [-1.0, +0.2]"
    assert mean_and_spread(np.array([])) == "-" and mean_and_spread(np.array([2.0])) == "2.0"
    assert mean_and_spread(np.array([1.0, 3.0]), 2) == "2.00 ± 1.41"
    assert share([True, False, True]) == "2 of 3"
