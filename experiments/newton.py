"""When Newton's method on a whole sequence converges: a GRU from forgetful to chaotic."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

import jaxrnn as jr
from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.options import POSITIVE, Count, Options, RisingCounts, each
from experiments.frame.progress import progress_bar
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.frame.timing import interleaved_seconds
from jaxrnn.diagnostics import lyapunov_exponents

CLAIM = (
    "Newton's method solves all steps of a nonlinear cell at once, by linear scans. It converges "
    "in few iterations where the cell forgets, and not where its trajectories part."
)
JACOBIANS = ("full", "diagonal")
SEQUENTIAL = "sequential"
TRANSIENT = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Iterations of `newton()` against T and against the largest Lyapunov exponent.

    The recurrent kernel of a fresh GRU is multiplied by a scale; the inputs are white noise. Each
    run is one sequence, with the exponent of the same parameters over the longest sequence beside
    it. Wall time is that of this machine, next to the sequential evaluation of the same sequence.
    """

    QUICK = {"lengths": (64, 256, 1024), "scales": (0.5, 2.0, 8.0), "seeds": 2, "rounds": 1}

    lengths: RisingCounts = (64, 256, 1024, 4096, 16384)
    """Steps of the sequences."""
    scales: Annotated[tuple[float, ...], each(POSITIVE)] = (0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 8.0)
    """Factors of the recurrent kernel."""
    num_units: Count = 8
    """Units of the GRU."""
    num_features: Count = 4
    """Input features."""
    seeds: Count = 3
    """Draws of parameters and inputs."""
    max_iterations: Count = 100
    """Where the method gives up."""
    rounds: Count = 2
    """How often each run is timed."""


class Solved(NamedTuple):
    """One sequence solved by Newton's method."""

    scale: float
    seed: int
    exponent: float  # the largest Lyapunov exponent, nats per step
    num_steps: int
    jacobian: str  # one of `JACOBIANS`
    iterations: int  # how many linear scans were made; enough if it `converged`
    converged: bool
    difference: float  # largest difference of an output from the sequential one
    seconds: float  # median wall time over rounds, beside that of the sequential evaluation
    sequential_seconds: float

    @property
    def depth(self) -> int:
        """Compositions one after another on a parallel machine: 2 log₂ T in a scan."""
        return self.iterations * 2 * math.ceil(math.log2(max(2, self.num_steps)))

    @property
    def ratio(self) -> float:
        return self.seconds / self.sequential_seconds

    @property
    def shown(self) -> str:
        """The iterations, or more than those where they were not enough."""
        return f"{'' if self.converged else '>'}{self.iterations}"


