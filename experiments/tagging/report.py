from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, median_and_quartiles, share
from experiments.frame.tables import Table
from experiments.tagging import figures
from experiments.tagging.config import Config
from experiments.tagging.expect import judged
from experiments.tagging.measure import Results, accuracy, f1_scores, whole_tokens
from experiments.tagging.task import CLASSES, Corpus, digest
from experiments.tagging.train import Tagged

CLAIM = (
    "A label for every step: which class of token does each character of Python source belong to? "
    "Read forwards, a keyword cannot be told from a name before it has ended; read in both "
    "directions it can, at the same number of parameters. A conditional random field on top tells "
    "more tokens right from end to end. Packing paragraphs of different length "
    "into rows changes no number that padding gives, and reads more characters a second."
)
# By the part of the results that is drawn.
CAPTIONS = {
    "good": {
        "positions": "Characters told right, by their place in the token; of test files that no "
        "model has seen, the mean of the seeds. Reading forwards, the first characters of a "
        "keyword are those of a name. A place with fewer than 50 characters is left out.",
        "confusion": "Of all characters of a class (row), the share in % that was called what the "
        "column says; all seeds. Shares below 0.05 % are left blank.",
    },
    "tagged": {
        "training": "Left: accuracy on the validation files by epoch, a line for each seed. Right: "
        "lengths of the paragraphs that are trained on, in equal steps of the logarithm."
    },
    "comparisons": {
        "layouts": "Left: losses of the same updates, packed and padded. Right: real characters a "
        "processor second of a loss with its gradient; a point is a round."
    },
}


def report(config: Config, results: Results) -> Report:
    """Scores and confusions of what is trained, and the layouts once they are compared."""
    verdicts = judged(results)
    trainings = [_training(config, one, results) for one in results.tagged]
    about = {name: _about(part) for name, part in results.task._asdict().items()}
    tables = [_accuracy_table(results), _class_table(results), _data_table(about)]
    return Report(
        CLAIM,
        verdicts=verdicts,
        trainings=trainings,
        pictures=[
            picture
            for part, captions in CAPTIONS.items()
            if getattr(results, part)
            for picture in Picture.drawn(figures, captions, results)
        ],
        tables=[*tables, _layouts_table(results)] if results.comparisons else tables,
        found=[f"{one.point}: {one.measured}." for one in verdicts if one.passed],
        seconds={
            one.model: {name: layout.seconds for name, layout in one.layouts.items()}
            for one in results.comparisons
        },
        files={
            "data.json": about,
            "baselines.csv": [
                {"model": name} | _scores(results, told) for name, told in results.counted.items()
            ],
            "files.csv": _file_rows(results, trainings),
        },
    )


def _training(config: Config, one: Tagged, results: Results) -> Training:
    scores = [_scores(results, predicted) for predicted in one.predicted]
    columns = {name: np.array([row[name] for row in scores]) for name in scores[0]}
    return Training({"model": one.model}, config.all_seeds, one.fitted, columns)


def _scores(results: Results, predicted: np.ndarray) -> dict[str, float]:
    labels = results.truth.labels
    by_class = f1_scores(labels, predicted)
    scores = {
        "accuracy": accuracy(labels, predicted),
        "macro_f1": np.nanmean(by_class),
        "whole_tokens": whole_tokens(results.truth, predicted),
    }
    scores |= {f"f1_{name}": value for name, value in zip(CLASSES, by_class, strict=True)}
    return {name: float(value) for name, value in scores.items()}


def _file_rows(results: Results, trainings: Sequence[Training]) -> Iterator[dict[str, Any]]:
    told: list[Any] = [
        ({"model": name, "seed": "", "status": "ok"}, predicted)
        for name, predicted in results.counted.items()
    ]
    for training, one in zip(trainings, results.tagged, strict=True):
        told += zip(training.result_rows(), one.predicted, strict=True)
    for names, predicted in told:
        for index, source in enumerate(results.task.test.sources):
            inside = results.truth.file == index
            row = {name: names[name] for name in ("model", "seed", "status")}
            row |= {"file": source.name, "characters": int(inside.sum())}
            yield row | {"accuracy": accuracy(results.truth.labels[inside], predicted[inside])}


