"""Tables and files of what was measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.data.source import CLASSES
from experiments.frame.legacy import Page, Picture
from experiments.frame.run_folder import RunFolder
from experiments.frame.stats import mean_and_spread, median_and_quartiles
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import verdict_rows, verdicts_table
from experiments.tagging import plots
from experiments.tagging.config import Config
from experiments.tagging.model import DIRECTIONS
from experiments.tagging.results import (
    Baselines,
    Layouts,
    Tagged,
    accuracy,
    confusion,
    f1_scores,
    macro_f1,
    of_kind,
)
from experiments.tagging.verdicts import good_seeds, verdicts

CLAIM = (
    "A label for every step: which class of token does each character of Python source belong to? "
    "Read forwards, a keyword cannot be told from a name before it has ended; read in both "
    "directions it can, at the same number of parameters. Packing paragraphs of different length "
    "into rows changes no number that padding gives, and reads more characters a second."
)


def report(config: Config, results: Sequence[Any], folder: RunFolder) -> Page:
    """Writes rows, figures and tables, and prints the tables, the expectations last."""
    baselines = of_kind(results, Baselines)[0]
    tagged, layouts = of_kind(results, Tagged), of_kind(results, Layouts)
    judged = verdicts(results)
    folder.write_json("data.json", baselines.about)
    folder.write_json("verdicts.json", verdict_rows(judged))
    folder.write_csv("results.csv", _result_rows(baselines, tagged))
    folder.write_csv("files.csv", _file_rows(baselines, tagged))
    if tagged:
        folder.write_csv("metrics.csv", _update_rows(tagged))
    folder.write_json("seconds.json", _seconds(tagged, layouts))
    tables = [_accuracy_table(baselines, tagged), _data_table(baselines)]
    if tagged:
        tables.insert(1, _class_table(baselines, results))
    if layouts:
        tables.append(_layouts_table(layouts))
    tables.append(verdicts_table("Expected and measured", judged))
    pictures = list(_pictures(results, folder))
    folder.write_text("summary.md", "\n".join(["# tagging\n", *map(markdown, tables)]))
    for table in tables:
        show(table)
    found = [f"{one.point}: {one.measured}." for one in judged if one.word == "pass"]
    failed = [
        f"{one.point}: expected, {one.criterion}; measured, {one.measured}."
        for one in judged
        if one.word == "FAIL"
    ]
    failed += [
        f"{one.direction}, seed {one.seed}: a number was not finite; it is in no mean."
        for one in tagged
        if one.fitted.failed
    ]
    return Page("tagging", CLAIM, [tables[-1], *tables[:-1]], pictures, found, failed)


def _pictures(results: Sequence[Any], folder: RunFolder) -> Iterator[Picture]:
    baselines = of_kind(results, Baselines)[0]
    tagged, layouts = of_kind(results, Tagged), of_kind(results, Layouts)
    good = {name: good_seeds(results, name) for name in DIRECTIONS}
    good = {name: seeds for name, seeds in good.items() if seeds}

    def picture(name, draw, *args):
        draw(*args, folder.path(f"{name}.png"))
        return Picture(f"{name}.png", plots.CAPTIONS[name])

    if good:
        yield picture("positions", plots.positions, baselines.truth, good)
        yield picture("confusion", plots.confusions, baselines.truth, good)
    if tagged:
        yield picture("training", plots.training, tagged, baselines)
    if layouts:
        yield picture("layouts", plots.layouts, layouts)


def _told(baselines: Baselines, tagged: Sequence[Tagged]) -> Iterator[tuple[dict, np.ndarray]]:
    """The predictions of everything, with the columns that name it."""
    for name, predicted in baselines.predicted.items():
        yield {"model": name, "seed": "", "status": "ok", "num_params": ""}, predicted
    for one in tagged:
        status = "failed" if one.fitted.failed else "ok"
        names = {"model": one.direction, "seed": one.seed, "status": status}
        yield names | {"num_params": one.fitted.num_params}, one.predicted


def _result_rows(baselines, tagged) -> Iterator[dict[str, Any]]:
    labels = baselines.truth.labels
    for names, predicted in _told(baselines, tagged):
        scores = dict(zip(CLASSES, f1_scores(confusion(labels, predicted)), strict=True))
        both = {"accuracy": accuracy(labels, predicted), "macro_f1": macro_f1(labels, predicted)}
        yield names | both | {f"f1_{name}": float(value) for name, value in scores.items()}


def _file_rows(baselines, tagged) -> Iterator[dict[str, Any]]:
    truth = baselines.truth
    for names, predicted in _told(baselines, tagged):
        for index, file in enumerate(baselines.files):
            inside = truth.file == index
            share = accuracy(truth.labels[inside], predicted[inside])
            yield names | {"file": file, "characters": int(inside.sum()), "accuracy": share}


def _update_rows(tagged: Sequence[Tagged]) -> Iterator[dict[str, Any]]:
    for one in tagged:
        history = {n: v for n, v in one.fitted.history.items() if n != "validation"}
        for epoch in range(len(history["loss"])):
            for update in range(history["loss"].shape[1]):
                names = {"model": one.direction, "seed": one.seed, "epoch": epoch + 1}
                values = {name: float(value[epoch, update]) for name, value in history.items()}
                validation = float(one.fitted.history["validation"][epoch])
                yield names | {"update": update + 1} | values | {"epoch_validation": validation}


def _seconds(tagged: Sequence[Tagged], layouts: Sequence[Layouts]) -> Mapping[str, Any]:
    """Every measured time, which differ from run to run."""
    trained = {f"{one.direction} {one.seed}": round(one.fitted.seconds, 1) for one in tagged}
    rounds = {
        one.direction: {name: values.tolist() for name, values in one.seconds.items()}
        for one in layouts
    }
    return {"training": trained, "layouts": rounds}


def _accuracy_table(baselines: Baselines, tagged: Sequence[Tagged]) -> Table:
    rows, labels = [], baselines.truth.labels
    for name, predicted in baselines.predicted.items():
        cells = (accuracy(labels, predicted), macro_f1(labels, predicted))
        rows.append((name, "counts", *(f"{100 * cell:.2f}" for cell in cells), "-", "-"))
    for direction in DIRECTIONS:
        seeds = [one for one in tagged if one.direction == direction]
        if not seeds:
            continue
        good = [one.predicted for one in seeds if not one.fitted.failed]
        cells = [
            mean_and_spread(100 * np.array([measure(labels, one) for one in good]), 2)
            for measure in (accuracy, macro_f1)
        ]
        name, failed = f"GRU, {direction}", f"{len(seeds) - len(good)} of {len(seeds)}"
        worst = _worst_file(baselines, good)
        rows.append((name, f"{seeds[0].fitted.num_params:,}", *cells, worst, failed))
    title = (
        "Characters of the test files told right, in %, and F1 averaged over classes: "
        "mean ± deviation over seeds"
    )
    columns = ("model", "parameters", "accuracy", "macro F1", "worst file", "failed seeds")
    return Table(title, columns, rows)


def _worst_file(baselines, predictions):
    """The file with the lowest accuracy, the mean of the seeds."""
    if not predictions:
        return "-"
    truth, shares = baselines.truth, {}
    for index, name in enumerate(baselines.files):
        inside = truth.file == index
        right = [accuracy(truth.labels[inside], one[inside]) for one in predictions]
        shares[name] = float(np.mean(right))
    worst = min(shares, key=lambda name: shares[name])
    return f"{worst} {100 * shares[worst]:.2f}"


def _class_table(baselines: Baselines, results: Sequence[Any]) -> Table:
    labels = baselines.truth.labels
    columns = ["class", "share"]
    scores = []
    for name, predicted in baselines.predicted.items():
        columns.append(name)
        scores.append([f1_scores(confusion(labels, predicted))])
    for direction in DIRECTIONS:
        if good := good_seeds(results, direction):
            columns.append(f"GRU, {direction}")
            scores.append([f1_scores(confusion(labels, one.predicted)) for one in good])
    rows = []
    for index, name in enumerate(CLASSES):
        cells = [f"{100 * np.mean([of[index] for of in each]):.1f}" for each in scores]
        rows.append((name, f"{100 * (labels == index).mean():.1f} %", *cells))
    return Table("F1 of each class on the test files, in %: mean over seeds", columns, rows)


def _data_table(baselines: Baselines) -> Table:
    rows = [
        (name, str(len(part["files"])), f"{part['characters']:,}", f"{part['paragraphs']:,}")
        + (f"{part['dropped']:,}", part["digest"], " ".join(part["files"]))
        for name, part in baselines.about.items()
    ]
    columns = ("part", "files", "characters", "paragraphs", "left out", "digest", "names")
    title = "The text: files of the standard library; single lines longer than a row are left out"
    return Table(title, columns, rows, num_names=1)


def _layouts_table(layouts: Sequence[Layouts]) -> Table:
    rows = []
    for one in layouts:
        for name in one.slots:
            rate = median_and_quartiles(one.rate(name) / 1e3, 1)
            real = 100 * one.characters[name] / one.slots[name]
            memory = f"{one.temporary_bytes[name] / 2**20:.1f}"
            rows.append((one.direction, name, f"{one.slots[name]:,}", f"{real:.0f}", rate, memory))
    title = (
        "Loss and gradient of the same paragraphs: real characters a processor second, median "
        "[quartiles] of interleaved rounds"
    )
    columns = ("model", "layout", "steps computed", "of them real, %", "thousand characters / s")
    return Table(title, (*columns, "temporary MiB"), rows, num_names=2)