def measure(config: Config) -> Iterator[list[Solved]]:
    cell, results = jr.gru(config.num_units), []
    with progress_bar(len(config.scales) * config.seeds * sum(config.lengths)) as bar:
        for scale in config.scales:
            bar.stage(f"scale {scale:g}")
            for seed in range(config.seeds):
                params, xs = _problem(config, cell, scale, seed)
                first = min(TRANSIENT, len(xs) // 2)
                (exponent,) = lyapunov_exponents(
                    cell, params, xs, num_exponents=1, num_transient_steps=first
                )
                for num_steps in config.lengths:
                    about = scale, seed, float(exponent), num_steps
                    solved = _solve(config, cell, params, xs[:num_steps])
                    results = [*results, *(Solved(*about, *values) for values in solved)]
                    bar.advance(num_steps)
                    yield results
            longest = _chosen(results, scale=scale, num_steps=config.lengths[-1], jacobian="full")
            what = f"exponent {_exponent(longest)}, iterations {_counts(longest)}"
            bar.finish_stage(f"scale {scale:g}: {what}")


def _problem(config, cell, scale, seed):
    keys = jax.random.split(jax.random.key(seed), 2)
    params = cell.init(keys[0], config.num_features)
    params = params._replace(recurrent_kernel=scale * params.recurrent_kernel)
    return params, jax.random.normal(keys[1], (config.lengths[-1], config.num_features))


def _solve(config, cell, params, xs):
    """What `Solved` holds from `jacobian` on, for each of them."""
    unroll = functools.partial(jr.unroll, cell, params, xs)
    calls = {SEQUENTIAL: functools.partial(unroll, evaluator=jr.sequential())}
    for jacobian in JACOBIANS:
        newton = jr.newton(max_iterations=config.max_iterations, jacobian=jacobian)
        calls[jacobian] = functools.partial(unroll, evaluator=newton)
    seconds = interleaved_seconds(calls, config.rounds)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    expected = np.asarray(calls[SEQUENTIAL]().outputs)
    for jacobian in JACOBIANS:
        rollout = calls[jacobian]()
        iterations, converged = int(rollout.info.iterations), bool(rollout.info.converged)
        difference = float(np.max(np.abs(np.asarray(rollout.outputs) - expected)))
        yield jacobian, iterations, converged, difference, medians[jacobian], medians[SEQUENTIAL]


def _chosen(results: Sequence[Solved], **names: Any) -> list[Solved]:
    return [one for one in results if names.items() <= one._asdict().items()]


def report(config: Config, results: Sequence[Solved]) -> Report:
    caption = "Iterations against the length, and the Lyapunov exponent."
    found, failed = [], []
    for jacobian, (name, side) in itertools.product(JACOBIANS, (("negative", -1), ("positive", 1))):
        runs = [one for one in _chosen(results, jacobian=jacobian) if one.exponent * side > 0]
        if runs:
            count = sum(one.converged for one in runs)
            line = f"{jacobian} Jacobian, {name} Lyapunov exponent: {count} of {len(runs)} "
            (found if count == len(runs) else failed).append(f"{line}runs converged.")
    if slower := [one.ratio for one in results if one.converged]:
        found.append(
            f"On this machine a run that converged took {np.median(slower):.0f} times as "
            "long as a loop over the steps (median)."
        )
    return Report(
        CLAIM,
        pictures=[Picture("newton", _figure(config, results), caption)],
        tables=[_table(config, results, jacobian) for jacobian in JACOBIANS],
        found=found,
        failed=failed,
        files={"metrics.csv": [one._asdict() | {"depth": one.depth} for one in results]},
    )


def _counts(runs):
    return " ".join(one.shown for one in runs)


def _exponent(runs):
    return f"{np.mean([one.exponent for one in runs]):+.2f}"


def _difference(runs):
    differences = [one.difference for one in runs if one.converged]
    return f"{max(differences):.0e}" if differences else "-"


def _milliseconds(name):
    return lambda runs: f"{1e3 * np.median([getattr(one, name) for one in runs]):.1f}"


def _table(config, results, jacobian):
    groups = (
        _chosen(results, scale=scale, num_steps=num_steps, jacobian=jacobian)
        for scale, num_steps in itertools.product(config.scales, config.lengths)
    )
    columns = {
        "scale": lambda runs: f"{runs[0].scale:g}",
        "exponent": _exponent,
        "T": lambda runs: f"{runs[0].num_steps:,}",
        "iterations": _counts,
        "depth": lambda runs: f"{max(one.depth for one in runs):,}",
        "difference": _difference,
        "sequential ms": _milliseconds("sequential_seconds"),
        "newton ms": _milliseconds("seconds"),
        "ratio": lambda runs: f"{np.median([one.ratio for one in runs]):.0f}",
    }
    title = f"newton(jacobian='{jacobian}'), a GRU of {config.num_units} units"
    return Table.by_columns(title, filter(None, groups), columns, num_names=0)


def _figure(config: Config, results: Sequence[Solved]) -> Figure:
    canvas = new_figure(8.0, 3.6)
    left, right = canvas.subplots(1, 2, sharey=True)
    full = _chosen(results, jacobian="full")
    for scale, color in zip(config.scales, itertools.cycle(PALETTE), strict=False):
        slowest: dict[int, Solved] = {}
        for one in sorted(_chosen(full, scale=scale), key=lambda one: one[5:7]):
            slowest[one.num_steps] = one
        worst = [slowest[num_steps] for num_steps in sorted(slowest)]
        _mark(left, worst, "num_steps", "o", 6, color, f"scale {scale:g}")
        left.plot([one.num_steps for one in worst], [one.iterations for one in worst], color=color)
    for jacobian, color, marker, size in zip(JACOBIANS, PALETTE, "os", (4, 7), strict=False):
        runs = _chosen(results, num_steps=config.lengths[-1], jacobian=jacobian)
        _mark(right, runs, "exponent", marker, size, color, f"{jacobian} Jacobian")
    right.plot([], [], "o", color="gray", markerfacecolor="white", label="not converged")
    right.axvline(0, color="gray", linewidth=0.7)
    left.set(title="full Jacobian, slowest seed", xlabel="steps T", ylabel="iterations")
    left.set_xscale("log", base=2)
    left.set_yscale("log", base=2)
    title = f"T = {config.lengths[-1]:,}, every seed"
    right.set(title=title, xlabel="largest Lyapunov exponent (nats per step)")
    for axis in (left, right):
        axis.legend(fontsize=7)
    return canvas


def _mark(axis, runs, place, marker, size, color, label):
    """The iterations of all runs; hollow where they were not enough."""
    for one in runs:
        face = color if one.converged else "white"
        style = {"color": color, "markerfacecolor": face, "markersize": size}
        axis.plot(getattr(one, place), one.iterations, marker, zorder=9 - size, **style)
    axis.plot([], [], marker, color=color, markersize=size, label=label)
