"""What is reported: accuracies, what padding changed, and the figures of both."""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, share
from experiments.frame.tables import Table
from experiments.frame.trainings import Training
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
    return Report(
        CLAIM,
        trainings=[_training(config, result) for result in results],
        pictures=pictures,
        tables=tables,
        found=_found(config, results),
        files={"padding.csv": _padding_rows(config, padded)},
    )


def _training(config: Config, result: Trained) -> Training:
    names = {"model": result.model, "readout": result.readout}
    return Training(names, config.all_seeds, result.fitted, {"accuracy": result.accuracy})


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
        fitted, percent = result.fitted, 100 * result.fitted.of_good_seeds(result.accuracy)
        rows.append(
            {
                "model": result.model,
                "readout": result.readout,
                "parameters": str(fitted.num_params),
                "accuracy": mean_and_spread(percent),
                "worst": f"{percent.min():.1f}" if len(percent) else "-",
                "best": f"{percent.max():.1f}" if len(percent) else "-",
                "failed": share(fitted.failed),
                "seconds": f"{fitted.seconds:.0f}",
            }
        )
    title = (
        f"Accuracy in % on the {_scored(config)} after epoch {config.epochs}: "
        "mean ± deviation over the seeds that did not fail"
    )
    return Table.of(title, rows, num_names=2)


def _padding_table(config: Config, results: Sequence[Trained]) -> Table:
    rows = []
    for result in results:
        good = result.fitted.of_good_seeds
        for masked, unmasked in zip(result.padding[::2], result.padding[1::2], strict=True):
            rows.append(
                {
                    "model": result.model,
                    "padded to": str(masked.length),
                    "masked": mean_and_spread(100 * good(masked.accuracy)),
                    "unmasked": mean_and_spread(100 * good(unmasked.accuracy)),
                    "masked changed": mean_and_spread(good(masked.changed), 0),
                    "unmasked changed": mean_and_spread(good(unmasked.changed), 0),
                }
            )
    title = (
        "The final carry after zeros (the mean step): accuracy in % on the "
        f"{_scored(config)}, and how many predictions the padding changed"
    )
    return Table.of(title, rows)


def _scored(config: Config) -> str:
    return "test split" if config.evaluate_on == "test" else "recordings held out"


def _padding_rows(config: Config, results: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for result in results:
        for index, names in enumerate(_training(config, result).result_rows()):
            for score in result.padding:
                yield {name: names[name] for name in ("model", "readout", "seed", "status")} | {
                    "padded_to": score.length,
                    "masked": score.masked,
                    "accuracy": float(score.accuracy[index]),
                    "changed": int(score.changed[index]),
                }
