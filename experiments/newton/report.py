"""Tables and figures of the iterations."""

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.newton.config import Config
from experiments.newton.measure import METHODS, Results, Solved, chosen, counts, mean_exponent
from experiments.newton.texts import ACCURACY, COUNTS, KINDS, Read

CLAIM = (
    "Newton's method solves all steps of a nonlinear cell at once, by linear scans. It converges "
    "in few iterations where the cell forgets, and not where its trajectories part."
)


NAMES = {"full": "full Jacobian", "undamped": "always the whole J", "diagonal": "its diagonal"}


def report(config: Config, results: Results) -> Report:
    caption = "Iterations against the length, and the Lyapunov exponent."
    found, failed = _of_scaled(results.scaled)
    tables = [_table(config, results.scaled, method) for method in METHODS]
    pictures = [Picture("newton", _figure(config, results.scaled), caption)]
    if results.read:
        caption = f"Residuals on {config.text_steps:,} characters, before and after training."
        pictures.append(Picture("newton_texts", _figure_of_texts(results.read), caption))
        tables.append(_table_of_texts(config, results.read))
        for one in results.read:
            if one.cell.startswith("para"):
                what = f"{one.label}, {one.parameters}: {one.shown} iterations to {ACCURACY:.0e}."
                within = one.iterations is not None and one.iterations <= 4
                (found if within else failed).append(what)
    rows = [one._asdict() | {"depth": one.depth} for one in results.scaled]
    files = {"metrics.csv": rows, "texts.csv": [_row_of_text(one) for one in results.read]}
    return Report(CLAIM, pictures=pictures, tables=tables, found=found, failed=failed, files=files)


def _of_scaled(results):
    found, failed = [], []
    for method, (name, side) in itertools.product(METHODS, (("negative", -1), ("positive", 1))):
        runs = [one for one in chosen(results, method=method) if one.exponent * side > 0]
        if runs:
            count = sum(one.converged for one in runs)
            line = f"{NAMES[method]}, {name} Lyapunov exponent: {count} of {len(runs)} "
            (found if count == len(runs) else failed).append(f"{line}runs converged.")
    if slower := [one.ratio for one in results if one.converged]:
        found.append(
            f"On this machine a run that converged took {np.median(slower):.0f} times as "
            "long as a loop over the steps (median)."
        )
    return found, failed


def _row_of_text(one):
    row = one._asdict() | {"iterations": one.shown}
    residuals = row.pop("residuals")
    named = zip(COUNTS, residuals, strict=True)
    return row | {f"residual_{count}": residual for count, residual in named}


def _table_of_texts(config: Config, results: Sequence[Read]) -> Table:
    columns = {
        "cell": lambda one: one.label,
        "parameters": lambda one: one.parameters,
        "bits": lambda one: f"{one.bits:.2f}",
        "exponent": lambda one: f"{one.exponent:+.2f}",
        **{
            f"after {count}": lambda one, place=place: f"{one.residuals[place]:.0e}"
            for place, count in enumerate(COUNTS)
        },
        f"to {ACCURACY:.0e}": lambda one: one.shown,
        "sequential ms": lambda one: f"{1e3 * one.sequential_seconds:.1f}",
        "newton ms": lambda one: f"{1e3 * one.seconds:.1f}",
    }
    title = f"Residuals on 8 texts of {config.text_steps:,} characters, {config.text_units} units"
    return Table.by_columns(title, results, columns, num_names=2)


def _figure_of_texts(results: Sequence[Read]) -> Figure:
    canvas = new_figure(8.0, 3.2)
    panels = canvas.subplots(1, len(KINDS), sharey=True)
    labels = list(dict.fromkeys(one.label for one in results))
    for one in results:
        color = PALETTE[labels.index(one.label)]
        # A residual of exactly zero has no place on a logarithmic axis.
        heights = np.maximum(one.residuals, 1e-8)
        panels[KINDS.index(one.parameters)].plot(
            COUNTS, heights, "o-", color=color, label=one.label, markersize=4
        )
    for panel, title in zip(panels, KINDS, strict=True):
        panel.axhline(ACCURACY, color="gray", linewidth=0.7)
        panel.set(title=title, xlabel="iterations", yscale="log")
    panels[0].set(ylabel="largest residual")
    panels[0].legend(fontsize=7)
    return canvas


def _difference(runs):
    differences = [one.difference for one in runs if one.converged]
    return f"{max(differences):.0e}" if differences else "-"


def _milliseconds(name):
    return lambda runs: f"{1e3 * np.median([getattr(one, name) for one in runs]):.1f}"


def _table(config, results, method):
    groups = (
        chosen(results, scale=scale, num_steps=num_steps, method=method)
        for scale, num_steps in itertools.product(config.scales, config.lengths)
    )
    columns = {
        "scale": lambda runs: f"{runs[0].scale:g}",
        "exponent": mean_exponent,
        "T": lambda runs: f"{runs[0].num_steps:,}",
        "iterations": counts,
        "depth": lambda runs: f"{max(one.depth for one in runs):,}",
        "difference": _difference,
        "sequential ms": _milliseconds("sequential_seconds"),
        "newton ms": _milliseconds("seconds"),
        "ratio": lambda runs: f"{np.median([one.ratio for one in runs]):.0f}",
    }
    title = f"{NAMES[method]}, a GRU of {config.num_units} units"
    return Table.by_columns(title, filter(None, groups), columns, num_names=0)


def _figure(config: Config, results: Sequence[Solved]) -> Figure:
    canvas = new_figure(8.0, 3.6)
    left, right = canvas.subplots(1, 2, sharey=True)
    full = chosen(results, method="full")
    for scale, color in zip(config.scales, itertools.cycle(PALETTE), strict=False):
        slowest: dict[int, Solved] = {}
        for one in sorted(chosen(full, scale=scale), key=lambda one: one[5:7]):
            slowest[one.num_steps] = one
        worst = [slowest[num_steps] for num_steps in sorted(slowest)]
        _mark(left, worst, "num_steps", "o", 6, color, f"scale {scale:g}")
        left.plot([one.num_steps for one in worst], [one.iterations for one in worst], color=color)
    for method, color, marker, size in zip(METHODS, PALETTE, "o^s", (4, 6, 8), strict=False):
        runs = chosen(results, num_steps=config.lengths[-1], method=method)
        _mark(right, runs, "exponent", marker, size, color, NAMES[method])
    right.plot([], [], "o", color="gray", markerfacecolor="white", label="not converged")
    right.axvline(0, color="gray", linewidth=0.7)
    left.set(title="full Jacobian, slowest seed", xlabel="steps T", ylabel="iterations")
    left.set_xscale("log", base=2)
    left.set_yscale("log", base=2)
    title = f"T = {config.lengths[-1]:,}, every seed"
    right.set(title=title, xlabel="largest Lyapunov exponent (nats per step)")
    left.legend(fontsize=7, ncols=2, loc=(0.54, 0.3))
    right.legend(fontsize=7)
    return canvas


def _mark(axis, runs, place, marker, size, color, label):
    """The iterations of all runs; hollow where they were not enough."""
    for one in runs:
        face = color if one.converged else "white"
        style = {"color": color, "markerfacecolor": face, "markersize": size}
        axis.plot(getattr(one, place), one.iterations, marker, zorder=9 - size, **style)
    axis.plot([], [], marker, color=color, markersize=size, label=label)
