"""Results of earlier runs, read back so that parts can be measured one at a time."""

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmark.measured import Measured
from experiments.frame.errors import ExperimentError

FILE = "rounds.csv"
_NAMES = ("part", "group", "case", "subject")


def rows_to_save(results: Iterable[Measured]) -> Iterator[dict[str, Any]]:
    """One line a round."""
    for result in results:
        fixed = {
            **{name: getattr(result, name) for name in _NAMES},
            "compile_ms": 1e3 * result.compilation,
            "temporary_mib": result.temporary_mib,
            "amount": result.amount,
        }
        for number, seconds in enumerate(result.run):
            yield fixed | {"round": number, "ms": 1e3 * seconds}


def read(folders: Iterable[Path]) -> list[Measured]:
    """What the runs in these folders measured; of what was measured twice the later folder's."""
    found: dict[tuple[str, ...], dict[str, Measured]] = {}
    for folder in folders:
        try:
            rows = list(csv.DictReader((folder / FILE).read_text("utf-8").splitlines()))
            by_case: dict[tuple[str, ...], dict[str, list[dict[str, str]]]] = {}
            for row in rows:
                case = tuple(row[name] for name in _NAMES[:3])
                by_case.setdefault(case, {}).setdefault(row["subject"], []).append(row)
            for case, subjects in by_case.items():
                found[case] = {name: _result(rows) for name, rows in subjects.items()}
        except (OSError, KeyError, ValueError) as error:
            raise ExperimentError(f"--merge cannot read {folder / FILE}: {error}") from error
    return [result for subjects in found.values() for result in subjects.values()]


def _result(rows):
    first = rows[0]
    return Measured(
        part=first["part"],
        group=first["group"],
        case=first["case"],
        subject=first["subject"],
        run=np.array([float(row["ms"]) / 1e3 for row in rows]),
        compilation=_number(first["compile_ms"]) / 1e3,
        temporary_mib=_number(first["temporary_mib"]),
        amount=_number(first["amount"]),
    )


def _number(text):
    return float(text) if text else math.nan