def _told(results: Results) -> dict[str, np.ndarray]:
    """What every baseline, and the seeds of every model that did not fail, say, `[S, N]`."""
    counted = {name: predicted[None] for name, predicted in results.counted.items()}
    return counted | {f"GRU, {one.model}": one.good for one in results.tagged}


def _accuracy_table(results: Results) -> Table:
    fitted, rows = {f"GRU, {one.model}": one.fitted for one in results.tagged}, []
    for name, predicted in _told(results).items():
        scores = [_scores(results, one) for one in predicted]
        accuracies, f1, whole = (
            mean_and_spread(100 * np.array([one[score] for one in scores]), 2)
            for score in ("accuracy", "macro_f1", "whole_tokens")
        )
        rows.append(
            {
                "model": name,
                "parameters": f"{fitted[name].num_params:,}" if name in fitted else "counts",
                "accuracy": accuracies,
                "macro F1": f1,
                "whole tokens": whole,
                "worst file": _worst_file(results, predicted) if len(predicted) else "-",
                "failed seeds": share(fitted[name].failed) if name in fitted else "-",
            }
        )
    title = (
        "Characters of the test files told right, in %, F1 averaged over classes, and tokens of 2 "
        "characters or more that are right throughout: mean ± deviation over seeds"
    )
    return Table.of(title, rows)


def _worst_file(results: Results, predicted: np.ndarray) -> str:
    right = (predicted == results.truth.labels).mean(axis=0)
    least, name = min(
        (right[results.truth.file == index].mean(), source.name)
        for index, source in enumerate(results.task.test.sources)
    )
    return f"{name} {100 * least:.2f}"


def _class_table(results: Results) -> Table:
    labels = results.truth.labels
    scores = {
        name: 100 * np.mean([f1_scores(labels, one) for one in predicted], axis=0)
        for name, predicted in _told(results).items()
        if len(predicted)
    }
    rows = [
        {"class": name, "share": f"{100 * (labels == index).mean():.1f} %"}
        | {model: f"{of_class[index]:.1f}" for model, of_class in scores.items()}
        for index, name in enumerate(CLASSES)
    ]
    return Table.of("F1 of each class on the test files, in %: mean over seeds", rows)


def _about(part: Corpus) -> dict[str, Any]:
    return {
        "files": [source.name for source in part.sources],
        "digest": digest(part.sources),
        "characters": part.num_characters,
        "paragraphs": len(part.paragraphs),
        "dropped": part.dropped,
    }


def _data_table(about: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        {
            "part": name,
            "files": str(len(part["files"])),
            "characters": f"{part['characters']:,}",
            "paragraphs": f"{part['paragraphs']:,}",
            "left out": f"{part['dropped']:,}",
            "digest": part["digest"],
            "names": " ".join(part["files"]),
        }
        for name, part in about.items()
    ]
    title = "The text: files of the standard library; single lines longer than a row are left out"
    return Table.of(title, rows)


def _layouts_table(results: Results) -> Table:
    rows = [
        {
            "model": one.model,
            "layout": name,
            "steps computed": f"{layout.steps:,}",
            "of them real, %": f"{100 * layout.characters / layout.steps:.0f}",
            "thousand characters / s": median_and_quartiles(layout.rate / 1e3, 1),
            "temporary MiB": f"{layout.temporary_bytes / 2**20:.1f}",
        }
        for one in results.comparisons
        for name, layout in one.layouts.items()
    ]
    title = (
        "Loss and gradient of the same paragraphs: real characters a processor second, median "
        "[quartiles] of interleaved rounds"
    )
    return Table.of(title, rows, num_names=2)
