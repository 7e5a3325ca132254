"""What the project wants of its speed and memory, beside what was measured."""

from collections.abc import Iterator

from experiments.benchmark import checkpoints, epochs, lengths, linear, streaming
from experiments.benchmark.measured import Measured
from experiments.benchmark.ratios import (
    compilation,
    geometric_mean,
    lowest,
    ratio,
    rows_of,
    tables_of,
    temporary_memory,
)
from experiments.benchmark.subjects import JAX_PEERS, OURS, PRODUCTS
from experiments.frame.tables import Table
from experiments.linear_scan import FLOOR
from experiments.linear_scan import OURS as LINEAR_SCAN

WIDE = 256


def targets(results: list[Measured]) -> Table:
    """One row a question that the results can answer."""
    rows = [row for table in tables_of(results) for row in _answers(table)]
    columns = ("what", "of", "wanted", "reached")
    return Table("Targets; times as ours by theirs", columns, rows, num_names=2)


def _answers(table: list[Measured]) -> Iterator[tuple[str, str, str, str]]:
    part, group = table[0].part, table[0].group
    rows = rows_of(table)
    if part in ("forward", "training"):
        yield from _layer_answers(f"{part}, {group}", rows, part == "training")
    elif part == linear.PART and group.startswith("linear_scan"):
        ratios = {case: ratio(row, LINEAR_SCAN, FLOOR) for case, row in rows.items()}
        yield group, "the bytes alone", "1.30 for wide states", _each(ratios)
    elif part == lengths.PART:
        for name in next(iter(rows.values())):
            if name != lengths.OURS:
                ratios = {case: 1 / ratio(row, lengths.OURS, name) for case, row in rows.items()}
                wanted = "at least 3" if name.startswith("padded") else ""
                yield "steps a second, packed", name, wanted, _each(ratios)
    elif part == epochs.PART:
        ratios = {case: ratio(r, epochs.OURS, epochs.A_CALL_A_STEP) for case, r in rows.items()}
        yield "an epoch in one call", epochs.A_CALL_A_STEP, "", _each(ratios)
    elif part in (streaming.PART, checkpoints.PART):
        first = next(iter(rows.values()))
        ours = next(iter(first))
        for name in first:
            if name != ours:
                ratios = {case: ratio(row, ours, name) for case, row in rows.items()}
                yield f"{part}, {ours}", name, "", _each(ratios)


def _layer_answers(what, rows, is_training):
    fastest = [ratio(row, OURS, lowest(row, JAX_PEERS)) for row in rows.values()]
    wanted = f"{1 / 1.5:.2f}" if is_training else ""
    yield what, "the fastest JAX peer of each size", wanted, _mean_and_worst(fastest)
    if all("torch" in row for row in rows.values()):
        torch = [ratio(row, OURS, "torch") for row in rows.values()]
        yield what, "torch", f"1.00, worst {1 / 0.7:.2f}", _mean_and_worst(torch)
    wide = [row for case, row in rows.items() if int(case.rsplit(", ")[-1]) >= WIDE]
    if wide:
        products = [ratio(row, OURS, PRODUCTS) for row in wide]
        yield what, f"{PRODUCTS}, H ≥ {WIDE}", "1.25", _mean_and_worst(products)
    for name, value, wanted in (
        ("temporary memory, leanest JAX peer", temporary_memory, "worst 1.00"),
        ("compilation, fastest JAX peer", compilation, "1.20"),
    ):
        ratios = [ratio(r, OURS, lowest(r, JAX_PEERS, value), value) for r in rows.values()]
        yield what, name, wanted if is_training else "", _mean_and_worst(ratios)


def _mean_and_worst(ratios):
    return f"{geometric_mean(ratios):.2f}, worst {max(ratios):.2f}"


def _each(ratios):
    return "; ".join(f"{value:.2f} ({case})" for case, value in ratios.items())
