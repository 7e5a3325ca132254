"""Ratios of subjects that ran in the same rounds, and what is read from them."""

from collections.abc import Callable, Iterable

import numpy as np

from experiments.benchmark.measured import Measured

Value = Callable[[Measured], np.ndarray]


def run_times(result: Measured) -> np.ndarray:
    """Seconds of every round."""
    return result.run


def temporary_memory(result: Measured) -> np.ndarray:
    """One number, in MiB."""
    return np.array([result.temporary_mib])


def compilation(result: Measured) -> np.ndarray:
    """One number, in seconds."""
    return np.array([result.compilation])


def distinct(values: Iterable) -> list:
    """Each value once, in the order of their first place."""
    return list(dict.fromkeys(values))


def tables_of(results: list[Measured]) -> list[list[Measured]]:
    """The results of one part and group together, in order."""
    keys = distinct((result.part, result.group) for result in results)
    return [[r for r in results if (r.part, r.group) == key] for key in keys]


def rows_of(table: list[Measured]) -> dict[str, dict[str, Measured]]:
    """Case to subject to what was measured."""
    return {
        case: {result.subject: result for result in table if result.case == case}
        for case in distinct(result.case for result in table)
    }


def ratio(row: dict[str, Measured], ours: str, other: str, value: Value = run_times) -> float:
    """The median over rounds of ours by the other's."""
    return float(np.median(value(row[ours]) / value(row[other])))


def lowest(row: dict[str, Measured], names: Iterable[str], value: Value = run_times) -> str:
    """Who of those that ran has the lowest median."""
    there = [name for name in names if name in row]
    return min(there, key=lambda name: float(np.median(value(row[name]))))


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean logarithm."""
    return float(np.exp(np.mean(np.log(list(values)))))
