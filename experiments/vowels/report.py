"""Tables and files of what was measured."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.frame.legacy import Page, Picture
from experiments.frame.run_folder import RunFolder
from experiments.frame.stats import mean_and_spread
from experiments.frame.tables import Table, markdown, show
from experiments.vowels import plots
from experiments.vowels.config import Config
from experiments.vowels.training import Trained

CLAIM = (
    "A recurrence tells nine speakers apart by one vowel, whatever the length of the recording. "
    "With a mask the padding behind the end changes no prediction; read as data, it does."
)
CAPTIONS = {
    "curves.png": "Training loss, accuracy and gradient norms by epoch. Thick: the mean of the "
    "seeds; thin: each seed.",
    "padding.png": "The same trained models behind more and more padding, with a mask and without.",
}


def report(config: Config, results: Sequence[Trained], folder: RunFolder) -> Page:
    """Writes results, curves, padding scores and figures, and prints the tables."""
    folder.write_csv("results.csv", _seed_rows(config, results))
    folder.write_csv("metrics.csv", _epoch_rows(config, results))
    folder.write_json("seconds.json", {f"{r.model} {r.readout}": r.seconds for r in results})
    plots.curves(results, config, folder.path("curves.png"))
    tables, figures = [_accuracy_table(config, results)], ["curves.png"]
    if any(result.padding for result in results):
        folder.write_csv("padding.csv", _padding_rows(config, results))
        plots.padding(results, folder.path("padding.png"))
        tables.append(_padding_table(config, results))
        figures.append("padding.png")
    sections = [markdown(table) for table in tables] + [f"![]({name})\n" for name in figures]
    folder.write_text("summary.md", "\n".join(["# vowels\n", *sections]))
    for table in tables:
        show(table)
    pictures = [Picture(name, CAPTIONS[name]) for name in figures]
    return Page("vowels", CLAIM, tables, pictures, _found(config, results), _failed(results))


def _found(config: Config, results: Sequence[Trained]) -> list[str]:
    scored = [result for result in results if not result.failed.all()]
    found = []
    if scored:
        best = max(scored, key=lambda result: result.accuracy[~result.failed].mean())
        found.append(
            f"Best on the {_scored(config)}: {best.model} reading the {best.readout}, "
            f"{best.summary} of the recordings told right."
        )
    for result in (result for result in scored if result.padding):
        with_mask, without = (
            max(s.changed[~result.failed].max() for s in result.padding if s.masked == masked)
            for masked in (True, False)
        )
        found.append(
            f"{result.model}: padding changed at most {with_mask} predictions with the mask and "
            f"at most {without} without."
        )
    return found


def _failed(results: Sequence[Trained]) -> list[str]:
    return [
        f"{result.model}, {result.readout}: {result.failed.sum()} of {len(result.failed)} seeds "
        "had a loss that was not finite, and are in no mean."
        for result in results
        if result.failed.any()
    ]


def _accuracy_table(config: Config, results: Sequence[Trained]) -> Table:
    rows = []
    for result in results:
        percent = 100 * result.accuracy[~result.failed]
        worst, best = (f"{f(percent):.1f}" if len(percent) else "-" for f in (np.min, np.max))
        rows.append(
            (
                result.model,
                result.readout,
                str(result.num_params),
                mean_and_spread(percent),
                worst,
                best,
                f"{result.failed.sum()} of {len(result.failed)}",
                f"{result.seconds:.0f}",
            )
        )
    return Table(
        f"Accuracy in % on the {_scored(config)} after epoch {config.epochs}: "
        "mean ± deviation over the seeds that did not fail",
        ("model", "readout", "parameters", "accuracy", "worst", "best", "failed", "seconds"),
        rows,
        num_names=2,
    )


def _padding_table(config: Config, results: Sequence[Trained]) -> Table:
    rows = []
    for result in results:
        scores = {(score.length, score.masked): score for score in result.padding}
        for length in sorted({score.length for score in result.padding}):
            both = [scores[length, masked] for masked in (True, False)]
            cells = [mean_and_spread(100 * score.accuracy[~result.failed]) for score in both]
            cells += [mean_and_spread(score.changed[~result.failed], 0) for score in both]
            rows.append((result.model, str(length), *cells))
    columns = ("model", "padded to", "masked", "unmasked", "masked changed", "unmasked changed")
    return Table(
        "The final carry behind zeros (the mean step): accuracy in % on the "
        f"{_scored(config)}, and how many predictions the padding changed",
        columns,
        rows,
    )


def _scored(config: Config) -> str:
    return "test split" if config.evaluate_on == "test" else "recordings held out"


def _seeds(config: Config, results: Sequence[Trained]) -> Iterator[tuple[Trained, int, dict]]:
    """Every result and seed, with the columns that name them."""
    for result in results:
        for index in range(config.seeds):
            yield (
                result,
                index,
                {
                    "model": result.model,
                    "readout": result.readout,
                    "seed": config.first_seed + index,
                },
            )


def _seed_rows(config: Config, results: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for result, index, names in _seeds(config, results):
        yield names | {
            "num_params": result.num_params,
            "status": "failed" if result.failed[index] else "ok",
            "accuracy": float(result.accuracy[index]),
        }


def _epoch_rows(config: Config, results: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for result, index, names in _seeds(config, results):
        for epoch in range(config.epochs):
            values = {name: float(value[index, epoch]) for name, value in result.history.items()}
            yield names | {"epoch": epoch + 1} | values


def _padding_rows(config: Config, results: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for result, index, names in _seeds(config, results):
        for score in result.padding:
            yield names | {
                "status": "failed" if result.failed[index] else "ok",
                "padded_to": score.length,
                "masked": score.masked,
                "accuracy": float(score.accuracy[index]),
                "changed": int(score.changed[index]),
            }
