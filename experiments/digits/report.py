"""Tables and files of what was measured."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.data.digits import load_digits
from experiments.digits import plots
from experiments.digits.claims import Judged, judge
from experiments.digits.config import Config
from experiments.digits.model import FAMILIES, family, label
from experiments.digits.probes import EMPTY
from experiments.digits.results import Baselines, Counted, Growth, Reach, Times, of_kind
from experiments.digits.task import ORDERS, Task, make_split, make_tasks
from experiments.digits.training import Trained
from experiments.frame.legacy import Page, Picture
from experiments.frame.run_folder import RunFolder
from experiments.frame.stats import mean_and_spread, median_and_quartiles
from experiments.frame.tables import Table, markdown, show

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


def report(config: Config, results: Sequence[Any], folder: RunFolder) -> Page:
    """Writes rows, figures and tables, and prints the tables, the comparison last."""
    digits = load_digits()
    tasks = make_tasks(
        digits, make_split(digits.labels, config.split_seed), config.permutation_seed
    )
    baselines = of_kind(results, Baselines)[0]
    trainings, judged = of_kind(results, Trained), judge(results)
    folder.write_csv("results.csv", _seed_rows(config, trainings, tasks, baselines))
    folder.write_csv("metrics.csv", _update_rows(config, trainings) if trainings else _no_rows())
    folder.write_json("cost.json", [one._asdict() for one in of_kind(results, Counted)])
    folder.write_json(
        "reach.json", {o.name: o.sensitivity.tolist() for o in of_kind(results, Reach)}
    )
    folder.write_json("seconds.json", _seconds(results))
    tables = [_baselines_table(baselines)]
    if trainings:
        tables.insert(0, _models_table(trainings, tasks))
        tables += [_cost_table(trainings, results), _growth_table(results)]
    tables.append(_claims_table(judged))
    tables = [table for table in tables if table is not None]
    pictures = list(_pictures(results, trainings, tasks, baselines, folder))
    folder.write_text("summary.md", "\n".join(["# digits\n", *map(markdown, tables)]))
    for table in tables:
        show(table)
    found = _found(trainings, tasks, baselines, judged)
    failed = _failed(trainings, tasks, baselines, judged)
    return Page("digits", CLAIM, [tables[-1], *tables[:-1]], pictures, found, failed)


def _pictures(results, trainings, tasks, baselines, folder) -> Iterator[Picture]:
    def picture(name, draw, *args):
        draw(*args, folder.path(f"{name}.png"))
        return Picture(f"{name}.png", plots.CAPTIONS[name])

    if trainings:
        yield picture("accuracy", plots.accuracy, trainings, tasks, baselines)
        yield picture("training", plots.training, trainings)
    if reaches := of_kind(results, Reach):
        yield picture("reach", plots.reach, reaches)
    for times in of_kind(results, Times):
        yield picture("cost", plots.cost, times, of_kind(results, Counted))
    for growth in of_kind(results, Growth):
        yield picture("growth", plots.growth, growth)


def _trainings(config: Config, one: Trained) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every training of a model, with the columns that name it."""
    for index in range(len(one.failed)):
        order, seed = divmod(index, config.seeds)
        names = {"model": one.sized.name, "order": ORDERS[order]}
        yield index, names | {"seed": config.first_seed + seed}


def _seed_rows(config, trainings, tasks, baselines) -> Iterator[dict[str, Any]]:
    truth = tasks[0].labels[tasks[0].split.test]
    for entry in baselines.entries:
        names = {"model": entry.name, "order": "any", "seed": "", "status": "ok"}
        yield names | {"num_params": "", "validation": "", "test": entry.shuffled}
    for one in trainings:
        for index, names in _trainings(config, one):
            yield names | {
                "status": "failed" if one.failed[index] else "ok",
                "num_params": one.sized.num_params,
                "validation": float(one.history["validation"][index, -1]),
                "test": float((one.predicted[index] == truth).mean()),
            }


def _update_rows(config, trainings) -> Iterator[dict[str, Any]]:
    updates = [name for name in trainings[0].history if name != "validation"]
    for one in trainings:
        for index, names in _trainings(config, one):
            for update in range(one.history["loss"].shape[1]):
                values = {name: float(one.history[name][index, update]) for name in updates}
                yield names | {"update": update + 1} | values


def _no_rows():
    return [{"model": "", "order": "", "seed": "", "update": ""}]


def _seconds(results) -> dict[str, Any]:
    """Every measured time, which differ from run to run."""
    written: dict[str, Any] = {
        one.sized.name: {
            "trained": round(one.seconds, 1),
            "compiled": round(one.compile_seconds, 1),
        }
        for one in of_kind(results, Trained)
    }
    for times in of_kind(results, Times):
        for part in ("update", "token"):
            written[part] = {name: list(v) for name, v in getattr(times, part).items()}
    for growth in of_kind(results, Growth):
        written["growth"] = {
            name: {str(length): list(v) for length, v in by_length.items()}
            for name, by_length in growth.seconds.items()
        }
    return written


def _models_table(trainings: Sequence[Trained], tasks: Sequence[Task]) -> Table:
    rows = []
    for one in trainings:
        cells = [mean_and_spread(100 * one.accuracy(task)) for task in tasks]
        failed = f"{one.failed.sum()} of {len(one.failed)}"
        name, width = one.sized.name, str(one.sized.width)
        rows.append((label(name), family(name), f"{one.sized.num_params:,}", width, *cells, failed))
    columns = ("model", "family", "parameters", "width", *ORDERS, "failed trainings")
    title = "Accuracy on the test digits in %: mean ± deviation over seeds"
    return Table(title, columns, rows, num_names=2)


