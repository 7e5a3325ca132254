"""Digits: the data, the split, sequential depth and the claims, each against the obvious."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxrnn as jr
from experiments.digits import expect
from experiments.digits import task as data
from experiments.digits.config import Config
from experiments.digits.measure import Results
from experiments.digits.model import FAMILIES, make_model
from experiments.digits.probes import Counted, Growth, Reach, sequential_depth
from experiments.digits.task import (
    ORDERS,
    logistic_regression,
    majority,
    make_split,
    make_tasks,
    nearest_digit,
)
from experiments.frame.errors import ExperimentError


@pytest.fixture(scope="module")
def digits():
    return data.load_digits()


def test_the_digits_are_those_of_scikit_learn_and_no_others(digits):
    assert digits.pixels.shape == (1797, 64) and digits.labels[:10].tolist() == list(range(10))
    assert digits.pixels[0, :8].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    with pytest.raises(ExperimentError, match="not as expected"):
        data.checked(digits._replace(labels=digits.labels[::-1]))


@pytest.mark.parametrize("seed", [0, 7, None])
def test_the_split_takes_every_digit_once_and_classes_alike(digits, seed):
    split = make_split(digits.labels, seed)
    assert sorted(np.concatenate(split).tolist()) == list(range(1797))
    assert np.bincount(digits.labels[split.training]).tolist() == [110] * 10
    assert np.bincount(digits.labels[split.validation]).tolist() == [30] * 10


def test_file_order_tests_on_the_last_digits_of_each_class(digits):
    split = make_split(digits.labels, None)
    for digit in range(10):
        training, test = (
            part[digits.labels[part] == digit] for part in (split.training, split.test)
        )
        assert training.max() < test.min()


def test_the_orders_hold_the_same_pixels_scaled_by_training_digits(digits):
    split = make_split(digits.labels, 0)
    plain, permuted = make_tasks(digits, split, 1)
    assert (plain.order, permuted.order) == ORDERS
    seen = plain.xs[split.training]
    assert abs(seen.mean()) < 1e-5 and abs(seen.std() - 1) < 1e-5
    assert not np.array_equal(plain.xs, permuted.xs)
    np.testing.assert_array_equal(np.sort(plain.xs, axis=1), np.sort(permuted.xs, axis=1))
    same = make_tasks(digits, split, 1)[1]
    np.testing.assert_array_equal(permuted.xs, same.xs)


def test_baselines_on_points_that_leave_no_doubt():
    pixels = np.repeat([[0.0, 16], [1, 16], [16, 0]], 20, axis=0)
    labels = np.repeat([1, 1, 0], 20)
    asked = np.array([[2.0, 15], [15, 1]])
    assert majority(pixels, labels, asked).tolist() == [1, 1]
    assert nearest_digit(pixels, labels, asked).tolist() == [1, 0]
    assert logistic_regression(pixels, labels, asked).tolist() == [1, 0]


def test_depth_counts_what_must_wait():
    x = jnp.ones((4, 3))
    assert sequential_depth(lambda x: x.T.reshape(-1), x) == 0
    assert sequential_depth(lambda x: jnp.sin(x) + jnp.cos(x), x) == 2
    assert sequential_depth(lambda x: jnp.sin(jnp.cos(x) + x), x) == 3

    def loop(length, chained):
        def body(h, x):
            return (jnp.sin(h * x) if chained else h), jnp.cos(h)

        return lambda x: lax.scan(body, x[0], x, length=length)

    for length in (4, 9):
        xs = jnp.ones((length, 3))
        assert sequential_depth(loop(length, True), xs) == 2 * length
        assert sequential_depth(loop(length, False), xs) == 1


def test_depth_chooses_among_platforms_only_when_asked():
    def forms(x):
        def slow(x):
            return jnp.sin(jnp.sin(jnp.sin(x)))

        return lax.platform_dependent(x, cpu=slow, default=jnp.sin)

    def branches(x):
        return lax.cond(x[0] > 0, lambda x: jnp.sin(jnp.sin(x)), jnp.cos, x)

    x = jnp.ones(3)
    assert sequential_depth(forms, x) == 3 and sequential_depth(forms, x, shallow=True) == 1
    assert sequential_depth(branches, x, shallow=True) == 2
    with pytest.raises(ValueError, match="loop"):
        sequential_depth(lambda x: lax.while_loop(lambda x: x[0] < 5, lambda x: x + 1, x), x)


def test_depth_of_real_models_is_serial_logarithmic_and_constant():
    def depth(cell, steps):
        params = jax.eval_shape(lambda key: cell.init(key, 4), jax.random.key(0))
        xs = jax.ShapeDtypeStruct((steps, 4), jnp.float32)
        return sequential_depth(lambda p, xs: jr.unroll(cell, p, xs).outputs, params, xs)

    elman = [depth(jr.elman(3), steps) for steps in (8, 16, 32)]
    assert elman[2] - elman[1] == 2 * (elman[1] - elman[0]) >= 16
    scan = jr.recurrent(jr.lru(3, 3), evaluator=jr.associative())
    lru = [depth(scan, steps) for steps in (8, 16, 32)]
    assert lru[2] - lru[1] == lru[1] - lru[0] > 0
    attention = jr.self_attention(2, window=32)
    assert depth(attention, 8) == depth(attention, 32)


def test_every_model_belongs_to_one_family():
    names = [name for family in FAMILIES.values() for name in family]
    assert sorted(names) == sorted(Config().models)
    assert make_model("s4d", 8, 1).num_outputs(1) == 10


def measured(depth=16.0, carry=1.0, early=0.1, exponent=1.0, name="gru"):
    """Results from which the claims read these numbers."""
    sensitivity = np.ones((2, 64))
    sensitivity[:, :16] = early
    seconds = {32: np.ones(3), 64: np.full(3, 2.0**exponent)}
    depths = {64: 10, 1024: int(10 * depth)}
    counted = Counted(name, depths, depths, {64: 8, 16384: int(8 * carry)}, {64: 1.0, 1024: 1.0})
    growth = Growth(8, {name: seconds}, {name: {32: 1, 64: 1}})
    return Results((), None, (), (counted,), (Reach(name, sensitivity),), None, growth)


def words(results, family="RNN"):
    return [one.word for one in expect.judged(results) if f", {family}:" in one.point]


def test_claims_hold_and_fail():
    assert words(measured()) == ["pass"] * 4
    assert words(Results((), None)) == ["not run"] * 4
    assert words(measured(depth=2)) == ["FAIL", "pass", "pass", "pass"]
    assert words(measured(carry=4)) == ["pass", "FAIL", "pass", "pass"]
    assert words(measured(early=0.9)) == ["pass", "pass", "FAIL", "pass"]
    assert words(measured(exponent=2.0)) == ["pass", "pass", "pass", "FAIL"]
    attention = measured(1, 256, 0.9, 2.0, name="attention")
    assert words(attention, "attention") == ["pass"] * 4
    assert words(measured(name="attention"), "attention") == ["FAIL"] * 4
    assert words(measured(2, name="s5"), "linear") == ["pass"] * 4


def test_a_claim_names_the_exceptions():
    one, other = measured(), measured(depth=2, name="lstm")
    verdict = expect.judged(one._replace(counted=one.counted + other.counted))[0]
    assert verdict.word == "FAIL" and verdict.measured == "LSTM: depth x 2.0"
