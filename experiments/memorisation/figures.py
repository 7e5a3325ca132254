"""The figures: a passage as the page shows it, maps of it, and how far back models reach."""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.plots import draw_input_sensitivity
from experiments.memorisation.measure import Results
from experiments.memorisation.page import DECADES, shares_of_largest

COLUMNS = 32
LEAST = 1e-4  # per cent, where the curves by distance end
SHADES = LinearSegmentedColormap.from_list("shades", ["white", "#56B4E9"])


def passage(results: Results) -> Figure:
    """The first passage, pointed at one character, in all models."""
    text, traced = results.passages[0].prompt, results.traced
    at, num_rows = pointed_at(text), -(-len(text) // COLUMNS)
    canvas = new_figure(4.2 * len(traced), 1.2 + 0.27 * num_rows)
    panels = canvas.subplots(1, len(traced), squeeze=False)[0]
    for axes, one in zip(panels, traced, strict=True):
        shares = shares_of_largest(one.strength[0, at, :at])
        levels = np.full(num_rows * COLUMNS, -DECADES, float)
        levels[:at] = np.log10(np.maximum(shares, 10.0**-DECADES))
        grid = levels.reshape(num_rows, COLUMNS)
        image = axes.imshow(grid, cmap=SHADES, vmin=-DECADES, vmax=0, aspect=2)
        for t, character in enumerate(text.replace("\n", "⏎")):
            style = {"weight": "bold", "color": PALETTE[1]} if t == at else {}
            place = t % COLUMNS, t // COLUMNS
            axes.text(*place, character, ha="center", va="center", family="monospace", **style)
        row, column = divmod(at, COLUMNS)
        corner = column - 0.5, row - 0.5
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=PALETTE[1], linewidth=1.6))
        bits = -np.log2(one.truth[0]).mean()
        axes.set_title(f"{one.model.label} ({bits:.2f} bits per character here)")
        axes.set(xticks=[], yticks=[])
        axes.grid(False)
    label = "log₁₀ of the gradient, as a share of the largest"
    canvas.colorbar(image, ax=panels, location="bottom", shrink=0.3, aspect=30, label=label,
                    extend="min")  # fmt: skip
    return canvas


def pointed_at(text: str) -> int:
    """A place in the last quarter to point at: the third letter of a word if there is one."""
    start = len(text) - len(text) // 4
    for t in range(start, len(text)):
        if text[t - 2 : t + 1].isalpha() and not text[t - 3].isalpha():
            return t
    return len(text) - 1


def maps(results: Results) -> Figure:
    """All predictions of the first passage by all characters of it."""
    canvas = new_figure(4.6 * len(results.traced), 3.8)
    panels = canvas.subplots(1, len(results.traced), squeeze=False)[0]
    for axes, one in zip(panels, results.traced, strict=True):
        draw_input_sensitivity(axes, one.strength[0], decades=4)
        axes.set(xlabel="earlier character", ylabel="predicted character")
        axes.set_title(one.model.label)
    return canvas


def reach(results: Results) -> Figure:
    """The share of the dependence by distance, and what lies further back than a distance."""
    canvas = new_figure(10, 4)
    left, right = canvas.subplots(1, 2)
    for one, color in zip(results.traced, PALETTE, strict=False):
        shares = one.by_distance()
        places, look = np.arange(1, len(shares) + 1), {"color": color, "label": one.model.label}
        left.plot(places, 100 * np.where(shares > 0, shares, np.nan), **look)
        right.plot(places, 100 * (1 - np.cumsum(shares)), **look)
    left.set(yscale="log", ylabel="share of the gradient (%)", ylim=(LEAST, None))
    right.set(ylabel="share from further back (%)", ylim=(0, None))
    for axes in (left, right):
        axes.set(xscale="log", xlabel="characters back")
        axes.legend()
    return canvas
