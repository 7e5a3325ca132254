from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.benchmark.config import BASELINE, Config
from experiments.benchmark.measure import ROUNDS_FILE, Measured, rows_to_save
from experiments.benchmark.subjects import BYTES, JAX_PEERS, PRODUCTS
from experiments.benchmark.work import OURS
from experiments.frame.figures import PALETTE, labels_once, new_figure
from experiments.frame.report import Picture, Report
from experiments.frame.stats import median_and_quartiles
from experiments.frame.tables import Table
from experiments.linear_scan import FLOOR

CLAIM = (
    "The abstraction costs a user nothing: jaxrnn trains as fast as the fastest package in JAX and "
    "as torch, in as little memory as the leanest. Ratios above 1 mean that jaxrnn is slower."
)
LAYERS = ("forward", "training")
WIDE = 256
MARKERS = "osD^vPX*h<"

Rows = Sequence[Measured]  # those of one table


def report(config: Config, results: Sequence[Measured]) -> Report:
    goals = targets(results)
    pictures = []
    for part in dict.fromkeys(row.part for row in results):
        draw, what = (draw_ratios, "time of each other subject in units of the first, by case")
        if part == "checkpoints":
            draw, what = (draw_memory_and_time, "temporary memory and time, by what is stored")
        figure = draw([row for row in results if row.part == part])
        pictures.append(Picture(f"benchmark_{part}", figure, f"{part}: {what}."))
    return Report(
        CLAIM,
        pictures=pictures,
        tables=[goals, *(table for rows in grouped(results) for table in _tables(rows))],
        found=[f"{what} by {of}: {reached}." for what, of, _, reached in goals.rows],
        failed=[f"{it} by {of}: {wanted} is wanted." for it, of, wanted, _ in goals.rows if wanted],
        files={ROUNDS_FILE: rows_to_save(results)},
    )


