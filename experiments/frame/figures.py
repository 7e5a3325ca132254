"""How figures look: a palette that colour-blind readers can tell apart, and quiet grids."""

from collections.abc import Callable, Iterable
from typing import Any

import matplotlib
import numpy as np
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


def style() -> Any:
    return matplotlib.rc_context(_STYLE)


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def labels_once(axes: Iterable[Any]) -> tuple[list[Any], list[str]]:
    """Handles and labels for a legend of several panels, each label once."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return list(handles.values()), list(handles)


def share_y_limits(axes: Iterable[Any]) -> None:
    """Gives all panels the same limits, so that they can be compared by eye."""
    axes = list(axes)
    limits = [axis.get_ylim() for axis in axes]
    for axis in axes:
        axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def draw_seeds(
    axes: Any,
    values: np.ndarray,
    failed: np.ndarray | None,
    color: str,
    label: str | None,
    *,
    xs: Any = None,
    line: str = "-",
    middle: Callable[..., Any] = np.mean,
) -> None:
    """Thin lines for seeds `[S, N]`, a cross where one failed, and the middle of the others."""
    failed = np.zeros(len(values), bool) if failed is None else failed
    xs = np.arange(1, values.shape[1] + 1) if xs is None else xs
    axes.plot(xs, values.T, color=color, linewidth=0.6, alpha=0.4)
    for seed in values[failed]:
        finite = np.flatnonzero(np.isfinite(seed))
        last = finite[-1] if len(finite) else 0
        axes.plot(xs[last], seed[last], "x", color=color)
    if not failed.all():
        axes.plot(xs, middle(values[~failed], axis=0), line, color=color, label=label)
