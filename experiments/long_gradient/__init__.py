"""A gradient through a million steps: what two-level rematerialisation costs and saves."""

import dataclasses
import math
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

import jaxrnn as jr
from experiments.frame.errors import ExperimentError
from experiments.frame.figures import PALETTE, figure
from experiments.frame.legacy import Page, Picture
from experiments.frame.progress import progress_bar
from experiments.frame.tables import Table, markdown, show

MIB = 2**20
CLAIM = (
    "The gradient of an LSTM reaches through a million steps on an ordinary machine: carries are "
    "kept at about √T steps and computed again in between, which costs one more forward pass."
)


@dataclasses.dataclass(frozen=True)
class Config:
    """The gradient of an LSTM over long sequences: memory and time, plain and in two levels.

    For each length the gradient is compiled both ways and XLA's temporary memory is noted; both
    run, but for the longest length, where only the two-level one does. All two-level ones run
    before the plain ones, so that the peak of the process up to there is theirs. At the shortest
    length both gradients are compared in float64.
    """

    lengths: tuple[int, ...] = (4096, 16384, 65536, 262144, 1000000)
    """Steps of the sequences."""
    num_units: int = 32
    """Units of the LSTM, and features of its input."""
    out: Path | None = None
    """A new folder to write to; runs/long_gradient/TIME when left out."""
    quick: bool = False
    """A short form: up to 16384 steps."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(lengths=(1024, 4096, 16384), quick=True)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        rising = all(a < b for a, b in zip(self.lengths, self.lengths[1:], strict=False))
        if not self.lengths or self.lengths[0] < 1 or not rising:
            shown = " ".join(map(str, self.lengths)) or "nothing"
            raise ExperimentError(f"--lengths must rise from at least 1, got {shown}")
        if self.num_units < 1:
            raise ExperimentError(f"--num-units must be at least 1, got {self.num_units}")


class Gradient(NamedTuple):
    """One gradient.

    Attributes:
        num_steps: T.
        evaluator: "two levels" or "plain".
        temporary_mib: Temporary memory in MiB, as XLA plans it.
        seconds: Of one run; None: compiled only.
        peak_mib: The largest resident memory of the process until then, in MiB.
        difference: In float64 from the other evaluator's gradient, relative to the largest entry
            of each parameter; None: not compared.
    """

    num_steps: int
    evaluator: Literal["plain", "two levels"]
    temporary_mib: float
    seconds: float | None
    peak_mib: float
    difference: float | None


def measure(config: Config) -> Iterator[Gradient]:
    """Compiles and runs one gradient after the other, shortest first."""
    difference = _largest_difference(config.lengths[0], config.num_units)
    with progress_bar(2 * sum(config.lengths) - config.lengths[-1]) as bar:
        for name in ("two levels", "plain"):
            for num_steps in config.lengths:
                bar.stage(f"{num_steps} steps, {name}")
                runs = name == "two levels" or num_steps < config.lengths[-1]
                result = _gradient(num_steps, config.num_units, name, runs)
                if num_steps == config.lengths[0]:
                    result = result._replace(difference=difference)
                bar.advance(num_steps if runs else 0)
                bar.finish_stage(f"{num_steps} steps, {name}: {result.temporary_mib:.0f} MiB")
                yield result


def report(config: Config, results: list[Gradient], folder) -> Page:
    """Writes the table and the figure, and shows the table."""
    rows = [
        (
            f"{result.num_steps:,}",
            result.evaluator,
            f"{result.temporary_mib:.1f}",
            "not run" if result.seconds is None else f"{result.seconds:.2f}",
            f"{result.peak_mib:.0f}",
        )
        for result in results
    ]
    columns = ("steps", "evaluator", "temporary MiB", "seconds", "peak until then MiB")
    table = Table(f"Gradient of an LSTM-{config.num_units}, batch 1", columns, rows, num_names=2)
    show(table)
    compared = results[0]
    line = (
        f"At {compared.num_steps:,} steps in float64 the two gradients differ by at most "
        f"{compared.difference:.1e}, relative to the largest entry of each parameter."
    )
    print(line)
    folder.write_csv("results.csv", [result._asdict() for result in results])
    folder.write_text("summary.md", f"{markdown(table)}\n{line}\n")
    _plot(config, results, folder.path("memory.png"))
    caption = "Temporary memory of the gradient against the number of steps, as XLA plans it."
    pictures = [Picture("memory.png", caption)]
    return Page("long_gradient", CLAIM, [table], pictures, [line, *_growth(results)], [])


def _growth(results):
    """How memory grew from the shortest to the longest length, for each evaluator."""
    for name in dict.fromkeys(result.evaluator for result in results):
        chosen = [result for result in results if result.evaluator == name]
        steps, memory = (
            getattr(chosen[-1], field) / getattr(chosen[0], field)
            for field in ("num_steps", "temporary_mib")
        )
        yield f"{name}: {steps:.0f} times the steps took {memory:.0f} times the memory."


def _gradient_fn(num_units, name, dtype=jnp.float32):
    cell = jr.lstm(num_units, param_dtype=dtype)
    evaluator = jr.sequential(checkpoint="sqrt" if name == "two levels" else None)

    def loss(params, xs):
        return (jr.unroll(cell, params, xs, evaluator=evaluator).outputs ** 2).mean()

    return cell, jax.jit(jax.grad(loss))


def _gradient(num_steps, num_units, name, runs):
    cell, gradient_fn = _gradient_fn(num_units, name)
    params = cell.init(jax.random.key(0), num_units)
    xs = jax.random.normal(jax.random.key(1), (1, num_steps, num_units))
    compiled = gradient_fn.lower(params, xs).compile()
    analysis = compiled.memory_analysis()
    temporary = math.nan if analysis is None else analysis.temp_size_in_bytes / MIB
    seconds = None
    if runs:
        start = time.perf_counter()
        jax.block_until_ready(compiled(params, xs))
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Gradient(num_steps, name, temporary, seconds, peak, None)


def _largest_difference(num_steps, num_units):
    with jax.enable_x64(True):
        gradients = []
        for name in ("plain", "two levels"):
            cell, gradient_fn = _gradient_fn(num_units, name, jnp.float64)
            params = cell.init(jax.random.key(0), num_units)
            xs = jax.random.normal(jax.random.key(1), (1, num_steps, num_units), jnp.float64)
            gradients.append(gradient_fn(params, xs))
        differences = jax.tree.map(
            lambda plain, other: jnp.abs(plain - other).max() / jnp.abs(plain).max(), *gradients
        )
        return float(max(jax.tree.leaves(differences)))


def _plot(config, results, path):
    with figure(path, 6.0, 3.6) as canvas:
        axes = canvas.subplots()
        styles = {"plain": (PALETTE[1], "s"), "two levels": (PALETTE[0], "o")}
        for name, (color, marker) in styles.items():
            chosen = [result for result in results if result.evaluator == name]
            steps = [result.num_steps for result in chosen]
            memory = [result.temporary_mib for result in chosen]
            axes.loglog(steps, memory, color=color, marker=marker, label=name)
        axes.set_xlabel("steps T")
        axes.set_ylabel("temporary memory (MiB)")
        axes.set_title(f"Gradient of an LSTM-{config.num_units}, batch 1, as XLA plans it")
        axes.legend()
