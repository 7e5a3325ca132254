import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.cost.config import Config
from experiments.cost.expect import QUANTITIES, Curves, curves, judged
from experiments.cost.measure import GIB, Measured, Results
from experiments.cost.model import ATTENTION, JUDGED_AT_END, SHOWN, Simple
from experiments.frame.figures import labels_once, line_styles, new_figure
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table

CLAIM = (
    "An RNN and a state space stream with a carry of fixed size and constant time a token, and "
    "train in time and memory proportional to T: constant memory in streaming is not constant "
    "memory in training. Full attention keeps every step, and trains in T². Which of them is the "
    "fastest at a given T is a question of constants, which the curves show for two CPU cores."
)
CAPTION = (
    "Points: measured. Lines: predicted from shapes, with one constant fitted on the upper half of "
    "the lengths (for the carry none). Training memory is XLA's plan, so it is known where the "
    "gradient was not run."
)


def report(config: Config, results: Results) -> Report:
    of_cell = Report(CLAIM, judged(config, results), tables=[_formulas(results.simple)])
    if not results.models:
        return of_cell
    found = curves(results)
    rows = list(itertools.chain(*results.models.values()))
    values = [_values(config, results, key) for key in QUANTITIES]
    return of_cell._replace(
        pictures=[Picture("cost", draw(found), CAPTION)],
        tables=[*of_cell.tables, _growth(results, found), *values],
        found=[*_streaming(results), *_faster(results)],
        failed=[
            f"{SHOWN[one.model]} at T = {one.num_steps:,} was compiled and not run: XLA plans "
            f"{_gib(one)} of temporary memory, above --memory-bound."
            for one in rows
            if not one.was_run
        ],
        files={"metrics.csv": map(_row, rows)},
    )


def _formulas(one: Simple) -> Table:
    rows = [
        ("parameters: HD + H² + H + CH + C", f"{one.params:,}", f"{one.counted_params:,}", "-"),
        (
            "multiply-adds: T (HD + H² + CH)",
            f"{one.work:,}",
            f"{one.counted_work:,}",
            f"{one.compiled_work:,.0f}",
        ),
    ]
    letters = ", ".join(f"{letter} = {value}" for letter, value in one.sizes.items())
    columns = ("of a simple cell with a readout", "formula", "counted", "half of XLA's operations")
    return Table(f"Formulas and counts at {letters}", columns, rows)


def _growth(results: Results, found: Curves) -> Table:
    def exponents(key):
        def cell(one):
            curve = found[key][one.model]
            return f"{_slope(curve.exponent)} ({_slope(curve.predicted_exponent)})"

        return cell

    columns = {
        "model": lambda one: SHOWN[one.model],
        "width": lambda one: f"{one.counted.width:.0f}",
        "parameters": lambda one: f"{one.counted.num_params:,.0f}",
        **{quantity.name: exponents(key) for key, quantity in QUANTITIES.items()},
    }
    title = "Exponents of T on the upper half of the lengths: measured (predicted)"
    return Table.by_columns(title, [rows[0] for rows in results.models.values()], columns)


def _slope(exponent: float) -> str:
    """Two digits, and no -0.00."""
    return f"{round(exponent, 2) + 0.0:.2f}"


def _values(config: Config, results: Results, key: str) -> Table:
    quantity = QUANTITIES[key]

    def value(one):
        if key == "training_time" and not one.was_run:
            return f"not run: would need {_gib(one)}"
        return f"{one.numbers()[quantity.measured] / quantity.per_unit:.3g}"

    how = f", {config.clock} clock, median of {config.rounds} interleaved rounds"
    title = f"{quantity.name.capitalize()} ({quantity.unit}){how if 'time' in key else ''}"
    of_lengths = zip(*results.models.values(), strict=True)
    cells = [(f"{rows[0].num_steps:,}", *map(value, rows)) for rows in of_lengths]
    return Table(title, ("T", *(SHOWN[name] for name in results.models)), cells)


def _gib(one: Measured) -> str:
    return f"{one.counted.training_bytes / GIB:.1f} GiB"


def _row(one: Measured) -> dict[str, Any]:
    rounds = {"training_rounds": one.training_seconds, "token_rounds": one.token_seconds}
    return {"model": one.model, "num_steps": one.num_steps, **one.numbers()} | {
        name: " ".join(f"{value:.6g}" for value in values) for name, values in rounds.items()
    }


def draw(found: Curves) -> Figure:
    canvas = new_figure(10, 7)
    axes = canvas.subplots(2, 2, sharex=True)
    for axis, (key, quantity) in zip(axes.flat, QUANTITIES.items(), strict=True):
        styles = line_styles(found[key])
        for name, one in found[key].items():
            color, solid = styles[name]["color"], styles[name]["linestyle"] == "-"
            axis.plot(one.all_lengths, one.predicted, color=color, linewidth=1)
            style = {"color": color, "marker": styles[name]["marker"], "linestyle": "none"}
            style |= {"markersize": 4, "markerfacecolor": color if solid else "white"}
            axis.plot(one.lengths, one.measured, label=SHOWN[name], **style)
        axis.set(yscale="log", title=quantity.name, ylabel=f"{quantity.name} ({quantity.unit})")
        axis.set_xscale("log", base=2)
    for axis in axes[-1]:
        axis.set_xlabel("steps T")
    canvas.legend(*labels_once([axes[0, 0]]), loc="outside upper center", ncols=4)
    return canvas


def _streaming(results: Results) -> Iterator[str]:
    for name in ("elman", "lstm", "lru"):
        if len(results.models.get(name, ())) > 1:
            short, *_, long = results.models[name]
            yield (
                f"{SHOWN[name]} streams with {long.counted.carry_bytes / 1024:.2f} KiB at every T, "
                f"but training takes {short.counted.training_bytes / 2**20:.2g} MiB at "
                f"T = {short.num_steps:,} and {long.counted.training_bytes / 2**20:.3g} MiB at "
                f"T = {long.num_steps:,}."
            )


def _faster(results: Results) -> Iterator[str]:
    attention = [one for one in results.models.get(ATTENTION, ()) if one.was_run]
    for name, rows in results.models.items():
        if attention and name not in (ATTENTION, *JUDGED_AT_END):
            faster = [
                its.num_steps
                for its, other in zip(rows, attention, strict=False)  # of the shorter lengths
                if np.median(its.training_seconds) < np.median(other.training_seconds)
            ]
            where = f"from T = {min(faster):,} on" if faster else "at no T that both were run at"
            yield f"{SHOWN[name]} trains faster than attention {where}."
