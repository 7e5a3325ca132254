"""When Newton's method on a whole sequence converges: a GRU from forgetful to chaotic."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import jaxrnn as jr
from experiments.frame.errors import ExperimentError
from experiments.frame.figures import PALETTE, figure
from experiments.frame.legacy import Page, Picture
from experiments.frame.progress import progress_bar
from experiments.frame.tables import Table, markdown, show
from experiments.frame.timing import interleaved_seconds
from jaxrnn.diagnostics import lyapunov_exponents

JACOBIANS = ("full", "diagonal")
TRANSIENT = 100


@dataclasses.dataclass(frozen=True)
class Config:
    """Iterations of `newton()` against T and against the largest Lyapunov exponent.

    The recurrent kernel of a fresh GRU is multiplied by a scale; the inputs are white noise. Each
    run is one sequence, with the exponent of the same parameters over the longest sequence beside
    it. Wall time is that of this machine, next to the sequential evaluation of the same sequence.
    """

    lengths: tuple[int, ...] = (64, 256, 1024, 4096, 16384)
    """Steps of the sequences."""
    scales: tuple[float, ...] = (0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 8.0)
    """Factors of the recurrent kernel."""
    num_units: int = 8
    """Units of the GRU."""
    num_features: int = 4
    """Input features."""
    seeds: int = 3
    """Draws of parameters and inputs."""
    max_iterations: int = 100
    """Where the method gives up."""
    rounds: int = 2
    """How often each run is timed."""
    out: Path | None = None
    """A new folder to write to; runs/newton/TIME when left out."""
    quick: bool = False
    """A short form: up to 1024 steps."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        scales = (0.5, 2.0, 8.0)
        return cls(lengths=(64, 256, 1024), scales=scales, seeds=2, rounds=1, quick=True)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        rising = all(a < b for a, b in zip(self.lengths, self.lengths[1:], strict=False))
        if not self.lengths or self.lengths[0] < 1 or not rising:
            shown = " ".join(map(str, self.lengths)) or "nothing"
            raise ExperimentError(f"--lengths must rise from at least 1, got {shown}")
        if not self.scales or not all(0 < scale < math.inf for scale in self.scales):
            shown = " ".join(map(str, self.scales)) or "nothing"
            raise ExperimentError(f"--scales must be above 0 and finite, got {shown}")
        for name in ("num_units", "num_features", "seeds", "max_iterations", "rounds"):
            if getattr(self, name) < 1:
                option = f"--{name.replace('_', '-')}"
                raise ExperimentError(f"{option} must be at least 1, got {getattr(self, name)}")


class Solved(NamedTuple):
    """One sequence solved by Newton's method.

    Attributes:
        scale: Of the recurrent kernel.
        seed: Of parameters and inputs.
        exponent: The largest Lyapunov exponent, nats per step.
        num_steps: T.
        jacobian: "full" or "diagonal".
        iterations: Linear scans.
        converged: Whether that was enough.
        difference: Largest difference of an output to the sequential one.
        seconds: Wall time, the median over rounds.
        sequential_seconds: The same for the sequential evaluation.
    """

    scale: float
    seed: int
    exponent: float
    num_steps: int
    jacobian: str
    iterations: int
    converged: bool
    difference: float
    seconds: float
    sequential_seconds: float

    @property
    def depth(self) -> int:
        """Compositions one after another on a parallel machine: 2 log₂ T in a scan."""
        return self.iterations * 2 * math.ceil(math.log2(max(2, self.num_steps)))


def measure(config: Config) -> Iterator[Solved]:
    """Solves the sequences of one scale after the other."""
    cell = jr.gru(config.num_units)
    runs = len(config.scales) * config.seeds
    with progress_bar(runs * sum(config.lengths)) as bar:
        for scale in config.scales:
            bar.stage(f"scale {scale:g}")
            longest = []
            for seed in range(config.seeds):
                params, xs = _problem(config, cell, scale, seed)
                exponent = _largest_exponent(cell, params, xs)
                for num_steps in config.lengths:
                    solved = _solve(config, cell, params, xs[:num_steps])
                    results = [Solved(scale, seed, exponent, *values) for values in solved]
                    bar.advance(num_steps)
                    yield from results
                longest.append(results[0])
            counts = " ".join(_iterations(result) for result in longest)
            exponent = np.mean([result.exponent for result in longest])
            bar.finish_stage(f"scale {scale:g}: exponent {exponent:.2f}, iterations {counts}")


def _problem(config, cell, scale, seed):
    keys = jax.random.split(jax.random.key(seed), 2)
    params = cell.init(keys[0], config.num_features)
    params = params._replace(recurrent_kernel=scale * params.recurrent_kernel)
    return params, jax.random.normal(keys[1], (config.lengths[-1], config.num_features))


