"""The split and the baselines of the minimal experiment, by worked numbers."""

import numpy as np
import pytest

from experiments.minimal import forecasts, probes
from experiments.minimal.task import (
    HELD_OUT,
    INDUSTRIES,
    Task,
    load_employment,
    make_task,
    scale,
    scaled_changes,
    training_changes,
    with_mean,
)


@pytest.fixture(scope="module")
def task():
    return make_task(load_employment(), 2013)


def test_the_split_is_by_time_and_by_industry(task):
    assert str(task.months[task.test_from]) == "2013-01"
    assert str(task.months[task.validation_from]) == "2011-01"
    assert HELD_OUT == ("nondurable_goods", "utilities", "education_and_health_services")
    held_out = [n for n, seen in zip(INDUSTRIES, task.is_training, strict=True) if not seen]
    assert tuple(held_out) == HELD_OUT
    assert training_changes(task, task.test_from).shape == (12, 83)


def test_the_scale_is_the_mean_absolute_change_before_the_cut():
    changes = np.array([[1.0, -3.0, 100.0], [2.0, 0.0, 5.0]])
    assert scale(changes, 2).tolist() == [[2.0], [1.0]]
    task = Task(np.arange(3), changes, np.array([True, False]), 1, 2)
    assert training_changes(task, 2).tolist() == [[0.5, -1.5]]
    assert scaled_changes(task, 2).tolist() == [[0.5, -1.5, 50.0], [2.0, 0.0, 5.0]]


def test_every_series_comes_beside_the_mean_of_those_to_average():
    series = np.array([[1.0, 2.0], [3.0, 6.0], [50.0, 70.0]])
    made = with_mean(series, np.array([True, True, False]))
    assert made[..., 0].tolist() == series.tolist()
    assert made[..., 1].tolist() == 3 * [[2.0, 4.0]]


def test_training_depends_on_nothing_that_is_tested_on(task):
    assert probes.changed_by_what_is_hidden(task) == []


def test_a_scale_of_all_months_is_caught(task, monkeypatch):
    def leaking(task, until):
        seen = task.changes[task.is_training]
        return seen[:, :until] / np.abs(seen).mean(axis=1, keepdims=True)

    monkeypatch.setattr(probes, "training_changes", leaking)
    assert "series to train on" in probes.changed_by_what_is_hidden(task)


def test_training_on_an_industry_held_out_is_caught(task, monkeypatch):
    def leaking(task, until):
        return task.changes[:, :until]

    monkeypatch.setattr(forecasts, "training_changes", leaking)
    assert probes.changed_by_what_is_hidden(task) == ["autoregression"]


def test_a_mean_of_industries_held_out_is_caught(task, monkeypatch):
    pulled = forecasts.pulled_smoothing

    def leaking(alpha, pull, unit, is_training):
        return pulled(alpha, pull, unit, np.ones_like(is_training))

    monkeypatch.setattr(forecasts, "pulled_smoothing", leaking)
    assert probes.changed_by_what_is_hidden(task) == ["smoothing, pulled to the mean"]


def test_choosing_by_test_months_is_caught(task, monkeypatch):
    one_step_errors = forecasts.one_step_errors

    def leaking(forecast, task, start, stop):
        return one_step_errors(forecast, task, task.test_from, task.changes.shape[1])

    monkeypatch.setattr(forecasts, "one_step_errors", leaking)
    assert probes.changed_by_what_is_hidden(task)


def test_settings_chosen_by_test_months_are_caught(task, monkeypatch):
    def leaking(task):
        return scaled_changes(task, task.validation_from)[task.is_training]

    monkeypatch.setattr(probes, "changes_to_choose_by", leaking)
    assert probes.changed_by_what_is_hidden(task) == ["series to choose by"]


PAST = np.array([[*range(1, 15)]], float)  # changes of 1, 2, …, 14


@pytest.mark.parametrize(
    ("forecast", "expected"),
    [
        (forecasts.last_value, [0, 0, 0]),
        (forecasts.drift, [7.5, 7.5, 7.5]),
        # The level of a year before: 4 + … + 14 lower; then it goes as it went after that.
        (forecasts.seasonal_naive, [-99, 4, 5]),
        # The changes of a year before.
        (forecasts.seasonal_naive_with_drift, [3, 4, 5]),
        (forecasts.moving_average(3), [13, 13, 13]),
        (forecasts.autoregression(np.array([2.0, -1.0])), [15, 16, 17]),
    ],
)
def test_baselines_by_worked_numbers(forecast, expected):
    assert forecast(PAST, 3).tolist() == [expected]


