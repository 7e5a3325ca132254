from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.dynamics import figures
from experiments.dynamics.config import Config
from experiments.dynamics.expect import judged
from experiments.dynamics.measure import Trained
from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.stats import share
from experiments.frame.tables import Table

CLAIM = (
    "A trained recurrence computes with its fixed points: bits are held in stable ones with "
    "saddles between them, a sum on a line of slow ones, and the eigenvalues there are the time "
    "constants of the task."
)
CAPTIONS = {
    "flow": "States in the first two principal components of the first seed. Blue: trajectories of "
    "the task; gray: where states between them go without input, 8 steps; orange: where a push to "
    "either side of a saddle leads. Filled markers are fixed points, white ones slow points.",
    "time_constants": "Left: the two longest time constants at every point of the networks that "
    "add up evidence, all seeds. Right: those at the fixed point of the leaky ones, by the time "
    "constant that was asked for.",
}


def report(config: Config, results: Sequence[Trained]) -> Report:
    """Points of every network, what kind they are, and how slow the network is there."""
    analysed = [one for one in results if one.analysed]
    return Report(
        CLAIM,
        verdicts=judged(config, results),
        trainings=[_training(config, one) for one in results],
        pictures=Picture.drawn(figures, CAPTIONS if analysed else {}, config, analysed),
        tables=[_table(analysed)] if analysed else [],
        found=[_found(one) for one in analysed],
        files={"points.csv": list(_point_rows(config, results))},
    )


def _training(config: Config, one: Trained) -> Training:
    names = {"task": one.task.name, "cell": one.cell}
    counts = {
        "stable": lambda analysed: int(analysed.is_memory.sum()),
        "fixed": lambda analysed: int(analysed.points.is_fixed.sum()),
        "slow": lambda analysed: int((~analysed.points.is_fixed).sum()),
        "dropped": lambda analysed: analysed.points.num_dropped,
        "index_sum": lambda analysed: analysed.index_sum,
    }
    columns = {"unexplained": one.error}
    for name, count in counts.items():
        good = iter(one.analysed)
        columns[name] = np.array(
            [np.nan if bad else count(next(good)) for bad in one.fitted.failed]
        )
    return Training(names, config.all_seeds, one.fitted, columns)


def _table(results: Sequence[Trained]) -> Table:
    def by_seed(number):
        return lambda one: " ".join(str(number(analysed)) for analysed in one.analysed)

    def unstable(analysed):
        """How many fixed points have 0, 1, 2, ... unstable directions."""
        points = analysed.points
        counts = np.bincount(np.asarray(points.num_unstable)[np.asarray(points.is_fixed)])
        return "+".join(map(str, counts[:5])) + ("+.." if len(counts) > 5 else "")

    columns = {
        "task": lambda one: one.task.name,
        "cell": lambda one: one.cell,
        "unexplained": lambda one: " ".join(
            f"{100 * error:.2f}" for error in one.fitted.of_good_seeds(one.error)
        ),
        "fixed points": by_seed(unstable),
        "slow": by_seed(lambda analysed: int((~analysed.points.is_fixed).sum())),
        "dropped": by_seed(lambda analysed: f"{analysed.points.num_dropped}"),
        "index": by_seed(lambda analysed: analysed.index_sum),
        "longest": by_seed(_longest),
    }
    title = (
        "Points of every network, a number for each seed that did not fail. Unexplained: variance "
        "of the targets in %. Fixed points with 0, 1, 2, ... unstable directions. Dropped: starts "
        "without a point. Index: the sum of the signs of det(I - J). Longest: largest time "
        "constant at a stable point"
    )
    return Table.by_columns(title, results, columns, num_names=2)


def _longest(analysed):
    constants = analysed.time_constants(analysed.is_memory)
    return f"{constants[:, 0].max():.1f}" if len(constants) else "-"


def _found(one: Trained) -> str:
    memories = [str(int(analysed.is_memory.sum())) for analysed in one.analysed]
    whole = [analysed.index_sum == 1 for analysed in one.analysed]
    return (
        f"{one.name}: {' '.join(memories)} stable points; the indices of the fixed points sum to 1 "
        f"in {share(whole)} networks."
    )


def _point_rows(config: Config, results: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for one in results:
        good = np.array(config.all_seeds)[~one.fitted.failed]
        for seed, analysed in zip(good, one.analysed, strict=True):
            points, constants = analysed.points, analysed.time_constants()
            for index in range(len(points.speed)):
                yield {
                    "task": one.task.name,
                    "cell": one.cell,
                    "seed": seed,
                    "kind": "fixed" if points.is_fixed[index] else "slow",
                    "speed": float(points.speed[index]),
                    "num_unstable": int(points.num_unstable[index]),
                    "num_merged": int(points.num_merged[index]),
                    "longest": float(constants[index, 0]),
                    "next": float(constants[index, 1]),
                    "outputs": " ".join(f"{y:.4f}" for y in analysed.outputs[index]),
                }
