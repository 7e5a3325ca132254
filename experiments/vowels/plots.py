"""The two figures: how training went, and what padding does."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.lines import Line2D

from experiments.frame.figures import PALETTE, figure
from experiments.vowels.config import Config
from experiments.vowels.training import Trained

_TITLES = {"final": "final carry", "mean": "mean over real steps"}
_CURVES = (
    ("loss", "training loss (nats)", "log", 1.0),
    ("accuracy", "{scored} accuracy (%)", "linear", 100.0),
    ("recurrent_gradient_norm", "gradient norm,\nrecurrent weights", "log", 1.0),
    ("input_gradient_norm", "gradient norm,\ninput weights", "log", 1.0),
)


def curves(results: Sequence[Trained], config: Config, path: Path) -> None:
    """Loss, accuracy and gradient norms by epoch, a column for each readout."""
    readouts = list(dict.fromkeys(result.readout for result in results))
    colors = _colors(results)
    scored = "test" if config.evaluate_on == "test" else "validation"
    with figure(path, max(6, 1.2 + 4 * len(readouts)), 9.5) as canvas:
        axes = canvas.subplots(
            len(_CURVES), len(readouts), sharex=True, sharey="row", squeeze=False
        )
        for row, (name, label, scale, factor) in zip(axes, _CURVES, strict=True):
            row[0].set_ylabel(label.format(scored=scored))
            for axis, readout in zip(row, readouts, strict=True):
                axis.set_yscale(scale)
                for result in results:
                    if result.readout == readout:
                        _draw_seeds(axis, result, factor * result.history[name], colors)
        for readout, top, bottom in zip(readouts, axes[0], axes[-1], strict=True):
            top.set_title(_TITLES[readout])
            bottom.set_xlabel("epoch")
        _share_limits(axes[-2:])
        canvas.align_ylabels()
        canvas.legend(*_legend(axes), loc="outside upper center", ncols=len(colors) + 1)


def padding(results: Sequence[Trained], path: Path) -> None:
    """Accuracy and changed predictions by padded length, with a mask and without."""
    results = [result for result in results if result.padding]
    kinds = ((True, "with mask: the carry is copied", "o-"), (False, "without mask", "s--"))
    with figure(path, max(6, 1.2 + 2.2 * len(results)), 5) as canvas:
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
                    kept = np.array(values)[:, ~result.failed]
                    axis.plot(lengths, kept, color=color, linewidth=0.7, alpha=0.5)
                    axis.set_xticks(lengths)
                    if kept.size:
                        axis.plot(lengths, kept.mean(axis=1), line, color=color, label=label)
        axes[0, 0].set_ylabel("accuracy (%)")
        axes[0, 0].set_ylim(0, 105)
        axes[1, 0].set_ylabel("changed predictions")
        canvas.legend(*_legend(axes), loc="outside upper center", ncols=3)


def _draw_seeds(axis, result, values, colors):
    """Thin lines for the seeds, a cross where one failed, and the mean of the others."""
    epochs = np.arange(1, values.shape[1] + 1)
    color = colors[result.model]
    axis.plot(epochs, values.T, color=color, linewidth=0.6, alpha=0.4)
    for seed in values[result.failed]:
        finite = np.flatnonzero(np.isfinite(seed))
        last = finite[-1] if len(finite) else 0
        axis.plot(epochs[last], seed[last], "x", color=color)
    kept = values[~result.failed]
    if kept.size:
        axis.plot(epochs, kept.mean(axis=0), color=color, label=result.model)


def _colors(results: Sequence[Trained]) -> dict[str, str]:
    models = dict.fromkeys(result.model for result in results)
    return dict(zip(models, PALETTE, strict=False))


def _legend(axes):
    """Each label once, from all panels, and what a thin line is."""
    handles = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    handles["one seed"] = Line2D([], [], color="gray", linewidth=0.7)
    return list(handles.values()), list(handles)


def _share_limits(axes):
    """The same limits in every panel, so that norms can be compared by eye."""
    limits = [axis.get_ylim() for axis in axes.flat]
    for axis in axes.flat:
        axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
