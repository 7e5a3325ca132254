"""The two figures: how training went, and what padding does."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.frame.figures import PALETTE, draw_seeds, labels_once, new_figure, share_y_limits
from experiments.vowels.config import Config
from experiments.vowels.train import Trained

_TITLES = {"final": "final carry", "mean": "mean over real steps"}
_CURVES = (
    ("loss", "training loss (nats)", "log", 1.0),
    ("accuracy", "{scored} accuracy (%)", "linear", 100.0),
    ("recurrent_gradient_norm", "gradient norm,\nrecurrent weights", "log", 1.0),
    ("input_gradient_norm", "gradient norm,\ninput weights", "log", 1.0),
)


def curves(results: Sequence[Trained], config: Config) -> Figure:
    """Loss, accuracy and gradient norms by epoch, a column for each readout."""
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


def padding(results: Sequence[Trained]) -> Figure:
    """Accuracy and changed predictions by padded length, with a mask and without."""
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
