"""What the benchmark writes: every round, tables of ratios, targets and a figure a part."""

from typing import Any

import numpy as np

from experiments.benchmark import checkpoints, plots, saved
from experiments.benchmark.measured import Measured
from experiments.benchmark.ratios import (
    compilation,
    distinct,
    geometric_mean,
    ratio,
    rows_of,
    run_times,
    tables_of,
    temporary_memory,
)
from experiments.benchmark.targets import targets
from experiments.frame.legacy import Page, Picture
from experiments.frame.stats import median_and_quartiles
from experiments.frame.tables import Table, markdown, show

CLAIM = (
    "A user pays nothing for the abstraction: jaxrnn trains as fast as the fastest peer in JAX and "
    "as torch, in the memory of the leanest. Ratios above 1 mean that jaxrnn is slower."
)
OTHERS = (
    ("temporary MiB", temporary_memory, "{:.1f}", 1),
    ("compilation, ms", compilation, "{:.0f}", 1e3),
)


def report(config: Any, results: list[Measured], folder: Any) -> Page:
    """Writes and shows it."""
    folder.write_csv(saved.FILE, saved.rows_to_save(results))
    goals = targets(results)
    sections, pictures = [], []
    for part in distinct(result.part for result in results):
        of_part = [result for result in results if result.part == part]
        for measured in tables_of(of_part):
            sections += [run_table(measured), *other_tables(measured)]
        figure = f"benchmark_{part}.png"
        draw = plots.memory_and_time if part == checkpoints.PART else plots.ratios
        draw(of_part, folder.path(figure))
        pictures.append(Picture(figure, f"{part}, each case and their geometric mean."))
    for table in (*sections, goals):
        show(table)
    folder.write_text("summary.md", "\n".join(map(markdown, (goals, *sections))))
    found = [f"{what} by {of}: {reached}." for what, of, _, reached in goals.rows]
    aims = [f"{what} by {of}: {wanted} is wanted." for what, of, wanted, _ in goals.rows if wanted]
    return Page("benchmark", CLAIM, [goals, *sections], pictures, found, aims)


def run_table(table: list[Measured]) -> Table:
    """Milliseconds of the first subject and its ratio to each of the others, round by round."""
    rows = rows_of(table)
    first, *others = distinct(result.subject for result in table)
    cells = []
    for case, row in rows.items():
        ours = row[first]
        amount = "" if ours.amount == 1 else f"{ours.amount / np.median(ours.run):,.0f}"
        ratios = [
            median_and_quartiles(ours.run / row[name].run) if name in row else "-"
            for name in others
        ]
        cells.append((case, amount, median_and_quartiles(1e3 * ours.run), *ratios))
    cells.append(("geometric mean", "", "", *(_mean(rows, first, name) for name in others)))
    columns = (_corner(table), "a second", f"{first}, ms", *others)
    if not any(cell[1] for cell in cells):
        columns, cells = (columns[0], *columns[2:]), [(c[0], *c[2:]) for c in cells]
    title = f"{table[0].part}, {table[0].group}: {first} by each of the others, time"
    return Table(title, columns, cells)


def other_tables(table: list[Measured]) -> list[Table]:
    """Temporary memory and compilation, where XLA tells them."""
    rows, tables = rows_of(table), []
    for what, value, form, scale in OTHERS:
        known = [r.subject for r in table if np.isfinite(value(r)).all()]
        names = distinct(known)
        if not names:
            continue
        cells = [
            (case, *(form.format(scale * value(row[n])[0]) if n in row else "-" for n in names))
            for case, row in rows.items()
        ]
        title = f"{table[0].part}, {table[0].group}: {what}"
        tables.append(Table(title, (_corner(table), *names), cells))
    return tables


def _corner(table):
    return "B, T, D, H" if table[0].part in ("forward", "training") else "case"


def _mean(rows, first, name):
    there = [row for row in rows.values() if name in row]
    return f"{geometric_mean(ratio(row, first, name, run_times) for row in there):.2f}"
