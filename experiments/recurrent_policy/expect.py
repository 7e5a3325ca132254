"""What is expected, as criteria that are here before the run, and how each is judged."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame.stats import share
from experiments.frame.verdicts import Expectation, Verdict
from experiments.recurrent_policy.config import Config
from experiments.recurrent_policy.measure import SOLVED, Results, Trained, environments_of
from experiments.recurrent_policy.model import LABELS, STATELESS

ABOVE_CHANCE, ROUNDING = 0.1, 1e-4

SAME = Expectation(
    "the update sees what the rollout saw",
    "a window unrolled again from its start carries, at the parameters of the rollout: every "
    "log-probability and value is that of the rollout, bit for bit, for every model and seed",
)
NEARLY = Expectation(
    "so does the gradient",
    "in the first minibatch of every update, compiled with its gradient and for fewer rows, every "
    f"log-probability is that of the rollout to {ROUNDING:g}",
)
CHANCE = Expectation(
    "without a memory there is chance",
    f"stateless: no seed is more than {ABOVE_CHANCE} above the best return without memory, in the "
    "T-maze of every length and in repeat-first",
)
SHORTER = Expectation(
    "a memory solves the shorter corridors",
    f"every model with a memory, at every length but the longest: a return of {SOLVED} or more in "
    "all seeds but one at most",
)
LONGEST = Expectation(
    "a memory solves the longest corridor",
    f"every model with a memory: a return of {SOLVED} or more in all seeds but one at most",
)
FIRST = Expectation(
    "a memory solves repeat-first",
    f"every model with a memory: a return of {SOLVED} or more in all seeds",
)
BALANCE = Expectation(
    "a memory stands for the velocities",
    "cart-pole: the worst seed of every model with a memory has a higher return than the best "
    "stateless seed",
)


def judged(config: Config, results: Results) -> list[Verdict]:
    """All of them; those of the trainings when all trainings are there."""
    complete = len(results.trained) == len(config.models) * len(environments_of(config))
    trained = results.trained if complete else ()
    with_memory = [one for one in trained if one.model != STATELESS]
    stateless = [one for one in trained if one.model == STATELESS]
    of_task: dict[str, list[Trained]] = {}
    for one in with_memory:
        of_task.setdefault(one.environment.name, []).append(one)
    mazes = [of_task.get(f"T-maze {length}", []) for length in config.lengths]
    return [
        SAME.judge(same, results.differences),
        NEARLY.judge(nearly, trained),
        CHANCE.judge(at_chance, [one for one in stateless if one.environment.chance]),
        SHORTER.judge(mostly_solved, sum(mazes[:-1], [])),
        LONGEST.judge(mostly_solved, mazes[-1]),
        FIRST.judge(all_solved, of_task.get("repeat-first")),
        BALANCE.judge(
            balance,
            of_task.get("cart-pole"),
            [one for one in stateless if one.environment.name == "cart-pole"],
        ),
    ]


def same(differences: Mapping[str, np.ndarray]) -> tuple[str, Any]:
    numbers = np.stack(list(differences.values()))
    measured = f"{share(numbers.ravel() == 0)} steps; the largest difference is "
    return f"{measured}{numbers.max():.1e}", (numbers == 0).all()


def nearly(trained: Sequence[Trained]) -> tuple[str, Any]:
    largest = max(one.fitted.of_updates()["first_difference"].max() for one in trained)
    return f"the largest difference is {largest:.1e}", largest <= ROUNDING


def at_chance(results: Sequence[Trained]) -> tuple[str, Any]:
    away = {one.environment.name: one.score - one.environment.chance for one in results}
    measured = ", ".join(f"{name} {_range(values)}" for name, values in away.items())
    below = [values.max() <= ABOVE_CHANCE for values in away.values()]
    return f"return less that of chance: {measured}", all(below)


def mostly_solved(results: Sequence[Trained]) -> tuple[str, Any]:
    return _solved(results), all(one.solved.sum() >= len(one.solved) - 1 for one in results)


def all_solved(results: Sequence[Trained]) -> tuple[str, Any]:
    return _solved(results), all(one.solved.all() for one in results)


def _solved(results):
    by_task: dict[str, list[str]] = {}
    for one in results:
        line = f"{LABELS[one.model]} {share(one.solved)}"
        by_task.setdefault(one.environment.name, []).append(line)
    return "; ".join(f"{name}: {', '.join(lines)}" for name, lines in by_task.items())


def balance(balanced: Sequence[Trained], fallen: Sequence[Trained]) -> tuple[str, Any]:
    (control,) = fallen
    both = [*balanced, control]
    measured = ", ".join(f"{LABELS[one.model]} {_range(one.score)}" for one in both)
    worst = [one.score.min() for one in balanced]  # NaN, which is above nothing, if a seed failed
    return measured, all(score > np.nanmax(control.score) for score in worst)


def _range(values):
    return f"{values.min():.2f} to {values.max():.2f}"
