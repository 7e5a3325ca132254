"""Latencies and numbers of sessions, as ratios to a bare step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.frame.verdicts import Expectation, Verdict
from experiments.serve.config import Config
from experiments.serve.measure import Results, Served

CLAIM = (
    "Sessions that come and go are rows of one batched step, with a mask of who is present and a "
    "reset of who is new: each gets what it would get alone."
)
TOLERANCE = 1e-4
ALL = Expectation("all sessions", "the largest number of sessions at once without an error")
ALONE = Expectation(
    "alone", f"every answer of every session within {TOLERANCE:g} of the session alone"
)
HARMED = Expectation(
    "hostile visitors", f"with hostile visitors no error, and answers within {TOLERANCE:g}"
)


def judged(results: Results) -> list[Verdict]:
    runs = results.runs
    return [
        ALL.judge(lambda runs: (f"{len(runs[-1].errors)} errors", not runs[-1].errors), runs),
        ALONE.judge(lambda runs: _differences(runs), runs),
        HARMED.judge(lambda run: _differences([run]), results.attacked),
    ]


def _differences(runs: Sequence[Served]) -> tuple[str, bool]:
    worst = max(run.difference for run in runs)
    good = all(not run.errors and run.difference <= TOLERANCE for run in runs)
    return f"largest difference {worst:.1e}", good


def report(config: Config, results: Results) -> Report:
    runs = [*results.runs, *([results.attacked] if results.attacked else [])]
    pictures = []
    if results.runs:
        caption = (
            "Left: from a character to its answer, half and 99 % of the answers, as multiples of a "
            "bare step of the whole batch. Right: characters per second."
        )
        pictures = [Picture("serve", _figure(results), caption)]
    return Report(
        CLAIM,
        verdicts=judged(results),
        pictures=pictures,
        tables=[_table(results, runs)] if runs else [],
        found=_found(config, results),
        failed=[f"{run.sessions} sessions: {error}" for run in runs for error in run.errors[:3]],
        files={"metrics.csv": [_row(results, run) for run in runs]},
    )


def _found(config: Config, results: Results) -> list[str]:
    if results.bits is None:
        return []
    step = f"A bare step of {config.num_rows} rows takes {1e3 * results.step_seconds:.2f} ms."
    return [f"The model predicts with {results.bits:.2f} bits per character.", step]


def _row(results: Results, run: Served) -> dict[str, Any]:
    half, most = np.quantile(run.seconds, [0.5, 0.99]) if len(run.seconds) else (np.nan,) * 2
    return {
        "sessions": run.sessions,
        "hostile": run.hostile,
        "median_ms": 1e3 * half,
        "p99_ms": 1e3 * most,
        "median_steps": half / results.step_seconds,
        "p99_steps": most / results.step_seconds,
        "characters_per_second": run.characters_per_second,
        "sessions_per_second": run.sessions / run.duration,
        "mean_batch": float(run.batch_sizes.mean()),
        "difference": run.difference,
        "errors": len(run.errors),
    }


def _table(results: Results, runs: Sequence[Served]) -> Table:
    rows = []
    for run in runs:
        row = _row(results, run)
        rows.append(
            (
                f"{run.sessions}" + (f" and {run.hostile} hostile" if run.hostile else ""),
                f"{row['median_ms']:.1f} ({row['median_steps']:.0f})",
                f"{row['p99_ms']:.1f} ({row['p99_steps']:.0f})",
                f"{row['characters_per_second']:,.0f}",
                f"{row['sessions_per_second']:.1f}",
                f"{row['mean_batch']:.0f}",
                f"{row['difference']:.1e}",
            )
        )
    columns = ("sessions", "median ms (bare steps)", "99 % ms (bare steps)")
    return Table(
        "From a character to its answer",
        (*columns, "characters/s", "sessions/s", "mean batch", "largest difference"),
        rows,
    )


def _figure(results: Results) -> Figure:
    canvas = new_figure(8.0, 3.2)
    left, right = canvas.subplots(1, 2)
    rows = [_row(results, run) for run in results.runs]
    sessions = [row["sessions"] for row in rows]
    for name, label, color in (
        ("p99_steps", "99 %", PALETTE[1]),
        ("median_steps", "half", PALETTE[0]),
    ):
        left.plot(sessions, [row[name] for row in rows], "o-", color=color, label=label)
    left.axhline(1, color="gray", linewidth=0.8)
    left.set(xscale="log", yscale="log", xlabel="sessions at once", ylabel="bare steps")
    left.set_title("Time from a character to its answer")
    left.legend()
    rates = [row["characters_per_second"] for row in rows]
    right.plot(sessions, rates, "o-", color=PALETTE[2])
    right.set(xscale="log", yscale="log", xlabel="sessions at once", ylabel="characters per second")
    right.set_title("Throughput")
    for axis in (left, right):
        axis.set_xticks(sessions, [str(number) for number in sessions])
        axis.minorticks_off()
    return canvas
