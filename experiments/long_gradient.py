"""A gradient through a million steps: what two-level rematerialisation costs and saves."""

import dataclasses
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import jaxrnn as jr
from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.options import Count, Options, RisingCounts
from experiments.frame.progress import progress_bar
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.frame.timing import temporary_mib

CLAIM = (
    "The gradient of an LSTM reaches through a million steps on an ordinary machine: carries are "
    "kept at about √T steps and computed again in between, which costs one more forward pass."
)
EVALUATORS = {"two levels": jr.sequential(checkpoint="sqrt"), "plain": jr.sequential()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """The gradient of an LSTM over long sequences: memory and time, plain and in two levels.

    For each length the gradient is compiled both ways and XLA's temporary memory is noted; both
    run, but for the longest length, where only the two-level one does. All two-level ones run
    before the plain ones, so that the peak of the process up to there is theirs. At the shortest
    length both gradients are compared in float64.
    """

    QUICK = {"lengths": (1024, 4096, 16384)}

    lengths: RisingCounts = (4096, 16384, 65536, 262144, 1000000)
    """Steps of the sequences."""
    num_units: Count = 32
    """Units of the LSTM, and features of its input."""


class Gradient(NamedTuple):
    """One gradient."""

    num_steps: int
    evaluator: str
    temporary_mib: float  # temporary memory, as XLA plans it
    seconds: float | None  # of one run; None: compiled only
    peak_mib: float  # the largest resident memory of the process until then
    difference: float | None  # from the other gradient in float64, relative to its largest entry


def measure(config: Config) -> Iterator[list[Gradient]]:
    shortest, longest = config.lengths[0], config.lengths[-1]
    difference, results = _largest_difference(shortest, config.num_units), []
    with progress_bar(2 * sum(config.lengths) - longest) as bar:
        for name in EVALUATORS:
            for num_steps in config.lengths:
                bar.stage(f"{num_steps} steps, {name}")
                runs = name == "two levels" or num_steps < longest
                measured = _gradient(num_steps, config.num_units, name, runs)
                compared = difference if num_steps == shortest else None
                results = [*results, Gradient(num_steps, name, *measured, compared)]
                bar.advance(num_steps if runs else 0)
                bar.finish_stage(f"{num_steps} steps, {name}: {measured[0]:.0f} MiB")
                yield results


def _problem(num_steps, num_units, name, dtype):
    cell = jr.lstm(num_units, param_dtype=dtype)

    def loss(params, xs):
        return (jr.unroll(cell, params, xs, evaluator=EVALUATORS[name]).outputs ** 2).mean()

    params = cell.init(jax.random.key(0), num_units)
    xs = jax.random.normal(jax.random.key(1), (1, num_steps, num_units), dtype)
    return jax.jit(jax.grad(loss)), params, xs


def _gradient(num_steps, num_units, name, runs):
    gradient_fn, *args = _problem(num_steps, num_units, name, jnp.float32)
    compiled = gradient_fn.lower(*args).compile()
    seconds = None
    if runs:
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        seconds = time.perf_counter() - start
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return temporary_mib(compiled), seconds, peak_kib / 1024


def _largest_difference(num_steps, num_units):
    with jax.enable_x64(True):
        gradients = []
        for name in ("plain", "two levels"):
            gradient_fn, *args = _problem(num_steps, num_units, name, jnp.float64)
            gradients.append(gradient_fn(*args))
        differences = jax.tree.map(
            lambda plain, other: jnp.abs(plain - other).max() / jnp.abs(plain).max(), *gradients
        )
        return float(max(jax.tree.leaves(differences)))


def report(config: Config, results: Sequence[Gradient]) -> Report:
    caption = "Temporary memory of the gradient against the number of steps, as XLA plans it."
    title = f"Gradient of an LSTM-{config.num_units}, batch 1"
    by_name = {name: [one for one in results if one.evaluator == name] for name in EVALUATORS}
    found = [
        f"At {results[0].num_steps:,} steps in float64 the two gradients differ by at most "
        f"{results[0].difference:.1e}, relative to the largest entry of each parameter."
    ]
    for name, (first, *_, last) in ((name, 2 * some) for name, some in by_name.items() if some):
        steps, memory = last.num_steps / first.num_steps, last.temporary_mib / first.temporary_mib
        found.append(f"{name}: {steps:.0f} times the steps took {memory:.0f} times the memory.")
    columns: dict[str, Callable[[Gradient], str]] = {
        "steps": lambda one: f"{one.num_steps:,}",
        "evaluator": lambda one: one.evaluator,
        "temporary MiB": lambda one: f"{one.temporary_mib:.1f}",
        "seconds": lambda one: "not run" if one.seconds is None else f"{one.seconds:.2f}",
        "peak until then MiB": lambda one: f"{one.peak_mib:.0f}",
    }
    return Report(
        CLAIM,
        pictures=[Picture("memory", _figure(f"{title}, as XLA plans it", by_name), caption)],
        tables=[Table.by_columns(title, results, columns, num_names=2)],
        found=found,
        files={"results.csv": [one._asdict() for one in results]},
    )


def _figure(title: str, by_name: Mapping[str, Sequence[Gradient]]) -> Figure:
    canvas = new_figure(6.0, 3.6)
    axes = canvas.subplots()
    for (name, chosen), color, marker in zip(by_name.items(), PALETTE, "os", strict=False):
        steps = [one.num_steps for one in chosen]
        memory = [one.temporary_mib for one in chosen]
        axes.loglog(steps, memory, color=color, marker=marker, label=name)
    axes.set(xlabel="steps T", ylabel="temporary memory (MiB)", title=title)
    axes.legend()
    return canvas