def _largest_exponent(cell, params, xs):
    transient = min(TRANSIENT, len(xs) // 2)
    return float(
        lyapunov_exponents(cell, params, xs, num_exponents=1, num_transient_steps=transient)[0]
    )


def _solve(config, cell, params, xs):
    """What `Solved` holds from `num_steps` on, for each Jacobian."""
    evaluators = {"sequential": jr.sequential()} | {
        jacobian: jr.newton(max_iterations=config.max_iterations, jacobian=jacobian)
        for jacobian in JACOBIANS
    }
    calls = {
        name: lambda evaluator=evaluator: jr.unroll(cell, params, xs, evaluator=evaluator)
        for name, evaluator in evaluators.items()
    }
    expected = np.asarray(calls["sequential"]().outputs)
    seconds = interleaved_seconds(calls, config.rounds)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    for jacobian in JACOBIANS:
        rollout = calls[jacobian]()
        yield (
            len(xs),
            jacobian,
            int(rollout.info.iterations),
            bool(rollout.info.converged),
            float(np.max(np.abs(np.asarray(rollout.outputs) - expected))),
            medians[jacobian],
            medians["sequential"],
        )


def report(config: Config, results: list[Solved], folder) -> Page:
    """Writes the tables and the figure, and shows the tables."""
    tables = [_table(config, results, jacobian) for jacobian in JACOBIANS]
    for table in tables:
        show(table)
    rows = [result._asdict() | {"depth": result.depth} for result in results]
    folder.write_csv("metrics.csv", rows)
    text = "\n".join(map(markdown, tables))
    folder.write_text("summary.md", f"{text}\n![](newton.png)\n")
    _plot(config, results, folder.path("newton.png"))
    claim = (
        "Newton's method solves all steps of a nonlinear cell at once, by linear scans. It "
        "converges in few iterations where the cell forgets, and not where its trajectories part."
    )
    picture = Picture("newton.png", "Iterations against the length, and the Lyapunov exponent.")
    return Page("newton", claim, tables, [picture], *_sentences(results))


def _sentences(results):
    """What converged, and what did not."""
    found, failed = [], []
    for jacobian in JACOBIANS:
        chosen = [result for result in results if result.jacobian == jacobian]
        for name, side in (("negative", -1), ("positive", 1)):
            runs = [result for result in chosen if result.exponent * side > 0]
            if runs:
                count = sum(result.converged for result in runs)
                line = f"{jacobian} Jacobian, {name} Lyapunov exponent: {count} of {len(runs)} "
                (found if count == len(runs) else failed).append(f"{line}runs converged.")
    slower = [r.seconds / r.sequential_seconds for r in results if r.converged]
    if slower:
        found.append(
            f"On this machine a run that converged took {np.median(slower):.0f} times as "
            "long as a loop over the steps (median)."
        )
    return found, failed


def _iterations(result):
    return str(result.iterations) if result.converged else f">{result.iterations}"


def _difference(results):
    """The largest difference of the runs that converged."""
    differences = [result.difference for result in results if result.converged]
    return f"{max(differences):.0e}" if differences else "-"


def _table(config, results, jacobian):
    rows = []
    for scale in config.scales:
        for num_steps in config.lengths:
            chosen = [
                result
                for result in results
                if (result.scale, result.num_steps, result.jacobian) == (scale, num_steps, jacobian)
            ]
            if not chosen:
                continue
            ratios = [result.seconds / result.sequential_seconds for result in chosen]
            rows.append(
                (
                    f"{scale:g}",
                    f"{np.mean([result.exponent for result in chosen]):+.2f}",
                    f"{num_steps:,}",
                    " ".join(_iterations(result) for result in chosen),
                    f"{max(result.depth for result in chosen):,}",
                    _difference(chosen),
                    f"{1e3 * np.median([result.sequential_seconds for result in chosen]):.1f}",
                    f"{1e3 * np.median([result.seconds for result in chosen]):.1f}",
                    f"{np.median(ratios):.0f}",
                )
            )
    columns = ("scale", "exponent", "T", "iterations", "depth", "difference")
    columns += ("sequential ms", "newton ms", "ratio")
    title = f"newton(jacobian='{jacobian}'), a GRU of {config.num_units} units"
    return Table(title, columns, rows, num_names=0)


def _plot(config, results, path):
    with figure(path, 8.0, 3.6) as canvas:
        axes = canvas.subplots(1, 2, sharey=True)
        _plot_lengths(config, results, axes[0])
        _plot_exponents(config, results, axes[1])
        axes[0].set_ylabel("iterations")
        axes[0].set_title("full Jacobian, slowest seed")
        axes[1].set_title(f"T = {config.lengths[-1]:,}, every seed")


def _plot_lengths(config, results, axis):
    full = [result for result in results if result.jacobian == "full"]
    for scale, color in zip(config.scales, PALETTE, strict=False):
        worst = [
            max(
                (result for result in full if (result.scale, result.num_steps) == (scale, steps)),
                key=lambda result: (not result.converged, result.iterations),
                default=None,
            )
            for steps in config.lengths
        ]
        worst = [result for result in worst if result is not None]
        steps = [result.num_steps for result in worst]
        axis.plot(steps, [result.iterations for result in worst], color=color)
        for result in worst:
            face = color if result.converged else "white"
            axis.plot(result.num_steps, result.iterations, "o", color=color, markerfacecolor=face)
        axis.plot([], [], "o-", color=color, label=f"scale {scale:g}")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_xlabel("steps T")
    axis.legend(fontsize=7)


def _plot_exponents(config, results, axis):
    for jacobian, color, marker, size in zip(JACOBIANS, PALETTE, "os", (4, 7), strict=False):
        for result in results:
            if result.num_steps == config.lengths[-1] and result.jacobian == jacobian:
                face = color if result.converged else "white"
                style = {"color": color, "markerfacecolor": face, "markersize": size}
                axis.plot(result.exponent, result.iterations, marker, **style)
        axis.plot([], [], marker, color=color, markersize=size, label=f"{jacobian} Jacobian")
    axis.plot([], [], "o", color="gray", markerfacecolor="white", label="not converged")
    axis.axvline(0, color="gray", linewidth=0.7)
    axis.set_xlabel("largest Lyapunov exponent (nats per step)")
    axis.legend(fontsize=7)
