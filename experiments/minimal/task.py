"""U.S. employment by industry, its changes, and their splits."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.data.vega import folder_in_vega_datasets
from experiments.frame.errors import ExperimentError

INDUSTRIES = (
    *("mining_and_logging", "construction", "durable_goods", "nondurable_goods"),
    *("wholesale_trade", "retail_trade", "transportation_and_warehousing", "utilities"),
    *("information", "financial_activities", "professional_and_business_services"),
    *("education_and_health_services", "leisure_and_hospitality", "other_services", "government"),
)
HELD_OUT = INDUSTRIES[3::4]  # every fourth, chosen before anything was run
VALIDATION_MONTHS = 24
NUM_MONTHS = 120
FIRST_MONTH = np.datetime64("2006-01")
TOTAL, ROUNDING = "nonfarm", 1.0


class Employment(NamedTuple):
    """`months [120]` and `thousands [15, 120]`, a row for each of `INDUSTRIES`."""

    months: np.ndarray
    thousands: np.ndarray


def load_employment(folder: Path | None = None) -> Employment:
    """The whole table, as it is; an ExperimentError if the file is missing or damaged."""
    path = (folder_in_vega_datasets() if folder is None else folder) / "us-employment.csv"
    if not path.is_file():
        raise ExperimentError(f"{path} is missing: reinstall vega_datasets")
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        months = np.array([row["month"] for row in rows], "datetime64[M]")
        thousands = np.array([[float(row[name]) for row in rows] for name in INDUSTRIES])
        total = np.array([float(row[TOTAL]) for row in rows])
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ExperimentError(f"{path} is damaged, reinstall vega_datasets: {error}") from error
    _check(path, months, thousands, total)
    return Employment(months, thousands)


def monthly_changes(employment: Employment) -> np.ndarray:
    """Changes to each month but the first in per cent, 100 log(xₜ / xₜ₋₁), `[15, 119]`."""
    return 100 * np.diff(np.log(employment.thousands), axis=1)


def _check(path, months, thousands, total):
    expected = FIRST_MONTH + np.arange(NUM_MONTHS)
    facts = {
        "every month from 2006 to 2015 once": np.array_equal(months, expected),
        "numbers above 0": bool(np.all(np.isfinite(thousands) & (thousands > 0))),
        "industries that sum to the total": bool(
            np.all(np.abs(thousands.sum(axis=0) - total) <= ROUNDING)
        ),
    }
    wrong = [fact for fact, holds in facts.items() if not holds]
    if wrong:
        raise ExperimentError(
            f"{path} is damaged, reinstall vega_datasets: it lacks {' and '.join(wrong)}"
        )


class Task(NamedTuple):
    """The series and how they are split; a month is an index into the last axis of `changes`."""

    months: np.ndarray  # [M]
    changes: np.ndarray  # [E, M], per cent
    is_training: np.ndarray  # bool [E], False for an industry that is never trained on
    validation_from: int  # the first month to choose by
    test_from: int  # the first month to test on


def make_task(employment: Employment, first_test_year: int) -> Task:
    months, changes = employment.months[1:], monthly_changes(employment)
    test_from = int(np.flatnonzero(months == np.datetime64(f"{first_test_year}-01"))[0])
    spans = (0, test_from), (test_from, len(months))
    windows = [(name, *span) for name in INDUSTRIES for span in spans]
    entity, start, stop = (np.array(column) for column in zip(*windows, strict=True))
    split = jr.split_by_entity_and_time(entity, start, stop, test_from=test_from, held_out=HELD_OUT)
    is_training = np.isin(INDUSTRIES, entity[split.train])
    return Task(months, changes, is_training, test_from - VALIDATION_MONTHS, test_from)


def scale(changes: np.ndarray, until: int) -> np.ndarray:
    """The mean absolute change of each industry before month `until`, `[E, 1]`.

    An error in this unit is relative to what "no change" would have been off on the months that
    may be seen (Hyndman and Koehler 2006, mean absolute scaled error).
    """
    return np.abs(changes[:, :until]).mean(axis=1, keepdims=True)


def training_changes(task: Task, until: int) -> np.ndarray:
    """All that a model is fitted to: changes before `until`, in units of `scale`, `[E', until]`."""
    seen = task.changes[task.is_training, :until]
    return seen / scale(seen, until)


def changes_to_choose_by(task: Task) -> np.ndarray:
    """What a choice is scored on: training industries before the test, `[E', test_from]`.

    In units of what was known before the months to choose by.
    """
    return scaled_changes(task, task.validation_from)[task.is_training, : task.test_from]


def with_mean(series: Any, averaged: Any = slice(None)) -> Any:
    """`[E, ...] -> [E, ..., 2]`: every series beside the mean of those to average, or of all."""
    mean = series[averaged].mean(axis=0, keepdims=True)
    return jnp.stack([series, jnp.broadcast_to(mean, series.shape)], axis=-1)


def scaled_changes(task: Task, until: int) -> np.ndarray:
    """All changes in units of what was known before `until`, `[E, M]`."""
    return task.changes / scale(task.changes, until)
