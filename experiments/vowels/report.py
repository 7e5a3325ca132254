from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.frame.figures import PALETTE, draw_seeds, labels_once, new_figure, share_y_limits
from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, share
from experiments.frame.tables import Table
from experiments.vowels.config import Config
from experiments.vowels.measure import Trained

CLAIM = (
    "A recurrence tells nine speakers apart by one vowel, whatever the length of the recording. "
    "With a mask the padding after the end changes no prediction; read as data, it does."
)
CURVES = (
    "Training loss, accuracy and gradient norms by epoch. Thick: the mean of the seeds; thin: each "
    "seed."
)
PADDING = "The same trained models after more and more padding, with a mask and without."
_TITLES = {"final": "final carry", "mean": "mean over real steps"}
_CURVES = (
    ("loss", "training loss (nats)", "log", 1.0),
    ("accuracy", "{scored} accuracy (%)", "linear", 100.0),
    ("recurrent_gradient_norm", "gradient norm,\nrecurrent weights", "log", 1.0),
    ("input_gradient_norm", "gradient norm,\ninput weights", "log", 1.0),
)


def report(config: Config, results: Sequence[Trained]) -> Report:
    """Accuracies and curves of all models; padding where the final carry was read."""
    pictures = [Picture("curves", curves_figure(results, config), CURVES)]
    tables = [_accuracy_table(config, results)]
    padded = [result for result in results if result.padding]
    if padded:
        pictures.append(Picture("padding", padding_figure(padded), PADDING))
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
    def percent(one, middle):
        good = 100 * one.fitted.of_good_seeds(one.accuracy)
        return middle(good) if len(good) else "-"

    columns = {
        "model": lambda one: one.model,
        "readout": lambda one: one.readout,
        "parameters": lambda one: str(one.fitted.num_params),
        "accuracy": lambda one: percent(one, mean_and_spread),
        "worst": lambda one: percent(one, lambda good: f"{good.min():.1f}"),
        "best": lambda one: percent(one, lambda good: f"{good.max():.1f}"),
        "failed": lambda one: share(one.fitted.failed),
        "seconds": lambda one: f"{one.fitted.seconds:.0f}",
    }
    title = (
        f"Accuracy in % on the {_scored(config)} after epoch {config.epochs}: "
        "mean ± deviation over the seeds that did not fail"
    )
    return Table.by_columns(title, results, columns, num_names=2)


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


def curves_figure(results: Sequence[Trained], config: Config) -> Figure:
    readouts = list(dict.fromkeys(result.readout for result in results))
    models = dict.fromkeys(result.model for result in results)
    colors = dict(zip(models, PALETTE, strict=False))
    scored = "test" if config.evaluate_on == "test" else "validation"
    canvas = new_figure(max(6, 1.2 + 4 * len(readouts)), 9.5)
    axes = canvas.subplots(len(_CURVES), len(readouts), sharex=True, sharey="row", squeeze=False)
    for row, (name, label, scale, factor) in zip(axes, _CURVES, strict=True):
        row[0].set(yscale=scale, ylabel=label.format(scored=scored))
        for axis, readout in zip(row, readouts, strict=True):
            for result in results:
                if result.readout == readout:
                    values = factor * result.fitted.of_epochs()[name]
                    color, failed = colors[result.model], result.fitted.failed
                    draw_seeds(axis, values, failed, color, result.model)
    for readout, top, bottom in zip(readouts, axes[0], axes[-1], strict=True):
        top.set_title(_TITLES[readout])
        bottom.set_xlabel("epoch")
    share_y_limits(axes[-2:].flat)
    canvas.align_ylabels()
    _legend(canvas, axes)
    return canvas


def padding_figure(results: Sequence[Trained]) -> Figure:
    kinds = ((True, "with mask: the carry is copied", "o-"), (False, "without mask", "s--"))
    canvas = new_figure(max(6, 1.2 + 2.2 * len(results)), 5)
    axes = canvas.subplots(2, len(results), sharex=True, sharey="row", squeeze=False)
    for result, (top, bottom) in zip(results, axes.T, strict=True):
        top.set_title(result.model)
        bottom.set_xlabel("padded to (steps)")
        for (masked, label, line), color in zip(kinds, PALETTE, strict=False):
            scores = [score for score in result.padding if score.masked == masked]
            lengths = [score.length for score in scores]
            for axis, values in (
                (top, [100 * score.accuracy for score in scores]),
                (bottom, [score.changed for score in scores]),
            ):
                seeds = result.fitted.of_good_seeds(np.transpose(values))
                draw_seeds(axis, seeds, None, color, label, xs=lengths, line=line)
                axis.set_xticks(lengths)
    axes[0, 0].set(ylabel="accuracy (%)", ylim=(0, 105))
    axes[1, 0].set_ylabel("changed predictions")
    _legend(canvas, axes)
    return canvas


def _legend(canvas, axes):
    handles, labels = labels_once(axes.flat)
    handles.append(Line2D([], [], color="gray", linewidth=0.7))
    canvas.legend(handles, [*labels, "one seed"], loc="outside upper center", ncols=5)
