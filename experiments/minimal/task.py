"""What is known when: months to learn from, to choose by and to test on, by industry."""

from typing import NamedTuple

import numpy as np

import jaxrnn as jr
from experiments.data.employment import INDUSTRIES, Employment, monthly_changes

HELD_OUT = INDUSTRIES[3::4]  # every fourth, chosen before anything was run
VALIDATION_MONTHS = 24


class Task(NamedTuple):
    """The series and how they are split; a month is an index into the last axis of `changes`."""

    months: np.ndarray  # [M]
    changes: np.ndarray  # [E, M], per cent
    is_training: np.ndarray  # bool [E], False for an industry that is never trained on
    validation_from: int  # the first month to choose by
    test_from: int  # the first month to test on


def make_task(employment: Employment, first_test_year: int) -> Task:
    """Splits by time, and by industry."""
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


def scaled_changes(task: Task, until: int) -> np.ndarray:
    """All changes in units of what was known before `until`, `[E, M]`."""
    return task.changes / scale(task.changes, until)
