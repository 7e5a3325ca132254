"""The figures: what can be counted, scores by length, and how training went."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.frame.figures import PALETTE, labels_once, line_styles, new_figure
from experiments.memory.config import UPDATES_PER_EPOCH, Config
from experiments.memory.measure import Results, Trained
from experiments.memory.model import LABELS, MIXERS
from experiments.memory.task import TASKS

_STYLES = {name: {"label": LABELS[name], **style} for name, style in line_styles(MIXERS).items()}


def counting(results: Results) -> Figure:
    """A column for each number of bits the carry can have."""
    bounds = {one.capacity: one for one in results.registers}
    units = dict.fromkeys(one.units for one in results.registers)
    colors = dict(zip(units, PALETTE, strict=False))
    lines = [(one, ":", "") for one in results.registers] + [
        (one, "-", "o") for one in results.rounded
    ]
    canvas = new_figure(max(5, 2.2 * len(bounds) + 0.8), 4.8)
    axes = canvas.subplots(2, len(bounds), sharex=True, sharey="row", squeeze=False)
    for (top, bottom), (capacity, bound) in zip(axes.T, sorted(bounds.items()), strict=True):
        thick = {"color": "black", "linewidth": 3, "alpha": 0.35}
        top.plot(bound.steps, bound.most_states, label="most that counting allows", **thick)
        bottom.plot(bound.steps, bound.most_bits_right, **thick)
        for one, line, marker in lines:
            if one.capacity == capacity:
                style = {"color": colors[one.units], "linestyle": line, "marker": marker}
                label = f"{one.kind}, H = {one.units}"
                top.plot(one.steps, one.states, label=label, markersize=3, **style)
                bottom.plot(one.steps, one.bits_right, markersize=3, **style)
        for axis in (top, bottom):
            axis.axvline(capacity, color="gray", linewidth=0.7)
        top.set_title(f"p H = {capacity} bits")
        top.set_yscale("log", base=2)
        bottom.set_xlabel("bits of history n")
    axes[0, 0].set_ylabel("different carries")
    axes[1, 0].set_ylabel("share of bits right")
    canvas.legend(*labels_once(axes[0]), loc="outside lower center", ncols=4)
    return canvas


def lengths(results: Results, config: Config) -> Figure:
    """A panel for each task, a curve for each model."""

    def finish(axis, task):
        axis.axvline(config.train_steps, color="gray", linestyle="--", linewidth=0.8)
        axis.axhline(TASKS[task].chance, color="black", linestyle=":", linewidth=0.9)
        axis.set_xscale("log", base=2)
        axis.set_xticks(config.test_lengths, map(str, config.test_lengths))
        axis.set_xlabel("steps of the row")

    def draw(axis, one):
        axis.plot(config.test_lengths, one.chosen, **_STYLES[one.model])

    return _panels(results, config, draw, finish)


def training(results: Results, config: Config) -> Figure:
    """A panel for each task, a curve for each model: the mean of the seeds."""

    def draw(axis, one):
        right = one.fitted.of_epochs()["right"].mean(axis=0)
        updates = UPDATES_PER_EPOCH * np.arange(1, len(right) + 1)
        axis.plot(updates, right, **_STYLES[one.model] | {"marker": ""})

    return _panels(results, config, draw, lambda axis, task: axis.set_xlabel("update"))


def _panels(
    results: Results,
    config: Config,
    draw: Callable[[Any, Trained], Any],
    finish: Callable[[Any, str], Any],
) -> Figure:
    """Axes for the tasks, and beside the last of them the legend."""
    num_columns = min(3, len(config.tasks) + 1)
    num_rows = -(-(len(config.tasks) + 1) // num_columns)
    canvas = new_figure(3.3 * num_columns, 2.9 * num_rows)
    axes = canvas.subplots(num_rows, num_columns, squeeze=False).ravel()
    for axis, task in zip(axes, config.tasks, strict=False):
        for one in results.trained:
            if one.task == task:
                draw(axis, one)
        axis.set(title=TASKS[task].label, ylabel="share of answers right", ylim=(-0.03, 1.03))
        finish(axis, task)
    for axis in axes[len(config.tasks) :]:
        axis.axis("off")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="center", fontsize=8)
    return canvas