def _baselines_table(baselines: Baselines) -> Table:
    rows = [
        (entry.name, f"{100 * entry.shuffled:.1f}", f"{100 * entry.file_order:.1f}")
        for entry in baselines.entries
    ]
    training, validation, test = baselines.sizes
    title = (
        f"Without a recurrence, accuracy in %: {training} training, {validation} validation and "
        f"{test} test digits of a shuffled split (that of the models), and of one in file order"
    )
    return Table(title, ("baseline", "shuffled", "file order"), rows)


def _cost_table(trainings: Sequence[Trained], results: Sequence[Any]) -> Table:
    counted = {one.name: one for one in of_kind(results, Counted)}
    reaches = {one.name: one for one in of_kind(results, Reach)}
    times = next(iter(of_kind(results, Times)), None)
    rows = []
    for one in trainings:
        name = one.sized.name
        cells = ["-"] * 4
        if name in counted:
            depths = (counted[name].depth, counted[name].parallel_depth)
            cells[:2] = [" / ".join(map(str, each.values())) for each in depths]
            cells[2] = f"{min(counted[name].carry_bytes.items())[1]:,}"
        if name in reaches:
            cells[3] = " / ".join(f"{value:.2g}" for value in reaches[name].early())
        update, token = "-", "-"
        if times is not None:
            update = median_and_quartiles(1e3 * times.update[name], 1)
            token = median_and_quartiles(1e6 * times.token[name], 0)
        memory = f"{one.temporary_bytes / 2**20:.1f}"
        rows.append((label(name), *cells[:2], update, memory, cells[2], token, cells[3]))
    columns = ("model", "depth, T = 64 / 1,024", "in parallel", "update ms", "temporary MiB")
    columns += ("carry bytes",)
    columns += ("pixel µs", "early / late, in order / permuted")
    title = (
        "Cost: processor time, median [quartiles] of interleaved rounds; an update is of all "
        "trainings of a model side by side, a streamed pixel one call"
    )
    if times is not None:
        floor = 1e6 * np.median(times.token[EMPTY])
        title += f" ({EMPTY} takes {floor:.0f} µs)"
    return Table(title, columns, rows)


def _growth_table(results: Sequence[Any]) -> Table | None:
    for growth in of_kind(results, Growth):
        rows = [
            (
                label(name),
                f"{length:,}",
                median_and_quartiles(1e3 * seconds, 1),
                f"{growth.temporary_bytes[name][length] / 2**20:.2f}",
            )
            for name, by_length in growth.seconds.items()
            for length, seconds in by_length.items()
        ]
        title = f"The gradient of one mixer with {growth.width} features, batch 1, by length"
        return Table(title, ("model", "steps", "processor ms", "temporary MiB"), rows)
    return None


def _claims_table(judged: Sequence[Judged]) -> Table:
    rows = [
        (one.claim.dimension, one.claim.family, one.claim.saying, one.claim.criterion)
        + (one.measured, one.verdict)
        for one in judged
    ]
    columns = ("dimension", "family", "what is said", "criterion", "measured", "verdict")
    return Table("RNNs, linear recurrences and attention: said and measured", columns, rows, 6)


def _found(trainings, tasks, baselines, judged) -> list[str]:
    held = sum(one.verdict == "pass" for one in judged)
    found = [f"{held} of {len(judged)} sayings held for every model of their family."]
    for task in tasks if trainings else ():
        best = {}
        for kind in FAMILIES:
            means = {
                one.sized.name: 100 * one.accuracy(task).mean()
                for one in trainings
                if family(one.sized.name) == kind and len(one.accuracy(task))
            }
            if means:
                name = max(means, key=lambda name: means[name])
                best[kind] = f"{label(name)} {means[name]:.1f} % ({kind})"
        found.append(
            f"{task.order.capitalize()}, the best of each family: {', '.join(best.values())}."
        )
    entry = baselines.entries[-1]
    found.append(
        f"{entry.name[0].upper()}{entry.name[1:]}, which does not care about their order: "
        f"{100 * entry.shuffled:.1f} %."
    )
    gap = 100 * (entry.shuffled - entry.file_order)
    found.append(
        f"On a split in the order of the file it loses {gap:.1f} points: training and test digits "
        "of the shuffled split have writers in common."
    )
    found.append(
        "All models had the same optimizer, schedule and epochs, and none was tuned for itself."
    )
    return found


def _failed(trainings, tasks, baselines, judged) -> list[str]:
    failed = [NO_WRITERS]
    line = baselines.entries[-1]
    for task in tasks:
        shares = {one.sized.name: one.accuracy(task) for one in trainings}
        below = [label(n) for n, v in shares.items() if len(v) and v.mean() < line.shuffled]
        if below:
            failed.append(
                f"{task.order.capitalize()}, {len(below)} of {len(shares)} models stay below "
                f"{line.name}: {', '.join(below)}."
            )
    failed += [
        f"{one.claim.dimension}, {one.claim.family}: {one.claim.saying} did not hold. "
        f"{one.measured}; expected, {one.claim.criterion}."
        for one in judged
        if one.verdict == "FAIL"
    ]
    failed += [
        f"{label(one.sized.name)}: {one.failed.sum()} of {len(one.failed)} trainings failed, and "
        "are in no mean."
        for one in trainings
        if one.failed.any()
    ]
    return failed
