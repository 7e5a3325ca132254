"""What is reported: accuracies, what padding changed, and the figures of both."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.frame.fitting import failed_sentences, numbered_rows, status
from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, share
from experiments.frame.tables import Table
from experiments.vowels import figures
from experiments.vowels.config import Config
from experiments.vowels.train import Trained

CLAIM = (
    "A recurrence tells nine speakers apart by one vowel, whatever the length of the recording. "
    "With a mask the padding after the end changes no prediction; read as data, it does."
)
CURVES = (
    "Training loss, accuracy and gradient norms by epoch. Thick: the mean of the seeds; thin: each "
    "seed."
)
PADDING = "The same trained models after more and more padding, with a mask and without."


def report(config: Config, results: Sequence[Trained]) -> Report:
    """Accuracies and curves of all models; padding where the final carry was read."""
    pictures = [Picture("curves", figures.curves(results, config), CURVES)]
    tables = [_accuracy_table(config, results)]
    padded = [result for result in results if result.padding]
    if padded:
        pictures.append(Picture("padding", figures.padding(padded), PADDING))
        tables.append(_padding_table(config, padded))
    failed = [(f"{one.model}, {one.readout}", one.fitted.failed) for one in results]
    return Report(
        CLAIM,
        pictures=pictures,
        tables=tables,
        found=_found(config, results),
        failed=[sentence for each in failed for sentence in failed_sentences(*each)],
        files={
            "results.csv": _seed_rows(config, results),
            "metrics.csv": _epoch_rows(config, results),
            "padding.csv": _padding_rows(config, padded),
            "seconds.json": {f"{r.model} {r.readout}": r.fitted.seconds for r in results},
        },
    )


def _found(config: Config, results: Sequence[Trained]) -> list[str]:
    scored = [result for result in results if not result.fitted.failed.all()]
    found = []
    if scored:
        best = max(scored, key=lambda one: one.fitted.of_good_seeds(one.accuracy).mean())
        found.append(
            f"Best on the {_scored(config)}: {best.model} reading the {best.readout}, "
            f"{best.summary} of the recordings classified correctly."
        )
    for result in (result for result in scored if result.padding):
        with_mask, without = (
            max(
                result.fitted.of_good_seeds(score.changed).max()
                for score in result.padding
                if score.masked == masked
            )
            for masked in (True, False)
        )
        found.append(
            f"{result.model}: padding changed at most {with_mask} predictions with the mask and "
            f"at most {without} without."
        )
    return found


def _accuracy_table(config: Config, results: Sequence[Trained]) -> Table:
    rows = []
    for result in results:
        percent = 100 * result.fitted.of_good_seeds(result.accuracy)
        worst, best = (f"{f(percent):.1f}" if len(percent) else "-" for f in (np.min, np.max))
        accuracies = mean_and_spread(percent), worst, best
        failed, seconds = share(result.fitted.failed), f"{result.fitted.seconds:.0f}"
        names = (result.model, result.readout, str(result.fitted.num_params))
        rows.append((*names, *accuracies, failed, seconds))
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
        good = result.fitted.of_good_seeds
        scores = {(score.length, score.masked): score for score in result.padding}
        for length in sorted({score.length for score in result.padding}):
            both = [scores[length, masked] for masked in (True, False)]
            cells = [mean_and_spread(100 * good(score.accuracy)) for score in both]
            cells += [mean_and_spread(good(score.changed), 0) for score in both]
            rows.append((result.model, str(length), *cells))
    columns = ("model", "padded to", "masked", "unmasked", "masked changed", "unmasked changed")
    return Table(
        "The final carry after zeros (the mean step): accuracy in % on the "
        f"{_scored(config)}, and how many predictions the padding changed",
        columns,
        rows,
    )


def _scored(config: Config) -> str:
    return "test split" if config.evaluate_on == "test" else "recordings held out"


def _seeds(
    config: Config, results: Sequence[Trained]
) -> Iterator[tuple[Trained, int, dict[str, Any]]]:
    """Every result and seed, with the columns that name them."""
    for result in results:
        for index, seed in enumerate(config.all_seeds):
            yield result, index, {"model": result.model, "readout": result.readout, "seed": seed}


def _seed_rows(config: Config, results: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for result, index, names in _seeds(config, results):
        yield names | {
            "num_params": result.fitted.num_params,
            "status": status(result.fitted.failed[index]),
            "accuracy": float(result.accuracy[index]),
        }


def _epoch_rows(config: Config, results: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for result, index, names in _seeds(config, results):
        history = result.fitted.of_epochs()
        yield from numbered_rows(names, "epoch", {name: v[index] for name, v in history.items()})


def _padding_rows(config: Config, results: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for result, index, names in _seeds(config, results):
        for score in result.padding:
            yield names | {
                "status": status(result.fitted.failed[index]),
                "padded_to": score.length,
                "masked": score.masked,
                "accuracy": float(score.accuracy[index]),
                "changed": int(score.changed[index]),
            }
