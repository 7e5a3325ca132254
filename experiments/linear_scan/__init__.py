"""The speed of `linear_scan` beside `associative_scan`, a plain scan and a copy of its bytes."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxrnn as jr
from experiments.frame.errors import ExperimentError
from experiments.frame.figures import PALETTE, figure
from experiments.frame.legacy import Page, Picture
from experiments.frame.progress import progress_bar
from experiments.frame.stats import median_and_quartiles
from experiments.frame.tables import Table, markdown, show
from experiments.frame.timing import compiled_fresh, interleaved_seconds

MIB = 2**20
OURS, FLOOR = "linear_scan", "bytes once"


@dataclasses.dataclass(frozen=True)
class Config:
    """h = a h + b forward, and its gradient in a and b: run time, compile time and memory.

    All subjects run in every round, in one process. "bytes once" is one multiply-add over arrays
    as large as those that the recurrence must read and write.
    """

    lengths: tuple[int, ...] = (16384, 2048)
    """Steps T."""
    widths: tuple[int, ...] = (64, 512)
    """Recurrences side by side, one number for each length."""
    rounds: int = 40
    """How often everything runs."""
    compilations: int = 3
    """How often everything is compiled."""
    out: Path | None = None
    """A new folder to write to; runs/linear_scan/TIME when left out."""
    quick: bool = False
    """A short form: an eighth of the steps."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(lengths=(2048, 256), rounds=20, compilations=1, quick=True)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        if not self.lengths or len(self.lengths) != len(self.widths):
            raise ExperimentError(
                f"--lengths and --widths must be as many, at least one, "
                f"got {len(self.lengths)} and {len(self.widths)}"
            )
        numbers = {"--lengths": min(self.lengths), "--widths": min(self.widths)}
        numbers |= {"--rounds": self.rounds, "--compilations": self.compilations}
        for name, number in numbers.items():
            if number < 1:
                raise ExperimentError(f"{name} must be at least 1, got {number}")


class Measured(NamedTuple):
    """One subject at one shape: seconds of each round and compilation, and temporary memory."""

    num_steps: int
    width: int
    quantity: str
    subject: str
    run: np.ndarray
    compilation: np.ndarray
    temporary_mib: float


def associative_scan(a: Any, b: Any) -> Any:
    """The recurrence by `jax.lax.associative_scan`, as it is written everywhere."""

    def compose(before, after):
        return after[0] * before[0], after[0] * before[1] + after[1]

    return lax.associative_scan(compose, (a, b))[1]


def plain_scan(a: Any, b: Any) -> Any:
    """The recurrence by `jax.lax.scan`, differentiated by JAX."""

    def step(h, inputs):
        h = inputs[0] * h + inputs[1]
        return h, h

    return lax.scan(step, jnp.zeros_like(b[0]), (a, b))[1]


SCANS = {OURS: jr.linear_scan, "scan": plain_scan, "associative_scan": associative_scan}
QUANTITIES = ("forward", "gradient")
AIMS = {"run": 6, "compilation": 10}  # times faster than associative_scan


def measure(config: Config) -> Iterator[Measured]:
    """Compiles and runs all subjects of one shape and quantity after the other."""
    pieces = len(config.lengths) * len(QUANTITIES)
    with progress_bar(pieces * (config.rounds + config.compilations)) as bar:
        for num_steps, width in zip(config.lengths, config.widths, strict=True):
            args = arrays(num_steps, width)
            for quantity in QUANTITIES:
                name = f"{num_steps} steps of {width}, {quantity}"
                bar.stage(name)
                results = _measure(config, quantity, args, bar.advance)
                times = {result.subject: np.median(result.run) for result in results}
                ratio = times["associative_scan"] / times[OURS]
                bar.finish_stage(f"{name}: {ratio:.1f} times faster than associative_scan")
                yield from results


def arrays(num_steps: int, width: int) -> tuple[jax.Array, ...]:
    """a between 0 and 1, b, and what the sum of h is weighed with."""
    keys = jax.random.split(jax.random.key(0), 3)
    shape = (num_steps, width)
    a = jax.random.uniform(keys[0], shape)
    return a, *(jax.random.normal(key, shape) for key in keys[1:])


def _measure(config, quantity, args, advance):
    subjects = makers(quantity)
    compiled, seconds = {}, {name: np.zeros(config.compilations) for name in subjects}
    for number in range(config.compilations):
        for name, make in subjects.items():
            compiled[name], seconds[name][number] = compiled_fresh(make, *args)
        advance()
    steps, width = args[0].shape
    calls = {name: _call(function, args) for name, function in compiled.items()}
    run = interleaved_seconds(calls, config.rounds, advance)
    return [
        Measured(steps, width, quantity, name, run[name], seconds[name], _temporary(function))
        for name, function in compiled.items()
    ]


