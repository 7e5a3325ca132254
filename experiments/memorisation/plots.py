"""The figures: a passage as the page shows it, maps of it, and how far back models reach."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from experiments.frame.figures import PALETTE, figure
from experiments.frame.models import LABELS
from experiments.frame.plots import draw_input_sensitivity
from experiments.memorisation.interactive import DECADES, shares_of_largest
from experiments.memorisation.results import Chosen, Traced

COLUMNS = 32
LEAST = 1e-4  # per cent, where the curves by distance end
SHADES = LinearSegmentedColormap.from_list("shades", ["white", "#56B4E9"])


def passage(chosen: Chosen, traced: Sequence[Traced], path: Path) -> None:
    """The first passage, pointed at one character, in all models."""
    text = chosen.passages[0].prompt
    at = pointed_at(text)
    num_rows = -(-len(text) // COLUMNS)
    with figure(path, 4.2 * len(traced), 1.2 + 0.27 * num_rows) as canvas:
        for axes, one in zip(np.ravel(canvas.subplots(1, len(traced))), traced, strict=True):
            shares = shares_of_largest(one.connections.strength[0, at, :at])
            levels = np.zeros(num_rows * COLUMNS)
            levels[:at] = 1 + np.log10(np.maximum(shares, 10.0**-DECADES)) / DECADES
            grid = levels.reshape(num_rows, COLUMNS)
            image = axes.imshow(DECADES * (grid - 1), cmap=SHADES, vmin=-DECADES, vmax=0, aspect=2)
            for t, character in enumerate(text):
                row, column = divmod(t, COLUMNS)
                shown = {"\n": "⏎"}.get(character, character)
                style = {"weight": "bold", "color": PALETTE[1]} if t == at else {}
                axes.text(column, row, shown, ha="center", va="center", family="monospace", **style)
            row, column = divmod(at, COLUMNS)
            box = [-0.5, 0.5, 0.5, -0.5, -0.5], [-0.5, -0.5, 0.5, 0.5, -0.5]
            axes.plot(column + np.array(box[0]), row + np.array(box[1]), color=PALETTE[1])
            bits = -np.log2(one.connections.truth[0]).mean()
            axes.set_title(f"{LABELS[one.model.mixer]} ({bits:.2f} bits per character here)")
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
        canvas.colorbar(
            image,
            ax=canvas.axes,
            location="bottom",
            shrink=0.3,
            aspect=30,
            label="log₁₀ of the gradient, as a share of the largest",
            extend="min",
        )


def pointed_at(text: str) -> int:
    """A place in the last quarter to point at: the third letter of a word if there is one."""
    start = len(text) - len(text) // 4
    for t in range(start, len(text)):
        if text[t - 2 : t + 1].isalpha() and not text[t - 3].isalpha():
            return t
    return len(text) - 1


def maps(traced: Sequence[Traced], path: Path) -> None:
    """All predictions of the first passage by all characters of it."""
    with figure(path, 4.6 * len(traced), 3.8) as canvas:
        for axes, one in zip(np.ravel(canvas.subplots(1, len(traced))), traced, strict=True):
            draw_input_sensitivity(axes, one.connections.strength[0], decades=4)
            axes.set(xlabel="earlier character", ylabel="predicted character")
            axes.set_title(LABELS[one.model.mixer])


def reach(traced: Sequence[Traced], path: Path) -> None:
    """The share of the dependence by distance, and what lies further back than a distance."""
    with figure(path, 10, 4) as canvas:
        left, right = canvas.subplots(1, 2)
        for one, color in zip(traced, PALETTE, strict=False):
            shares = one.by_distance()
            places = np.arange(1, len(shares) + 1)
            look = {"color": color, "label": LABELS[one.model.mixer]}
            left.plot(places, 100 * np.where(shares > 0, shares, np.nan), **look)
            right.plot(places, 100 * (1 - np.cumsum(shares)), **look)
        left.set(xscale="log", yscale="log", ylabel="share of the gradient (%)", ylim=(LEAST, None))
        right.set(xscale="log", ylabel="share from further back (%)", ylim=(0, None))
        for axes in (left, right):
            axes.set_xlabel("characters back")
            axes.legend()
