from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from experiments.digits import figures
from experiments.digits.config import Config
from experiments.digits.expect import judged
from experiments.digits.measure import Results
from experiments.digits.model import FAMILIES, family
from experiments.digits.probes import EMPTY, Growth
from experiments.digits.task import Task
from experiments.digits.train import Trained
from experiments.frame.fitting import Training
from experiments.frame.models import LABELS
from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, median_and_quartiles, share
from experiments.frame.tables import Table

CLAIM = (
    "An RNN trains serially and streams with a state of fixed size; structured linear recurrences "
    "train in parallel and stream alike; attention reads every position directly and pays with "
    "a cache that grows and with scores quadratic in length. Which is better is no property of the "
    "family. Here all of them read digits pixel by pixel at one size, and each saying is measured."
)
NO_WRITERS = (
    "The digits do not say who wrote them, so a split by writer is impossible: every accuracy here "
    "is for writers seen in training, and for new ones it is lower."
)
CAPTIONS = {
    "accuracy": "Accuracy on the test digits: every seed a point, the mean a bar. Dashed: what "
    "needs no recurrence. The colour is the family.",
    "training": "Accuracy on the validation digits by epoch, the mean of the seeds.",
    "reach": "How strongly the output of the last step depends on each pixel after training, "
    "relative to the pixel it depends on most; the mean of some test digits, one seed.",
    "cost": "An update of all trainings, and one pixel of one stream: the medians of interleaved "
    "rounds. Grey: a call that does nothing.",
    "growth": "The gradient of one mixer alone, batch 1: time (medians) and memory. Attention sees "
    "the whole sequence.",
}


def report(config: Config, results: Results) -> Report:
    trainings = results.trainings
    tables = [_baselines_table(results)]
    if trainings:
        tables = [_models_table(trainings, results.tasks), *tables, _cost_table(results)]
    if results.growth is not None:
        tables.append(_growth_table(results.growth))
    return Report(
        CLAIM,
        verdicts=judged(results),
        pictures=_pictures(results),
        tables=tables,
        found=_found(results),
        failed=_failed(results),
        trainings=[one for trained in trainings for one in _trainings(config, trained, results)],
        seconds=_seconds(results),
        files={
            "baselines.csv": [entry._asdict() for entry in results.baselines],
            "cost.json": [one._asdict() for one in results.counted],
            "reach.json": {one.name: one.sensitivity for one in results.reaches},
        },
    )


def _trainings(config: Config, one: Trained, results: Results) -> Iterator[Training]:
    for task in results.tasks:
        names = {"model": one.sized.name, "order": task.order}
        trainings = one.of_order(task.order)
        right = one.predicted[trainings] == task.labels[task.split.test]
        fitted = one.fitted.only(trainings)
        scores = {"validation": fitted.last("validation"), "test": right.mean(axis=-1)}
        yield Training(names, config.all_seeds, fitted, scores)


def _pictures(results: Results) -> list[Picture]:
    measured = {
        "accuracy": results.trainings,
        "training": results.trainings,
        "reach": results.reaches,
        "cost": results.times,
        "growth": results.growth,
    }
    captions = {name: CAPTIONS[name] for name, part in measured.items() if part}
    return Picture.drawn(figures, captions, results)


def _seconds(results: Results) -> dict[str, Any]:
    times, growth = results.times, results.growth
    seconds: dict[str, Any] = {} if times is None else times._asdict()
    if growth is not None:
        seconds["growth"] = growth.seconds
    return {"compiled": {t.sized.name: t.compile_seconds for t in results.trainings}, **seconds}


def _models_table(trainings: Sequence[Trained], tasks: Sequence[Task]) -> Table:
    columns = {
        "model": lambda one: LABELS[one.sized.name],
        "family": lambda one: family(one.sized.name),
        "parameters": lambda one: f"{one.sized.num_params:,}",
        "width": lambda one: str(one.sized.width),
        tasks[0].order: lambda one: mean_and_spread(100 * one.accuracy(tasks[0])),
        tasks[1].order: lambda one: mean_and_spread(100 * one.accuracy(tasks[1])),
        "failed trainings": lambda one: share(one.fitted.failed),
    }
    title = "Accuracy on the test digits in %: mean ± deviation over seeds"
    return Table.by_columns(title, trainings, columns, num_names=2)