def makers(quantity: str) -> dict[str, Callable[[], Callable[..., Any]]]:
    """What makes the function of `arrays` of each subject, a new one each time."""
    return {name: _make(quantity, scan) for name, scan in SCANS.items()} | {
        FLOOR: _make_floor(quantity)
    }


def _make(quantity, scan):
    def forward():
        return lambda a, b, weights: scan(a, b)

    def gradient():
        return lambda a, b, weights: jax.grad(
            lambda a, b: jnp.vdot(weights, scan(a, b)), argnums=(0, 1)
        )(a, b)

    return forward if quantity == "forward" else gradient


def _make_floor(quantity):
    """Reads a and b and writes h; or reads a, b and the cotangent and writes two gradients."""

    def forward():
        return lambda a, b, weights: a * b + b

    def gradient():
        return lambda a, b, weights: (a * weights + b, b * weights + a)

    return forward if quantity == "forward" else gradient


def _call(function, args):
    return lambda: function(*args)


def _temporary(compiled):
    analysis = compiled.memory_analysis()
    return float("nan") if analysis is None else analysis.temp_size_in_bytes / MIB


def report(config: Config, results: list[Measured], folder) -> Page:
    """Writes every round, the table and the figure, and shows the table."""
    table = _table(results)
    show(table)
    folder.write_csv("metrics.csv", _rows(results))
    folder.write_text("summary.md", f"{markdown(table)}\n![](speed.png)\n")
    _plot(results, folder.path("speed.png"))
    claim = (
        "hₜ = aₜ hₜ₋₁ + bₜ and its gradient need one loop each way, which compiles faster than the "
        "unrolled tree of an associative scan and on CPU runs faster too."
    )
    picture = Picture("speed.png", "The gradient: time to run and to compile, by shape.")
    found, failed = _sentences(results)
    return Page("linear_scan", claim, [table], [picture], found, failed)


def _sentences(results):
    """What was found, and what is below the aims."""
    found, failed = [], []
    for result in results:
        if (result.quantity, result.subject) != ("gradient", "associative_scan"):
            continue
        ours = _ours(results, result)
        for kind, aim in AIMS.items():
            times = np.median(getattr(result, kind) / getattr(ours, kind))
            shape = f"{result.num_steps:,} x {result.width}"
            line = f"{shape}: the gradient is {times:.1f} times faster than associative_scan"
            line += f" ({'to run' if kind == 'run' else 'to compile'}; the aim is {aim})."
            (found if times >= aim else failed).append(line)
    return found, failed


def _rows(results):
    for result in results:
        names = dict(zip(Measured._fields[:4], result[:4], strict=True))
        names["temporary_mib"] = round(result.temporary_mib, 2)
        for kind, values in (("compile", result.compilation), ("run", result.run)):
            for number, seconds in enumerate(values):
                yield names | {"kind": kind, "number": number, "milliseconds": 1e3 * seconds}


def _ours(results, result):
    return next(r for r in results if r[:3] == result[:3] and r.subject == OURS)


def _table(results):
    rows = []
    for result in results:
        ours = _ours(results, result)
        rows.append(
            (
                f"{result.num_steps:,} x {result.width}",
                result.quantity,
                result.subject,
                f"{1e3 * np.median(result.run):.2f}",
                median_and_quartiles(result.run / ours.run),
                f"{1e3 * np.median(result.compilation):.0f}",
                f"{np.median(result.compilation / ours.compilation):.1f}",
                f"{result.temporary_mib:.1f}",
            )
        )
    columns = ("T x width", "what", "by", "run ms", "run ratio", "compile ms", "compile ratio")
    title = "Medians over rounds (quartiles in brackets); ratios are to linear_scan"
    return Table(title, (*columns, "temporary MiB"), rows, num_names=3)


def _plot(results, path):
    with figure(path, 6.5, 3.0) as canvas:
        axes = canvas.subplots(1, 2, sharey=True)
        subjects = list(dict.fromkeys(result.subject for result in results))
        gradients = [result for result in results if result.quantity == "gradient"]
        shapes = list(dict.fromkeys(result[:2] for result in gradients))
        for axis, kind in zip(axes, ("run", "compilation"), strict=True):
            for index, subject in enumerate(subjects):
                chosen = [result for result in gradients if result.subject == subject]
                heights = [
                    np.median(getattr(result, kind) / getattr(_ours(results, result), kind))
                    for result in chosen
                ]
                places = np.arange(len(shapes)) + (index - 1.5) * 0.2
                bars = axis.bar(places, heights, 0.18, color=PALETTE[index], label=subject)
                axis.bar_label(bars, fmt="%.1f", fontsize=7)
            axis.set_xticks(range(len(shapes)), [f"{t:,} x {width}" for t, width in shapes])
            axis.set_xlabel("T x width")
            axis.grid(axis="x", visible=False)
        axes[0].set_title("Gradient: run time")
        axes[1].set_title("Gradient: compile time")
        axes[0].set_ylabel("times linear_scan")
        axes[0].set_yscale("log")
        canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
