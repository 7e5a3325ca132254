"""What every part of the benchmark yields, and how its rounds are counted."""

import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from experiments.benchmark.work import Subject
from experiments.frame.timing import interleaved_seconds

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
MOST_ROUNDS = 100


class Measured(NamedTuple):
    """One subject at one piece of work.

    Attributes:
        part: Of the benchmark.
        group: What stands in one table, a model or a question.
        case: What was done, a row of that table.
        subject: Who did it, a column.
        run: Seconds of every round.
        compilation: Processor seconds of tracing and compiling.
        temporary_mib: As XLA plans it.
        amount: How much was done in `run`, in the unit of the part: tokens, steps; else 1.
    """

    part: str
    group: str
    case: str
    subject: str
    run: np.ndarray
    compilation: float = math.nan
    temporary_mib: float = math.nan
    amount: float = 1


class Timing(NamedTuple):
    """How long every case is repeated, never in fewer rounds than `rounds`, and by which clock."""

    seconds: float
    rounds: int
    clock: str


def measured(
    subjects: Mapping[str, Subject],
    timing: Timing,
    part: str,
    group: str,
    case: str,
    amounts: Mapping[str, float] | None = None,
) -> list[Measured]:
    """Runs all subjects in every round, and twice before the first."""
    calls = {name: subject.call for name, subject in subjects.items()}
    rounds = _rounds(calls, timing)
    seconds = interleaved_seconds(calls, rounds, clock=CLOCKS[timing.clock])
    return [
        Measured(
            part,
            group,
            case,
            name,
            seconds[name],
            subject.compilation,
            subject.temporary_mib,
            1 if amounts is None else amounts[name],
        )
        for name, subject in subjects.items()
    ]


def _rounds(calls: Mapping[str, Callable], timing: Timing) -> int:
    """How many rounds fit into the time that a case is given."""
    start = time.perf_counter()
    for call in calls.values():
        jax.block_until_ready(call())
    rounds = int(timing.seconds / (time.perf_counter() - start))
    return max(timing.rounds, min(rounds, MOST_ROUNDS))
