"""The figures: where the future helps, what is confused, training, and layouts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from experiments.data.source import CLASSES, COMMENT, KEYWORD, NAME, NUMBER, STRING
from experiments.frame.figures import PALETTE, figure, line_styles
from experiments.tagging.model import DIRECTIONS
from experiments.tagging.results import Baselines, Layouts, Tagged, Truth, confusion
from experiments.tagging.verdicts import recall

CAPTIONS = {
    "positions": "Characters told right, by their place in the token; of test files that no model "
    "has seen, the mean of the seeds. Reading forwards, the first characters of a keyword are "
    "those of a name. A place with fewer than 50 characters is left out.",
    "confusion": "Of all characters of a class (row), the share in % that was called what the "
    "column says; all seeds. Shares below 0.05 % are left blank.",
    "training": "Left: accuracy on the validation files by epoch, a line for each seed. Right: "
    "lengths of the paragraphs that are trained on, in equal steps of the logarithm.",
    "layouts": "Left: losses of the same updates, packed and padded. Right: real characters a "
    "processor second of a loss with its gradient; a point is a round.",
}
COLORS: dict[str, str] = dict(zip(DIRECTIONS, PALETTE, strict=False))
SHOWN = (KEYWORD, NAME, NUMBER, STRING, COMMENT)
PLACES, ENOUGH = 12, 50


def positions(truth: Truth, good: Mapping[str, Sequence[Tagged]], path: Path) -> None:
    """A panel for each class of token, a line for each direction."""
    styles = line_styles(DIRECTIONS)
    with figure(path, 11, 3.2) as canvas:
        panels = canvas.subplots(1, len(SHOWN), sharey=True)
        for axes, label in zip(panels, SHOWN, strict=True):
            axes.set(title=CLASSES[label], xlabel="place in the token")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            at = [(truth.labels == label) & (truth.position == place) for place in range(PLACES)]
            kept = [place for place in range(PLACES) if at[place].sum() >= ENOUGH]
            for name, seeds in good.items():
                shares = [recall(truth, seeds, at[place]) for place in kept]
                axes.plot(np.array(kept) + 1, shares, label=name, **styles[name])
        panels[0].set_ylabel("told right (%)")
        handles = panels[0].get_legend_handles_labels()
        canvas.legend(*handles, loc="outside lower center", ncols=2)


def confusions(truth: Truth, good: Mapping[str, Sequence[Tagged]], path: Path) -> None:
    """A matrix for each direction."""
    with figure(path, 11, 5.2) as canvas:
        panels = canvas.subplots(1, len(good), sharey=True, squeeze=False)[0]
        for axes, (name, seeds) in zip(panels, good.items(), strict=True):
            counts = np.sum([confusion(truth.labels, one.predicted) for one in seeds], axis=0)
            shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
            axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
            for row, column in np.argwhere(shares >= 0.05):
                value, color = shares[row, column], "black"
                color = "white" if value > 50 else color
                axes.text(column, row, f"{value:.1f}", ha="center", va="center",
                          color=color, fontsize=7)  # fmt: skip
            axes.set(title=name, xlabel="told")
            axes.set_xticks(range(len(CLASSES)), CLASSES, rotation=45, ha="right")
            axes.set_yticks(range(len(CLASSES)), CLASSES)
            axes.grid(False)
        panels[0].set_ylabel("is")


def training(tagged: Sequence[Tagged], baselines: Baselines, path: Path) -> None:
    """Validation accuracy and the lengths of paragraphs."""
    with figure(path, 9, 3.4) as canvas:
        left, right = canvas.subplots(1, 2)
        for one in tagged:
            values = 100 * one.fitted.history["validation"]
            epochs = np.arange(1, len(values) + 1)
            label = one.direction if one is _first(tagged, one.direction) else None
            left.plot(epochs, values, color=COLORS[one.direction], label=label)
        left.set(xlabel="epoch", ylabel="validation accuracy (%)")
        left.legend()
        edges: Any = np.geomspace(baselines.lengths.min(), baselines.lengths.max(), 25)
        right.hist(baselines.lengths, edges, color="gray")
        right.set(xscale="log", xlabel="characters of a paragraph", ylabel="paragraphs")


def layouts(measured: Sequence[Layouts], path: Path) -> None:
    """Losses of both trainings, and rates."""
    with figure(path, 10, 3.4) as canvas:
        left, right = canvas.subplots(1, 2)
        for one in measured:
            color = COLORS[one.direction]
            for (name, losses), line in zip(one.losses.items(), ("-", "o"), strict=True):
                updates = np.arange(1, len(losses) + 1)
                left.plot(updates, losses, line, color=color, label=f"{one.direction}, {name}")
        left.set(xlabel="update", ylabel="loss (nats a character)")
        left.legend()
        names = [f"{one.direction},\n{layout}" for one in measured for layout in one.slots]
        rates = [(one.direction, one.rate(layout)) for one in measured for layout in one.slots]
        for row, (direction, rate) in enumerate(rates):
            color = COLORS[direction]
            right.barh(row, np.median(rate) / 1e3, color=color, alpha=0.5)
            right.plot(rate / 1e3, np.full(len(rate), row), ".", color=color)
        right.set_yticks(range(len(names)), names)
        right.invert_yaxis()
        right.set_xlabel("real characters a processor second (thousands)")


def _first(tagged, direction):
    return next(one for one in tagged if one.direction == direction)
