"""Tables, files, the figure and the page."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cost.config import Config
from experiments.cost.expectations import curves, verdicts
from experiments.cost.formulas import Simple
from experiments.cost.growth import QUANTITIES, Curve, Quantity
from experiments.cost.measuring import GIB, Measured
from experiments.cost.models import ATTENTION, SHOWN, judged_at_end
from experiments.frame.figures import figure, line_styles
from experiments.frame.legacy import Page, Picture
from experiments.frame.run_folder import RunFolder
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import verdict_rows, verdicts_table, what_failed

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


def report(config: Config, results: Sequence[Any], folder: RunFolder) -> Page:
    """Writes rows, the figure and the tables of what was measured, and prints the tables."""
    lines = verdicts(config, results)
    folder.write_json("verdicts.json", verdict_rows(lines))
    rows = [one for one in results if isinstance(one, Measured)]
    tables = [verdicts_table("What was expected, and what was measured", lines)]
    tables += [_formula_table(one) for one in results if isinstance(one, Simple)]
    pictures, found = [], []
    if rows:
        folder.write_csv("metrics.csv", [_row(one) for one in rows])
        made = curves(results)
        tables.append(_growth_table(rows, made))
        tables += [_values_table(config, rows, key) for key in QUANTITIES]
        draw(made, folder.path("cost.png"))
        pictures.append(Picture("cost.png", CAPTION))
        found += list(_sentences(config, rows))
    folder.write_text("summary.md", "\n".join(["# cost\n", *map(markdown, tables)]))
    for table in tables:
        show(table)
    done = [line for line in lines if line.passed is not None]
    held = sum(bool(line.passed) for line in done)
    found.insert(0, f"{held} of {len(done)} expectations held.")
    return Page("cost", CLAIM, tables, pictures, found, [*what_failed(lines), *_not_run(rows)])


def _formula_table(one: Simple) -> Table:
    rows = [
        ("parameters: HD + H² + H + CH + C", f"{one.params:,}", f"{one.counted_params:,}", "-"),
        (
            "multiply-adds: T (HD + H² + CH)",
            f"{one.work:,}",
            f"{one.counted_work:,}",
            f"{one.compiled_work:,.0f}",
        ),
    ]
    letters = ", ".join(f"{k} = {v}" for k, v in zip("DHCT", one.sizes, strict=True))
    columns = ("of a simple cell with a readout", "formula", "counted", "half of XLA's operations")
    return Table(f"Formulas and counts at {letters}", columns, rows)


def _growth_table(rows: Sequence[Measured], made: Mapping[str, Mapping[str, Curve]]) -> Table:
    cells = []
    for name in dict.fromkeys(one.model for one in rows):
        counted = next(one.counted for one in rows if one.model == name)
        exponents = [made[key][name] for key in QUANTITIES]
        cells.append(
            (
                SHOWN[name],
                f"{counted.width:.0f}",
                f"{counted.num_params:,.0f}",
                *(f"{_slope(e.exponent)} ({_slope(e.predicted_exponent)})" for e in exponents),
            )
        )
    columns = ("model", "width", "parameters", *(one.name for one in QUANTITIES.values()))
    title = "Exponents of T on the upper half of the lengths: measured (predicted)"
    return Table(title, columns, cells)


def _slope(exponent: float) -> str:
    """Two digits, and no -0.00."""
    return f"{round(exponent, 2) + 0.0:.2f}"


def _values_table(config: Config, rows: Sequence[Measured], key: str) -> Table:
    quantity = QUANTITIES[key]
    models = list(dict.fromkeys(one.model for one in rows))
    at = {(one.model, one.num_steps): one for one in rows}
    lengths = sorted({one.num_steps for one in rows})
    cells = [
        (f"{length:,}", *(_cell(at.get((name, length)), key, quantity) for name in models))
        for length in lengths
    ]
    title = f"{quantity.name.capitalize()} ({quantity.unit})"
    title += (
        ""
        if key.endswith("memory")
        else f", {config.clock} clock, median of {config.rounds} interleaved rounds"
    )
    return Table(title, ("T", *(SHOWN[name] for name in models)), cells)


def _cell(one: Measured | None, key: str, quantity: Quantity) -> str:
    if one is None:
        return "-"
    if key == "training_time" and not one.was_run:
        return f"not run: would need {one.counted.training_bytes / GIB:.1f} GiB"
    return f"{quantity.measured(one):.3g}"


def _row(one: Measured) -> dict[str, Any]:
    middle = {
        name: float(np.median(values))
        for name, values in (
            ("training_seconds", one.training_seconds),
            ("token_seconds", one.token_seconds),
        )
    }
    rounds = {
        "training_rounds": " ".join(f"{value:.6g}" for value in one.training_seconds),
        "token_rounds": " ".join(f"{value:.6g}" for value in one.token_seconds),
    }
    names = {"model": one.model, "num_steps": one.num_steps}
    return names | one.counted._asdict() | middle | rounds


def draw(made: Mapping[str, Mapping[str, Curve]], path: Path) -> None:
    """A panel for each quantity."""
    with figure(path, 10, 7) as canvas:
        axes = canvas.subplots(2, 2, sharex=True)
        for axis, (key, quantity) in zip(axes.flat, QUANTITIES.items(), strict=True):
            styles = line_styles(made[key])
            for name, one in made[key].items():
                color, marker = styles[name]["color"], styles[name]["marker"]
                axis.plot(one.all_lengths, one.predicted, color=color, linewidth=1)
                axis.plot(
                    one.lengths,
                    one.measured,
                    marker,
                    color=color,
                    markersize=4,
                    label=SHOWN[name],
                    markerfacecolor=color if styles[name]["linestyle"] == "-" else "white",
                )
            axis.set(yscale="log", title=quantity.name)
            axis.set_xscale("log", base=2)
            axis.set_ylabel(f"{quantity.name} ({quantity.unit})")
        for axis in axes[-1]:
            axis.set_xlabel("steps T")
        canvas.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)


def _sentences(config: Config, rows: Sequence[Measured]) -> Iterator[str]:
    first, longest = min(one.num_steps for one in rows), max(one.num_steps for one in rows)
    at = {(one.model, one.num_steps): one for one in rows}
    for name in ("elman", "lstm", "lru"):
        if {(name, first), (name, longest)} <= set(at):
            short, long = at[name, first].counted, at[name, longest].counted
            yield (
                f"{SHOWN[name]} streams with {long.carry_bytes / 1024:.2f} KiB at every T, but "
                f"training takes {short.training_bytes / 2**20:.2g} MiB at T = {first:,} and "
                f"{long.training_bytes / 2**20:.3g} MiB at T = {longest:,}."
            )
    others = [n for n in config.models if n != ATTENTION and not judged_at_end(n)]
    for name in others:
        pairs = [
            (length, at[name, length], at[ATTENTION, length])
            for length in config.lengths
            if {(name, length), (ATTENTION, length)} <= set(at) and at[ATTENTION, length].was_run
        ]
        faster = [length for length, *two in pairs if _seconds(two[0]) < _seconds(two[1])]
        if pairs:
            where = f"from T = {min(faster):,} on" if faster else "at no T that both were run at"
            yield f"{SHOWN[name]} trains faster than attention {where}."


def _seconds(one: Measured) -> float:
    return float(np.median(one.training_seconds))


def _not_run(rows: Sequence[Measured]) -> list[str]:
    return [
        f"{SHOWN[one.model]} at T = {one.num_steps:,} was compiled and not run: XLA plans "
        f"{one.counted.training_bytes / GIB:.1f} GiB of temporary memory, above --memory-bound."
        for one in rows
        if not one.was_run
    ]