def test_seasonal_naive_returns_to_the_levels_of_the_year_before():
    changes = np.random.default_rng(0).normal(size=(2, 30))
    levels = np.cumsum(changes, axis=1)
    forecast = levels[:, -1:] + np.cumsum(forecasts.seasonal_naive(changes, 12), axis=1)
    np.testing.assert_allclose(forecast, levels[:, -12:])
    drifted = levels[:, -1:] + np.cumsum(forecasts.seasonal_naive_with_drift(changes, 12), axis=1)
    growth = levels[:, -1:] - levels[:, -13:-12]
    np.testing.assert_allclose(drifted, levels[:, -12:] + growth)


def test_exponential_smoothing_is_that_of_the_notes():
    # Inputs 2, 0, 4 with α = 1/2 from 0 give the states 1, 1/2, 9/4.
    past = np.array([2.0, 0.0, 4.0])
    smooth = forecasts.exponential_smoothing(0.5)
    assert [smooth(past[:stop], 1)[0] for stop in (1, 2, 3)] == [1, 0.5, 2.25]


def test_smoothing_is_pulled_to_the_mean_of_what_is_trained_on_in_its_own_unit():
    # Levels of 2, 6 and 40 are 2, 3 and 4 units of 1, 2 and 10; the first two have the mean 2.5.
    past = np.array([[4.0], [12.0], [80.0]])
    unit, is_training = np.array([[1.0], [2.0], [10.0]]), np.array([True, True, False])
    pulled = forecasts.pulled_smoothing(0.5, 0.5, unit, is_training)(past, 2)
    np.testing.assert_allclose(pulled, [2 * [2.25], 2 * [5.5], 2 * [32.5]])


def test_the_autoregression_finds_the_weights_of_an_exact_one():
    series = np.zeros((3, 40))
    series[:, :2] = np.random.default_rng(0).normal(size=(3, 2))
    for t in range(2, 40):
        series[:, t] = 1.2 * series[:, t - 1] - 0.9 * series[:, t - 2]
    weights = forecasts.fit_autoregression(series, 2, 1e-9)
    np.testing.assert_allclose(weights, [1.2, -0.9], rtol=1e-6)
    forecast = forecasts.autoregression(weights)(series[:, :20], 5)
    np.testing.assert_allclose(forecast, series[:, 20:25], rtol=1e-4)
    assert np.abs(forecasts.fit_autoregression(series, 2, 1e9)).max() < 1e-6


def test_errors_are_of_forecasts_from_the_months_before(task):
    seen = []

    def spy(past, horizon):
        seen.append(past.shape[1])
        return past[:, -1:]

    errors = forecasts.one_step_errors(spy, task, 83, 86)
    assert seen == [83, 84, 85]
    moved = np.abs(np.diff(task.changes, axis=1))[:, 82:85]
    np.testing.assert_allclose(errors, moved / scale(task.changes, 83))


def test_what_is_open_is_chosen_on_the_validation_months(task):
    chosen = {one.name: one.chosen for one in forecasts.make_baselines(task)}
    errors = {
        number: forecasts.one_step_errors(
            forecasts.moving_average(number), task, task.validation_from, task.test_from
        )[task.is_training].mean()
        for number in forecasts.MOVING_AVERAGES
    }
    assert chosen["moving average"] == f"{min(errors, key=lambda n: errors[n])} months"


def test_errors_of_levels_are_those_of_sums():
    truth = np.array([[0.0, 1.0, 2.0, 3.0]])
    origins = np.array([1, 2])
    made = np.array([[[2.0, 0.0], [2.0, 4.0]]])
    assert forecasts.level_errors(made, truth, origins).tolist() == [[[1, 1], [0, 1]]]
    assert forecasts.change_errors(made, truth, origins).tolist() == [[[1, 2], [0, 1]]]


def test_an_interval_holds_the_mean_and_knows_a_sure_difference():
    generator = np.random.default_rng(0)
    errors = np.abs(generator.normal(size=(2, 15, 36)))
    sure = forecasts.difference(errors, errors + 0.25)
    assert sure.mean == pytest.approx(-0.25) and sure.low == pytest.approx(sure.high)
    unsure = forecasts.difference(errors, np.abs(generator.normal(size=(1, 15, 36))))
    assert unsure.low < unsure.mean < unsure.high and unsure.low < 0 < unsure.high
