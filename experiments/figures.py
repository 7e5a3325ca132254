"""How figures look: a palette that colour-blind readers can tell apart, and quiet grids."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito 2008, without yellow, which is too light for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.dpi": 150,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


_DASHES_AND_MARKERS = (("-", "o"), ("--", "s"), (":", "^"))


def line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What `Axes.plot` takes to tell up to 21 curves apart; a name has the style of its place."""
    styles = {}
    for index, name in enumerate(names):
        dashes, marker = _DASHES_AND_MARKERS[index // len(PALETTE)]
        color = PALETTE[index % len(PALETTE)]
        styles[name] = {"color": color, "linestyle": dashes, "marker": marker, "markersize": 3.5}
    return styles


@contextlib.contextmanager
def figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches, written to `path` when the block ends."""
    with matplotlib.rc_context(_STYLE):
        canvas = Figure(figsize=(width, height), layout="constrained")
        yield canvas
        canvas.savefig(path)
