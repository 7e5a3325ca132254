"""The table and the figure of what was measured."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.models import KINDS, MODELS
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.rounding.config import Config
from experiments.rounding.measure import Rounded

CLAIM = (
    "The error of float32 against float64 stays where it is over a long sequence when a model "
    "forgets, and grows when it does not."
)
SHOWN = (1, 16, 256, 4096)


def report(config: Config, results: Sequence[Rounded]) -> Report:
    """Which error is the largest, and what is not finite."""
    worst = max(results, key=lambda result: result.errors[-1])
    bad = [result.model for result in results if result.not_finite or result.extreme]
    caption = "Relative error of float32 outputs against the step."
    return Report(
        CLAIM,
        pictures=[Picture("rounding", _figure(results), caption)],
        tables=[_table(config, results)],
        found=[f"Largest error at the end: {worst.model}, {worst.errors[-1]:.0e}."],
        failed=[f"{name}: numbers that are not finite." for name in bad],
        files={"metrics.csv": _rows(results)},
    )


def _rows(results: Sequence[Rounded]) -> Iterator[dict[str, Any]]:
    for result in results:
        bad = {"not_finite": result.not_finite, "extreme_not_finite": result.extreme}
        for time, error in zip(result.times, result.errors, strict=True):
            yield {"model": result.model, "t": int(time), "error": float(error)} | bad


def _table(config: Config, results: Sequence[Rounded]) -> Table:
    shown = [time for time in results[0].times if time in (*SHOWN, config.num_steps)]
    rows = []
    for result in results:
        errors = dict(zip(result.times, result.errors, strict=True))
        cells = [f"{errors[time]:.1e}" for time in shown]
        rows.append((result.model, *cells, str(result.not_finite), str(result.extreme)))
    columns = ("model", *(f"t = {time:,}" for time in shown))
    title = "Relative error of float32 outputs, and numbers that are not finite"
    return Table(title, (*columns, "not finite", "bfloat16, extreme"), rows)


def _figure(results: Sequence[Rounded]) -> Figure:
    canvas = new_figure(8.0, 3.6)
    by_kind = {kind: [one for one in results if MODELS[one.model].kind == kind] for kind in KINDS}
    by_kind = {kind: chosen for kind, chosen in by_kind.items() if chosen}
    axes = canvas.subplots(1, len(by_kind), sharey=True, squeeze=False)[0]
    looks = [(color, style) for style in ("-", "--") for color in PALETTE]
    for axis, (kind, chosen) in zip(axes, by_kind.items(), strict=True):
        for result, (color, style) in zip(chosen, looks, strict=False):
            axis.plot(result.times, result.errors, style, color=color, label=result.model)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.axhline(float(np.finfo(np.float32).eps), color="gray", linewidth=0.7)
        axis.set(xlabel="step t", title=kind)
        axis.legend(fontsize=7, loc="upper left")
    axes[0].set_ylabel("relative error within (t/2, t]")
    return canvas
