"""The cost experiment: its fits and formulas, a small run, what is not run, and bad options."""

import jax
import numpy as np
import pytest

from experiments.cost.config import Config
from experiments.cost.expect import Quantity, curve, exponent, judged
from experiments.cost.measure import Counted, Measured, measure
from experiments.cost.model import MODELS, carry_bytes, count_simple, features_of, model, width_of
from experiments.cost.report import report
from experiments.frame.checkpoints import Checkpoints

pytestmark = pytest.mark.slow  # small runs of the whole experiment

CONFIG = Config(
    models=("elman", "elman_end", "elman_sqrt", "attention"),
    lengths=(4, 8, 16, 32),
    num_params=600,
    rounds=2,
    tokens=2,
    memory_bound=60 / 2**20,  # GiB: 60 KiB
)


def test_the_exponent_of_a_power_law():
    lengths = np.array([2.0, 8.0, 64.0])
    assert exponent(lengths, 5 * lengths**1.5) == pytest.approx(1.5)
    assert np.isnan(exponent(lengths[:1], lengths[:1]))


def test_a_curve_is_fitted_on_the_upper_half_where_it_was_measured():
    def found(last, **changes):
        values = {2: 100.0, 4: 12.0, 8: 48.0, 16: last}
        counted = {t: Counted(*8 * [t])._replace(carry_bytes=v) for t, v in values.items()}
        rows = [
            Measured("a", t, one._replace(predicted_carry=t**2), np.ones(1), np.ones(1))
            for t, one in counted.items()
        ]
        return curve(rows, Quantity("q", "s", 1, "carry_bytes", "predicted_carry", **changes))

    one = found(float("nan"))
    assert list(one.lengths) == [2, 4, 8] and list(one.all_lengths) == [2, 4, 8, 16]
    assert one.constant == pytest.approx(48 / 64)
    assert list(one.predicted) == pytest.approx([3, 12, 48, 192])
    assert np.isnan(one.exponent) and one.deviation == pytest.approx(1)
    one = found(384.0)
    assert one.exponent == pytest.approx(3) and one.predicted_exponent == pytest.approx(2)
    assert one.deviation == pytest.approx(np.exp(abs(np.log(48 / 64 / (1.125)))), rel=1e-6)
    assert found(384.0, fitted=False).constant == 1


@pytest.mark.parametrize("name", MODELS)
def test_the_formula_of_the_carry_and_the_size(name):
    width = width_of(name, 16, 10000)
    layer = model(name, width, 9)
    params = jax.eval_shape(lambda key: layer.init(key, features_of(name, 16)), jax.random.key(0))
    carry = jax.eval_shape(layer.initial_carry, params)
    leaves = jax.tree.leaves(carry)
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) == carry_bytes(name, width, 9)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert 0.85 * 10000 < size < 1.15 * 10000


def test_the_formulas_of_a_simple_cell():
    one = count_simple(3, 5, 2, 7)
    assert one.params == one.counted_params == 5 * 3 + 25 + 5 + 10 + 2
    assert one.work == one.counted_work == 7 * (15 + 25 + 10)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"), {})


@pytest.fixture(scope="module")
def results(checkpoints):
    return list(measure(CONFIG, checkpoints))[-1]


def all_rows(results):
    return [one for rows in results.models.values() for one in rows]


def words(results):
    return {line.point: line.word for line in judged(CONFIG, results)}


def test_what_needs_more_than_the_bound_is_compiled_but_not_run(results):
    rows = all_rows(results)
    assert len(rows) == 4 * 4
    for one in rows:
        assert one.was_run == (one.counted.training_bytes <= 60 * 2**10)
        assert (one.token_seconds > 0).all() and one.counted.training_bytes > 0
    refused = [(one.model, one.num_steps) for one in rows if not one.was_run]
    assert ("attention", 32) in refused and ("elman", 4) not in refused


def test_the_report_says_what_was_not_run(results, written, rows):
    one = report(CONFIG, results)
    folder = written(one)
    saved = rows(folder / "metrics.csv")
    assert len(saved) == 16 and saved[-1]["training_seconds"] == "nan"
    assert (folder / "cost.png").stat().st_size > 1000
    assert "| not run: would need" in (folder / "summary.md").read_text()
    assert any("attention at T = 32 was compiled and not run" in line for line in one.failed)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_interrupted_run_has_a_report(results, number, written):
    models = {name: rows[:number] for name, rows in results.models.items()} if number else {}
    so_far = results._replace(models=models)
    one = report(CONFIG, so_far)
    assert written(one, "interrupted") and len(one.pictures) == (number > 0)
    assert words(so_far)["streaming memory"] == "not run"


def test_lengths_come_back_from_their_checkpoint(results, checkpoints):
    *_, again = measure(CONFIG, checkpoints)
    for one, other in zip(all_rows(again), all_rows(results), strict=True):
        assert one.counted == other.counted
        assert np.array_equal(one.token_seconds, other.token_seconds)
        assert np.array_equal(one.training_seconds, other.training_seconds, equal_nan=True)


@pytest.mark.parametrize(
    ("point", "field", "value"),
    [
        ("streaming memory", "carry_bytes", lambda one: one.num_steps),
        ("training memory", "training_bytes", lambda one: one.num_steps**3),
        ("training memory: counted and planned", "training_bytes", lambda one: one.num_steps**7),
        ("√T checkpoints", "training_bytes", lambda one: one.num_steps),
        ("constant streaming is not constant training", "training_bytes", lambda one: 1.0),
    ],
)
def test_a_criterion_can_fail(results, point, field, value):
    def change(one):
        return one._replace(counted=one.counted._replace(**{field: value(one)}))

    models = {name: tuple(map(change, rows)) for name, rows in results.models.items()}
    assert words(results._replace(models=models))[point] == "FAIL"


def test_the_streaming_formula_and_the_count_of_a_simple_cell_hold(results):
    found = words(results)
    assert found["streaming memory"] == "pass"
    assert found["constant streaming is not constant training"] == "pass"
    assert found["training time"] == "not run"
    wrong = results._replace(simple=results.simple._replace(counted_work=1))
    assert words(wrong)["formulas of a simple cell"] == "FAIL"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--models", "transformer"], "--models must be among"),
        (["--lengths", "64"], "--lengths must be two or more, got 64"),
        (["--lengths", "64", "32"], "--lengths must be one or more, rising, at least 2"),
        (["--memory-bound", "0"], "--memory-bound must be finite and above 0, got 0"),
        (["--rounds", "0"], "--rounds must be at least 1, got 0"),
    ],
)
def test_wrong_options_are_one_line(options, expected, refused):
    assert expected in refused("cost", options)