def grouped(results: Sequence[Measured]) -> list[Rows]:
    keys = dict.fromkeys((row.part, row.group) for row in results)
    return [[row for row in results if (row.part, row.group) == key] for key in keys]


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean logarithm."""
    return float(np.exp(np.mean(np.log(list(values)))))


def _subjects(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.run))


def _ratios(rows: Rows) -> dict[str, dict[str, float]]:
    """Of the first subject by each of the others, for each case."""
    first, *others = _subjects(rows)
    return {n: {row.case: row.ratio(first, n) for row in rows if n in row.run} for n in others}


def _tables(rows: Rows) -> Iterator[Table]:
    """Ratios of times round by round, and what XLA tells of memory and compilation."""
    part, group = rows[0].part, rows[0].group
    title, corner = f"{part.capitalize()}, {group}", "B, T, D, H" if part in LAYERS else "case"
    first, *others = _subjects(rows)
    cells = []
    for row in rows:
        ours = row.run[first]
        amount = {"per second": f"{row.amount / np.median(ours):,.0f}"} if row.amount != 1 else {}
        ratios = {name: median_and_quartiles(ours / run) for name, run in row.run.items()}
        cell = {corner: row.case, **amount, f"{first}, ms": median_and_quartiles(1e3 * ours)}
        cells.append(cell | {name: ratios.get(name, "-") for name in others})
    means = {name: f"{geometric_mean(of.values()):.2f}" for name, of in _ratios(rows).items()}
    cells.append({**dict.fromkeys(cells[0], ""), corner: "geometric mean", **means})
    yield Table.of(f"{title}: time of {first} divided by that of each other", cells)
    for what, costs, scale, digits in (
        ("temporary MiB", [row.temporary_mib for row in rows], 1, 1),
        ("compilation, ms", [row.compilation for row in rows], 1e3, 0),
    ):
        known = [n for n in _subjects(rows) if all(np.isfinite(of.get(n, 0)) for of in costs)]
        cells = [
            (row.case, *(f"{scale * of[n]:.{digits}f}" if n in of else "-" for n in known))
            for row, of in zip(rows, costs, strict=True)
        ]
        if known:
            yield Table(f"{title}: {what}", (corner, *known), cells)


def targets(results: Sequence[Measured]) -> Table:
    answers = [
        answer
        for rows in grouped(results)
        for answer in (_of_layers if rows[0].part in LAYERS else _of_part)(rows)
    ]
    columns = ("what", "of", "wanted", "reached")
    return Table("Targets; times are ours divided by theirs", columns, answers, num_names=2)


def _of_part(rows: Rows) -> Iterator[tuple[str, str, str, str]]:
    part, group, ratios = rows[0].part, rows[0].group, _ratios(rows)
    if part == "linear":
        if FLOOR in ratios:
            yield group, "the bytes alone", "1.30 for wide states", _each(ratios[FLOOR])
        return
    for name, of_name in ratios.items():
        if part == BASELINE:
            wanted = "" if group.endswith("forward") else "1.03"
            yield f"{part}, {group}", name, wanted, _mean_and_worst([*of_name.values()])
        elif part == "lengths":
            wanted = "at least 3" if name.startswith("padded") else ""
            times = {case: 1 / value for case, value in of_name.items()}
            yield "steps per second, packed", name, wanted, _each(times)
        else:
            what = "an epoch in one call" if part == "epochs" else f"{part}, {_subjects(rows)[0]}"
            yield what, name, "", _each(of_name)


def _of_layers(rows: Rows) -> Iterator[tuple[str, str, str, str]]:
    def ratios(names, quantity="run", least_units=1):
        """Ours by the lowest median of the names, at each size that has one of them."""
        for row in rows:
            values = getattr(row, quantity)
            there = {name: np.median(values[name]) for name in names if name in values}
            if there and int(row.case.rsplit(", ")[-1]) >= least_units:
                yield row.ratio(OURS, min(there, key=lambda name: there[name]), quantity)

    training = rows[0].part == "training"
    for of, wanted, found in (
        ("the fastest JAX peer of each size", f"{1 / 1.5:.2f}" * training, ratios(JAX_PEERS)),
        ("torch", f"1.00, worst {1 / 0.7:.2f}", ratios(["torch"])),
        (f"{PRODUCTS}, H ≥ {WIDE}", "1.25", ratios([PRODUCTS], least_units=WIDE)),
        (
            "temporary memory, leanest JAX peer",
            "worst 1.00" * training,
            ratios(JAX_PEERS, "temporary_mib"),
        ),
        ("compilation, fastest JAX peer", "1.20" * training, ratios(JAX_PEERS, "compilation")),
    ):
        if numbers := list(found):
            yield f"{rows[0].part}, {rows[0].group}", of, wanted, _mean_and_worst(numbers)


def _mean_and_worst(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.2f}, worst {max(ratios):.2f}"


def _each(ratios: Mapping[str, float]) -> str:
    return "; ".join(f"{value:.2f} ({case})" for case, value in ratios.items())


def draw_ratios(results: Sequence[Measured]) -> Figure:
    """A panel a table: how many times as long as ours every subject took, with its quartiles."""
    tables, names = grouped(results), _subjects(results)
    heights = [len(rows) + 1.5 for rows in tables]
    canvas = new_figure(7.5, 1.0 + 0.3 * sum(heights))
    panels = canvas.subplots(len(tables), squeeze=False, height_ratios=heights, sharex=True)[:, 0]
    for axes, rows in zip(panels, tables, strict=True):
        _draw_rows(axes, rows, names)
    panels[-1].set_xlabel("time, 1 is ours")
    _mark_powers_of_two(panels[-1])
    canvas.legend(*labels_once(panels), loc="outside right upper", fontsize=7)
    return canvas


def _draw_rows(axes: Any, rows: Rows, names: Sequence[str]) -> None:
    first = _subjects(rows)[0]
    axes.axvline(1, color="black", linewidth=0.8)
    for place, row in enumerate(rows):
        for name, run in row.run.items():
            if name in (first, BYTES):  # the bytes alone would squeeze all others
                continue
            number = names.index(name)
            low, middle, high = np.quantile(run / row.run[first], [0.25, 0.5, 0.75])
            axes.errorbar(
                middle,
                place + 0.05 * (number - len(names) / 2),
                xerr=[[middle - low], [high - middle]],
                fmt=MARKERS[number % len(MARKERS)],
                color=PALETTE[number % len(PALETTE)],
                markersize=4,
                linewidth=0.8,
                label=name,
            )
    axes.set(xscale="log", ylim=(len(rows) - 0.4, -0.6), title=f"{rows[0].part}, {rows[0].group}")
    axes.set_yticks(range(len(rows)), [row.case for row in rows], fontsize=7)


def _mark_powers_of_two(axes):
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.48), max(high, 2.1))
    low, high = np.log2(axes.get_xlim())
    powers = range(int(np.ceil(low)), int(np.floor(high)) + 1)
    labels = [str(2**power) if power >= 0 else f"1/{2**-power}" for power in powers]
    axes.set_xticks([2.0**power for power in powers], labels)
    axes.minorticks_off()


def draw_memory_and_time(results: Sequence[Measured]) -> Figure:
    """Temporary memory and time against the number of steps, one line a policy."""
    canvas = new_figure(7.0, 3.2)
    left, right = canvas.subplots(1, 2)
    steps = [int(row.case.replace(",", "")) for row in results]
    for number, name in enumerate(_subjects(results)):
        style = {"color": PALETTE[number], "marker": MARKERS[number], "label": name}
        left.loglog(steps, [row.temporary_mib[name] for row in results], **style)
        right.loglog(steps, [np.median(row.run[name]) for row in results], **style)
    left.set(xlabel="steps T", ylabel="temporary memory (MiB)")
    right.set(xlabel="steps T", ylabel="seconds")
    canvas.legend(*labels_once([left]), loc="outside lower center", ncols=4)
    return canvas
