import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.data.topics import ALPHABET
from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.plots import draw_input_sensitivity
from experiments.memorisation.measure import Results, Traced

DECADES = 3  # from the darkest shade to none
DIGITS = 3
TEMPLATE = Path(__file__).with_name("page.html")
COLUMNS = 32
LEAST = 1e-4  # per cent, where the curves by distance end
SHADES = LinearSegmentedColormap.from_list("shades", ["white", "#56B4E9"])


def passage(results: Results) -> Figure:
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
    canvas = new_figure(4.6 * len(results.traced), 3.8)
    panels = canvas.subplots(1, len(results.traced), squeeze=False)[0]
    for axes, one in zip(panels, results.traced, strict=True):
        draw_input_sensitivity(axes, one.strength[0], decades=4)
        axes.set(xlabel="earlier character", ylabel="predicted character")
        axes.set_title(one.model.label)
    return canvas


def reach(results: Results) -> Figure:
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


def interactive_page(results: Results) -> str:
    data = {
        "decades": DECADES,
        "passages": [{"topic": one.topic, "text": one.prompt} for one in results.passages],
        "models": [
            {
                "name": one.model.mixer,
                "label": one.model.label,
                "passages": [_passage(one, index) for index in range(len(results.passages))],
            }
            for one in results.traced
        ],
    }
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    before, after = TEMPLATE.read_text(encoding="utf-8").split("DATA</script>")
    return f"{before}{text}</script>{after}"


def shares_of_largest(strength: np.ndarray) -> np.ndarray:
    """A row of strengths as shares of its largest, with `DIGITS` digits; all 0 if it is."""
    largest = strength.max(initial=0)
    return np.array([_short(value / largest) if largest else 0 for value in strength])


def _passage(one: Traced, index: int) -> dict[str, Any]:
    pairs = zip(one.likeliest[index], one.probabilities[index], strict=True)
    return {
        "bits": float(-np.log2(one.truth[index]).mean()),
        "rows": [shares_of_largest(row[:t]).tolist() for t, row in enumerate(one.strength[index])],
        "likeliest": [
            [(ALPHABET[token], _short(chance)) for token, chance in zip(*both, strict=True)]
            for both in pairs
        ],
        "truth": [_short(chance) for chance in one.truth[index]],
    }


def _short(share) -> float:
    return float(f"{share:.{DIGITS}g}")
