"""Errors of the models and of the baselines on the same months, and how sure a difference is."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.minimal.baselines import Baseline, one_step_errors
from experiments.minimal.forecasts import Forecasts
from experiments.minimal.task import Task, scale

BLOCK, RESAMPLES, LEVEL = 3, 4000, 95


class Entry(NamedTuple):
    """One model or baseline.

    Attributes:
        name: What it is called.
        chosen: What was chosen for it on the validation months.
        one_step: `[S, E, N]`, errors in the test months, each forecast from the truth before it.
        levels: `[S, E, O, H]`, errors of the level so many months behind the origin; None for a
            model that was not run freely.
    """

    name: str
    chosen: str
    one_step: np.ndarray
    levels: np.ndarray | None


class Interval(NamedTuple):
    """A mean difference of errors and its interval; below 0: the first is better."""

    mean: float
    low: float
    high: float


def run_freely(entries: Sequence[Entry]) -> list[tuple[Entry, np.ndarray]]:
    """The entries that have errors of the level, each with the errors."""
    return [(entry, entry.levels) for entry in entries if entry.levels is not None]


def model_entry(
    name: str, chosen: str, task: Task, one_step: np.ndarray, forecasts: Forecasts | None
) -> Entry:
    """The errors of a model whose forecasts are in units of `scale` before the test."""
    truth = task.changes / scale(task.changes, task.test_from)
    errors = np.abs(one_step - truth[:, 1:])[..., task.test_from - 1 :]
    levels = None
    if forecasts is not None:
        levels = level_errors(forecasts.free, truth, forecasts.origins)
    return Entry(name, chosen, errors, levels)


def baseline_entry(baseline: Baseline, task: Task, origins: np.ndarray, horizon: int) -> Entry:
    """The errors of a baseline, as of one seed."""
    unit = scale(task.changes, task.test_from)
    errors = one_step_errors(baseline.forecast, task, task.test_from, task.changes.shape[1])
    free = [baseline.forecast(task.changes[:, :origin], horizon) / unit for origin in origins]
    levels = level_errors(np.stack(free, axis=1), task.changes / unit, origins)
    return Entry(baseline.name, baseline.chosen, errors[None], levels[None])


def level_errors(forecasts: np.ndarray, truth: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Absolute errors of the sums of changes since the origin, `[..., E, O, H]`."""
    months = origins[:, None] + np.arange(forecasts.shape[-1])
    return np.abs(np.cumsum(forecasts - truth[:, months], axis=-1))


def change_errors(forecasts: np.ndarray, truth: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Absolute errors of the changes themselves, `[..., E, O, H]`."""
    months = origins[:, None] + np.arange(forecasts.shape[-1])
    return np.abs(forecasts - truth[:, months])


def difference(one: np.ndarray, other: np.ndarray) -> Interval:
    """The mean of `one - other`, errors `[S, E, N]`, with a bootstrap over blocks of months.

    Months are what is drawn: industries move together, and seeds share the data.
    """
    by_month = one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))
    num_months = len(by_month)
    generator = np.random.default_rng(0)
    num_blocks = -(-num_months // BLOCK)
    first = generator.integers(0, num_months, (RESAMPLES, num_blocks, 1))
    drawn = (first + np.arange(BLOCK)).reshape(RESAMPLES, -1)[:, :num_months] % num_months
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(by_month[drawn].mean(axis=1), [tail, 100 - tail])
    return Interval(float(by_month.mean()), float(low), float(high))
