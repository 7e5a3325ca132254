"""The figures: what can be counted, scores by length, and how training went."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.frame.figures import PALETTE, figure, line_styles
from experiments.memory.config import Config
from experiments.memory.counting import Counted, most_bits_right, most_states
from experiments.memory.networks import LABELS, MIXERS
from experiments.memory.tasks import TASKS
from experiments.memory.training import Trained

CAPTIONS = {
    "counting": "Every history of n bits, run through cells whose carry is rounded to p bits a "
    "number. Black: what counting allows at most; dotted: a hand-made shift register; lines with "
    "marks: a trained Elman cell. On the right, what the best reader of the carry gets right.",
    "lengths": "Share of right answers in the later half of rows that were not learnt from, the "
    "seed that is best on the rows before the longest. Learnt on rows up to the dashed line; "
    "dotted: what answering without looking at the row gets.",
    "training": "Share of right answers on the rows of the update, means of 25 updates and of all "
    "seeds. Rows grow longer in the first half of the training.",
}
SMOOTHED = 25
_STYLES = line_styles(MIXERS)


def counting(
    registers: Sequence[Counted], trained: Sequence[Counted], config: Config, path: Path
) -> None:
    """A column for each number of bits the carry can have."""
    capacities = sorted({one.capacity for one in registers})
    steps = list(range(1, config.history_bits + 1))
    with figure(path, max(5, 2.2 * len(capacities) + 0.8), 4.8) as canvas:
        axes = canvas.subplots(2, len(capacities), sharex=True, sharey="row", squeeze=False)
        for (top, bottom), capacity in zip(axes.T, capacities, strict=True):
            limits = [most_bits_right(capacity, n) for n in steps]
            top.plot(steps, [most_states(capacity, n) for n in steps], color="black", linewidth=3,
                     alpha=0.35, label="most that counting allows")  # fmt: skip
            bottom.plot(steps, limits, color="black", linewidth=3, alpha=0.35)
            _draw_cells(top, bottom, steps, registers, capacity, ":", "")
            _draw_cells(top, bottom, steps, trained, capacity, "-", "o")
            for axis in (top, bottom):
                axis.axvline(capacity, color="gray", linewidth=0.7)
            top.set_title(f"p H = {capacity} bits")
            top.set_yscale("log", base=2)
            bottom.set_xlabel("bits of history n")
        axes[0, 0].set_ylabel("different carries")
        axes[1, 0].set_ylabel("share of bits right")
        handles = {}
        for axis in axes[0]:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)


def _draw_cells(top, bottom, steps, counted, capacity, line, marker):
    colors = dict(zip(dict.fromkeys(one.units for one in counted), PALETTE, strict=False))
    for one in (one for one in counted if one.capacity == capacity):
        style = {"color": colors[one.units], "linestyle": line, "marker": marker, "markersize": 3}
        top.plot(steps, one.states, label=f"{one.kind}, H = {one.units}", **style)
        bottom.plot(steps, one.bits_right, **style)


def lengths(results: Sequence[Trained], config: Config, path: Path) -> None:
    """A panel for each task, a curve for each model."""
    with _panels(config, path) as axes:
        for task, axis in zip(config.tasks, axes, strict=False):
            for one in results:
                axis.plot(config.test_lengths, one.chosen(config, task), **_style(one))
            axis.axvline(config.train_steps, color="gray", linestyle="--", linewidth=0.8)
            axis.axhline(TASKS[task].chance, color="black", linestyle=":", linewidth=0.9)
            axis.set_xscale("log", base=2)
            axis.set_xticks(config.test_lengths, map(str, config.test_lengths))
            axis.set_xlabel("steps of the row")
            axis.set_ylim(-0.03, 1.03)


def training(results: Sequence[Trained], config: Config, path: Path) -> None:
    """A panel for each task, a curve for each model."""
    with _panels(config, path) as axes:
        for task, axis in zip(config.tasks, axes, strict=False):
            for one in results:
                scores = np.mean(one.training_scores[config.places(task)], axis=0)
                smooth = scores.reshape(-1, SMOOTHED).mean(axis=-1)
                updates = SMOOTHED * np.arange(1, len(smooth) + 1)
                axis.plot(updates, smooth, **_style(one) | {"marker": ""})
            axis.set_xlabel("update")
            axis.set_ylim(-0.03, 1.03)


@contextlib.contextmanager
def _panels(config: Config, path: Path) -> Iterator[Any]:
    """Axes for the tasks, and beside the last of them the legend."""
    num_columns = min(3, len(config.tasks) + 1)
    num_rows = -(-(len(config.tasks) + 1) // num_columns)
    with figure(path, 3.3 * num_columns, 2.9 * num_rows) as canvas:
        axes = canvas.subplots(num_rows, num_columns, squeeze=False).ravel()
        yield axes
        for task, axis in zip(config.tasks, axes, strict=False):
            axis.set_title(TASKS[task].label)
            axis.set_ylabel("share of answers right")
        for axis in axes[len(config.tasks) :]:
            axis.axis("off")
        handles, labels = axes[0].get_legend_handles_labels()
        axes[-1].legend(handles, labels, loc="center", fontsize=8)


def _style(one: Trained) -> dict[str, Any]:
    return {"label": LABELS[one.model], **_STYLES[one.model]}
