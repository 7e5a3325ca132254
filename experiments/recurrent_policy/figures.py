from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.frame.figures import PALETTE, draw_seeds, labels_once, new_figure
from experiments.recurrent_policy.config import Config
from experiments.recurrent_policy.measure import Trained
from experiments.recurrent_policy.model import LABELS


def returns(config: Config, results: Sequence[Trained]) -> Figure:
    """The T-maze by the length of its corridor, and a column of seeds for each other task."""
    mazes = [one for one in results if one.environment.length is not None]
    others = [one for one in results if one.environment.length is None]
    names = list(dict.fromkeys(one.environment.name for one in others))
    widths = [2.2] * bool(mazes) + [1] * len(names)
    canvas = new_figure(3 + 2.6 * len(widths), 3.8)
    axes = list(canvas.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0])
    if mazes:
        _mazes(axes[0], config, mazes)
    for axis, name in zip(axes[bool(mazes) :], names, strict=True):
        _seeds(axis, config, [one for one in others if one.environment.name == name])
    axes[0].set_ylabel("return of an episode")
    canvas.legend(*labels_once(axes), loc="outside upper center", ncols=6)
    return canvas


def _mazes(axis, config, mazes):
    for model in config.models:
        of_model = [one for one in mazes if one.model == model]
        lengths = [one.environment.length for one in of_model]
        values = np.array([one.score for one in of_model]).T
        if of_model:
            draw_seeds(
                axis, values, None, _color(config, model), LABELS[model], xs=lengths, line="o-"
            )
    lengths = list(dict.fromkeys(one.environment.length for one in mazes))
    _draw_chance(axis, mazes[0])
    axis.set(title="T-maze", xlabel="length of the corridor", xscale="log")
    axis.set_xticks(lengths, map(str, lengths))
    axis.minorticks_off()


def _seeds(axis, config, trained):
    for place, one in enumerate(trained):
        places = place + np.linspace(-0.15, 0.15, len(one.score))
        axis.plot(places, one.score, "o", color=_color(config, one.model), label=LABELS[one.model])
    _draw_chance(axis, trained[0])
    axis.set(title=trained[0].environment.name, xticks=[])


def learning(config: Config, results: Sequence[Trained]) -> Figure:
    """The mean return by the steps made, a panel for each task."""
    names = list(dict.fromkeys(one.environment.name for one in results))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    canvas = new_figure(max(6, 3.2 * columns), 0.6 + 2.4 * rows)
    axes = canvas.subplots(rows, columns, squeeze=False, sharey=True)
    for axis, name in zip(axes.flat, names, strict=False):
        of_task = [one for one in results if one.environment.name == name]
        for one in of_task:
            values = one.fitted.of_updates()["return"]
            steps = one.steps_of_update * np.arange(1, values.shape[1] + 1) / 1e6
            color, failed = _color(config, one.model), one.fitted.failed
            draw_seeds(axis, values, failed, color, LABELS[one.model], xs=steps)
        _draw_chance(axis, of_task[0])
        axis.set(title=name, xlabel="million steps", ylim=(-1.05, 1.05))
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("return of an episode")
    canvas.legend(*labels_once(axes.flat), loc="outside upper center", ncols=6)
    return canvas


def _draw_chance(axis, one):
    if one.environment.chance is not None:
        level, label = one.environment.chance, "best without memory"
        axis.axhline(level, color="black", linestyle=":", linewidth=1.2, label=label)


def _color(config, model):
    return PALETTE[config.models.index(model)]