def _baselines_table(results: Results) -> Table:
    columns = {
        "baseline": lambda one: one.name,
        "shuffled": lambda one: f"{100 * one.shuffled:.1f}",
        "file order": lambda one: f"{100 * one.file_order:.1f}",
    }
    training, validation, test = map(len, results.tasks[0].split)
    title = (
        f"Without a recurrence, accuracy in %: {training} training, {validation} validation and "
        f"{test} test digits of a shuffled split (that of the models), and of one in file order"
    )
    return Table.by_columns(title, results.baselines, columns)


def _cost_table(results: Results) -> Table:
    counted = {one.name: one for one in results.counted}
    reaches = {one.name: one for one in results.reaches}
    times, rows = results.times, []
    for one in results.trainings:
        name, row = one.sized.name, {"model": LABELS[one.sized.name]}
        known, reach = counted.get(name), reaches.get(name)
        row["depth, T = 64 / 1,024"] = _slashed(known and known.depth.values())
        row["in parallel"] = _slashed(known and known.parallel_depth.values())
        row["update ms"] = median_and_quartiles(1e3 * times.update[name], 1) if times else "-"
        row["temporary MiB"] = f"{one.temporary_bytes / 2**20:.1f}"
        row["carry bytes"] = f"{min(known.carry_bytes.items())[1]:,}" if known else "-"
        row["pixel µs"] = median_and_quartiles(1e6 * times.token[name], 0) if times else "-"
        early = reach and [f"{value:.2g}" for value in reach.early()]
        row["early / late, in order / permuted"] = _slashed(early)
        rows.append(row)
    title = (
        "Cost: processor time, median [quartiles] of interleaved rounds; an update is of all "
        "trainings of a model side by side, a streamed pixel one call"
    )
    if times is not None:
        title += f" ({EMPTY} takes {1e6 * np.median(times.token[EMPTY]):.0f} µs)"
    return Table.of(title, rows)


def _slashed(values: Iterable[Any] | None) -> str:
    return " / ".join(map(str, values or ["-"]))


def _growth_table(growth: Growth) -> Table:
    rows = [
        {
            "model": LABELS[name],
            "steps": f"{length:,}",
            "processor ms": median_and_quartiles(1e3 * seconds, 1),
            "temporary MiB": f"{growth.temporary_bytes[name][length] / 2**20:.2f}",
        }
        for name, by_length in growth.seconds.items()
        for length, seconds in by_length.items()
    ]
    title = f"The gradient of one mixer with {growth.width} features, batch 1, by length"
    return Table.of(title, rows)


def _found(results: Results) -> list[str]:
    found = []
    for task in results.tasks if results.trainings else ():
        best = {}
        for one in results.trainings:
            percent, kind = 100 * one.accuracy(task), family(one.sized.name)
            if len(percent) and percent.mean() > best.get(kind, (-1, ""))[0]:
                best[kind] = percent.mean(), LABELS[one.sized.name]
        known = [(kind, *best[kind]) for kind in FAMILIES if kind in best]
        shown = (f"{name} {percent:.1f} % ({kind})" for kind, percent, name in known)
        found.append(f"{task.order.capitalize()}, the best of each family: {', '.join(shown)}.")
    entry = results.baselines[-1]
    gap = 100 * (entry.shuffled - entry.file_order)
    return [
        *found,
        f"{entry.name[0].upper()}{entry.name[1:]}, which does not care about their order: "
        f"{100 * entry.shuffled:.1f} %.",
        f"On a split in the order of the file it loses {gap:.1f} points: training and test digits "
        "of the shuffled split have writers in common.",
        "All models had the same optimizer, schedule and epochs, and none was tuned for itself.",
    ]


def _failed(results: Results) -> list[str]:
    failed, line = [NO_WRITERS], results.baselines[-1]
    for task in results.tasks:
        shares = {one.sized.name: one.accuracy(task) for one in results.trainings}
        below = [LABELS[n] for n, v in shares.items() if len(v) and v.mean() < line.shuffled]
        if below:
            failed.append(
                f"{task.order.capitalize()}, {len(below)} of {len(shares)} models stay below "
                f"{line.name}: {', '.join(below)}."
            )
    return failed
