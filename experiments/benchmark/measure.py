"""Runs all subjects of a case in every round, or reads what earlier runs measured."""

import csv
import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.benchmark import baseline, linear, sequences, subjects
from experiments.benchmark.config import BASELINE, Config
from experiments.benchmark.work import CLOCKS, Case
from experiments.frame.errors import ExperimentError
from experiments.frame.progress import progress_bar
from experiments.frame.timing import interleaved_seconds

MOST_ROUNDS = 100
ROUNDS_FILE = "rounds.csv"
CASES = {
    "forward": functools.partial(subjects.cases, quantity="forward"),
    "training": functools.partial(subjects.cases, quantity="training"),
    "linear": linear.cases,
    "streaming": sequences.streaming,
    "lengths": sequences.lengths,
    "epochs": sequences.epochs,
    "checkpoints": sequences.checkpoints,
    BASELINE: baseline.cases,
}
LAYERS = {name: package.requires for name, package in subjects.SUBJECTS.items()}
NEEDED = {"forward": LAYERS, "training": LAYERS, "linear": {"memax": "memax"}}
NEEDED["streaming"] = {"torch": "torch"}


class Measured(NamedTuple):
    """What the subjects of a case took; the others are compared with the first."""

    part: str
    group: str  # what is in one table, a model or a question
    case: str  # a row of that table
    amount: float  # how much was done in a round, in the unit of the part: tokens, steps; else 1
    run: dict[str, np.ndarray]  # by subject, seconds of every round
    compilation: dict[str, float]  # processor seconds of tracing and compiling
    temporary_mib: dict[str, float]  # as XLA plans it

    def ratio(self, ours: str, other: str, quantity: str = "run") -> float:
        values = getattr(self, quantity)
        return float(np.median(values[ours] / values[other]))


def measure(config: Config) -> Iterator[list[Measured]]:
    if config.merge:
        yield merged(config.merge)
        return
    cases = [(part, case) for part in config.parts for case in CASES[part](config)]
    results: list[Measured] = []
    with progress_bar(len(cases)) as bar:
        for name in _missing(config.parts):
            bar.note(f"{name} is not installed and left out: pip install '.[benchmark]'")
        for part, case in cases:
            line = f"{part}, {case.group}, {case.name}"
            bar.stage(line)
            results = [*results, _measured(config, part, case)]
            bar.advance()
            bar.finish_stage(line)
            yield results


def _missing(parts):
    needed = {name: package for part in parts for name, package in NEEDED.get(part, {}).items()}
    return [name for name, package in needed.items() if not subjects.installed(package)]


def _measured(config: Config, part: str, case: Case) -> Measured:
    subjects = case.prepare()
    calls = {name: subject.call for name, subject in subjects.items()}
    rounds = case.rounds or _rounds(config, calls.values())
    return Measured(
        part,
        case.group,
        case.name,
        case.amount,
        interleaved_seconds(calls, rounds, clock=case.clock or CLOCKS[config.clock]),
        {name: subject.compilation for name, subject in subjects.items()},
        {name: subject.temporary_mib for name, subject in subjects.items()},
    )


def _rounds(config, calls):
    start = time.perf_counter()
    for call in calls:
        jax.block_until_ready(call())
    rounds = int(config.seconds / (time.perf_counter() - start))
    return max(config.rounds, min(rounds, MOST_ROUNDS))


def rows_to_save(results: Iterable[Measured]) -> Iterator[dict[str, Any]]:
    for one in results:
        for name, run in one.run.items():
            for number, seconds in enumerate(run):
                yield {
                    **dict(zip(one._fields[:4], one[:4], strict=True)),
                    "subject": name,
                    "compilation": one.compilation[name],
                    "temporary_mib": one.temporary_mib[name],
                    "round": number,
                    "seconds": seconds,
                }


def merged(folders: Sequence[Path]) -> list[Measured]:
    """What the runs in these folders measured; of what was measured twice the later folder's."""
    found: dict[tuple[str, ...], Measured] = {}
    for folder in folders:
        of_folder: dict[tuple[str, ...], Measured] = {}
        try:
            for row in csv.DictReader((folder / ROUNDS_FILE).read_text("utf-8").splitlines()):
                name, case = row["subject"], (row["part"], row["group"], row["case"])
                one = Measured(*case, float(row["amount"]), {}, {}, {})
                one = of_folder.setdefault(case, one)
                one.run[name] = np.append(one.run.get(name, ()), float(row["seconds"]))
                one.compilation[name] = float(row["compilation"])
                one.temporary_mib[name] = float(row["temporary_mib"])
        except (OSError, KeyError, ValueError) as error:
            raise ExperimentError(f"--merge cannot read {folder / ROUNDS_FILE}: {error}") from error
        found |= of_folder
    return list(found.values())
