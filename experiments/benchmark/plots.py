"""The figures of the benchmark."""

from pathlib import Path

import numpy as np

from experiments.benchmark.measured import Measured
from experiments.benchmark.ratios import distinct, rows_of, tables_of
from experiments.benchmark.subjects import BYTES
from experiments.frame.figures import PALETTE, figure

MARKERS = "osD^vPX*h<"


def ratios(results: list[Measured], path: Path) -> None:
    """A panel a table: how many times as long as ours every subject took, with its quartiles."""
    tables = tables_of(results)
    subjects = distinct(result.subject for result in results)
    heights = [len(rows_of(table)) + 1.5 for table in tables]
    with figure(path, 7.5, 1.0 + 0.3 * sum(heights)) as canvas:
        panels = canvas.subplots(len(tables), squeeze=False, height_ratios=heights, sharex=True)
        for axes, table in zip(panels[:, 0], tables, strict=True):
            _panel(axes, table, subjects)
        panels[-1, 0].set_xlabel("time, 1 is ours")
        _mark_powers_of_two(panels[-1, 0])
        handles = {}
        for axes in panels[:, 0]:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        canvas.legend(handles.values(), handles, loc="outside right upper", fontsize=7)


def _panel(axes, table, subjects):
    rows = rows_of(table)
    first = table[0].subject
    axes.axvline(1, color="black", linewidth=0.8)
    for place, row in enumerate(rows.values()):
        ours = row[first]
        for name, result in row.items():
            if name in (first, BYTES):  # the bytes alone would squeeze all others
                continue
            number = subjects.index(name)
            low, middle, high = np.quantile(result.run / ours.run, [0.25, 0.5, 0.75])
            axes.errorbar(
                middle,
                place + 0.05 * (number - len(subjects) / 2),
                xerr=[[middle - low], [high - middle]],
                fmt=MARKERS[number % len(MARKERS)],
                color=PALETTE[number % len(PALETTE)],
                markersize=4,
                linewidth=0.8,
                label=name,
            )
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), list(rows), fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(f"{table[0].part}, {table[0].group}")


def _mark_powers_of_two(axes):
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.48), max(high, 2.1))
    low, high = np.log2(axes.get_xlim())
    powers = range(int(np.ceil(low)), int(np.floor(high)) + 1)
    labels = [str(2**power) if power >= 0 else f"1/{2**-power}" for power in powers]
    axes.set_xticks([2.0**power for power in powers], labels)
    axes.minorticks_off()


def memory_and_time(results: list[Measured], path: Path) -> None:
    """Temporary memory and time against the number of steps, one line a policy."""
    with figure(path, 7.0, 3.2) as canvas:
        left, right = canvas.subplots(1, 2)
        for number, name in enumerate(distinct(result.subject for result in results)):
            chosen = [result for result in results if result.subject == name]
            steps = [int(result.case.replace(",", "")) for result in chosen]
            style = {"color": PALETTE[number], "marker": MARKERS[number], "label": name}
            left.loglog(steps, [result.temporary_mib for result in chosen], **style)
            right.loglog(steps, [np.median(result.run) for result in chosen], **style)
        for axes, what in ((left, "temporary memory (MiB)"), (right, "seconds")):
            axes.set_xlabel("steps T")
            axes.set_ylabel(what)
        canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
