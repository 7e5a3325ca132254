"""The speed of `linear_scan` beside `associative_scan`, a plain scan and a copy of its bytes."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from matplotlib.figure import Figure

import jaxrnn as jr
from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.options import Count, Options, Requirement, require
from experiments.frame.progress import progress_bar
from experiments.frame.report import Picture, Report
from experiments.frame.stats import median_and_quartiles
from experiments.frame.tables import Table
from experiments.frame.timing import compiled_fresh, interleaved_seconds, temporary_mib

CLAIM = (
    "hₜ = aₜ hₜ₋₁ + bₜ and its gradient need one loop each way, which compiles faster than the "
    "unrolled tree of an associative scan and on CPU runs faster too."
)
QUANTITIES = ("forward", "gradient")
AIMS = {"run": ("run", 6), "compilation": ("compile", 10)}  # times faster than associative_scan
POSITIVES = Annotated[
    tuple[int, ...], Requirement(lambda v: len(v) > 0 and min(v) >= 1, "one or more from 1 on")
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """h = a h + b forward, and its gradient in a and b: run time, compile time and memory.

    All subjects run in every round, in one process. "bytes once" is one multiply-add over arrays
    as large as those that the recurrence must read and write.
    """

    QUICK = {"lengths": (2048, 256), "rounds": 20, "compilations": 1}

    lengths: POSITIVES = (16384, 2048)
    """Steps T."""
    widths: POSITIVES = (64, 512)
    """Recurrences side by side, one number for each length."""
    rounds: Count = 40
    """How often everything runs."""
    compilations: Count = 3
    """How often everything is compiled."""

    def check(self) -> None:
        super().check()
        number = len(self.lengths)
        require(len(self.widths) == number, "widths", self, f"{number}, one for each length")


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


OURS, ASSOCIATIVE, FLOOR = "linear_scan", "associative_scan", "bytes once"
SCANS = {OURS: jr.linear_scan, "scan": plain_scan, ASSOCIATIVE: associative_scan}
SUBJECTS = (*SCANS, FLOOR)


def function_of(quantity: str, subject: str) -> Callable[..., Any]:
    """A new function of a, b and weights; the floor reads and writes as much and does no more."""
    if subject == FLOOR:
        if quantity == "forward":
            return lambda a, b, weights: a * b + b
        return lambda a, b, weights: (a * weights + b, b * weights + a)
    scan = SCANS[subject]
    if quantity == "forward":
        return lambda a, b, weights: scan(a, b)
    return jax.grad(lambda a, b, weights: jnp.vdot(weights, scan(a, b)), argnums=(0, 1))


class Measured(NamedTuple):
    """One quantity at one shape: by subject, the seconds of every round and compilation."""

    num_steps: int
    width: int
    quantity: str
    run: Mapping[str, np.ndarray]
    compilation: Mapping[str, np.ndarray]
    temporary_mib: Mapping[str, float]

    @property
    def shape(self) -> str:
        return f"{self.num_steps:,} x {self.width}"

    def ratios(self, kind: str, subject: str, other: str = OURS) -> np.ndarray:
        """The times of one subject, in those of the other in the same rounds."""
        seconds = getattr(self, kind)
        return seconds[subject] / seconds[other]


def measure(config: Config) -> Iterator[list[Measured]]:
    """Compiles and runs all subjects of one shape and quantity after the other."""
    pieces, results = len(config.lengths) * len(QUANTITIES), []
    with progress_bar(pieces * (config.rounds + config.compilations)) as bar:
        for num_steps, width in zip(config.lengths, config.widths, strict=True):
            args = arrays(num_steps, width)
            for quantity in QUANTITIES:
                name = f"{num_steps} steps of {width}, {quantity}"
                bar.stage(name)
                results = [*results, _measure(config, quantity, args, bar.advance)]
                ratio = 1 / np.median(results[-1].ratios("run", OURS, ASSOCIATIVE))
                bar.finish_stage(f"{name}: {ratio:.1f} times faster than associative_scan")
                yield results


def arrays(*shape: int) -> tuple[jax.Array, ...]:
    """a between 0 and 1, b, and what the sum of h is weighed with."""
    keys = jax.random.split(jax.random.key(0), 3)
    return jax.random.uniform(keys[0], shape), *(jax.random.normal(k, shape) for k in keys[1:])


def _measure(config, quantity, args, advance):
    compiled, seconds = {}, {name: np.zeros(config.compilations) for name in SUBJECTS}
    for number in range(config.compilations):
        for name in SUBJECTS:
            make = functools.partial(function_of, quantity, name)
            compiled[name], seconds[name][number] = compiled_fresh(make, *args)
        advance()
    calls = {name: functools.partial(function, *args) for name, function in compiled.items()}
    run = interleaved_seconds(calls, config.rounds, advance)
    memory = {name: temporary_mib(function) for name, function in compiled.items()}
    num_steps, width = args[0].shape
    return Measured(num_steps, width, quantity, run, seconds, memory)


def report(config: Config, results: Sequence[Measured]) -> Report:
    caption = "The gradient: time to run and to compile, by shape."
    gradients = [one for one in results if one.quantity == "gradient"]
    found, failed = [], []
    for one, (kind, (verb, aim)) in itertools.product(gradients, AIMS.items()):
        times = np.median(one.ratios(kind, ASSOCIATIVE))
        line = f"{one.shape}: the gradient is {times:.1f} times faster than associative_scan"
        (found if times >= aim else failed).append(f"{line} (to {verb}; the aim is {aim}).")
    return Report(
        CLAIM,
        pictures=[Picture("speed", _figure(gradients), caption)] if gradients else [],
        tables=[_table(results)],
        found=found,
        failed=failed,
        files={"metrics.csv": _rows(results)},
    )


def _rows(results: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    for one in results:
        names = {"num_steps": one.num_steps, "width": one.width, "quantity": one.quantity}
        for subject in SUBJECTS:
            row = names | {"subject": subject}
            row["temporary_mib"] = round(one.temporary_mib[subject], 2)
            for kind, seconds in (("compile", one.compilation), ("run", one.run)):
                for number, value in enumerate(seconds[subject]):
                    yield row | {"kind": kind, "number": number, "milliseconds": 1e3 * value}


def _table(results: Sequence[Measured]) -> Table:
    columns: dict[str, Callable[[tuple[Measured, str]], str]] = {
        "T x width": lambda row: row[0].shape,
        "what": lambda row: row[0].quantity,
        "by": lambda row: row[1],
        "run ms": lambda row: f"{1e3 * np.median(row[0].run[row[1]]):.2f}",
        "run ratio": lambda row: median_and_quartiles(row[0].ratios("run", row[1])),
        "compile ms": lambda row: f"{1e3 * np.median(row[0].compilation[row[1]]):.0f}",
        "compile ratio": lambda row: f"{np.median(row[0].ratios('compilation', row[1])):.1f}",
        "temporary MiB": lambda row: f"{row[0].temporary_mib[row[1]]:.1f}",
    }
    title = "Medians over rounds (quartiles in brackets); ratios are to linear_scan"
    rows = [(one, subject) for one in results for subject in SUBJECTS]
    return Table.by_columns(title, rows, columns, num_names=3)


def _figure(gradients: Sequence[Measured]) -> Figure:
    canvas = new_figure(6.5, 3.0)
    axes = canvas.subplots(1, 2, sharey=True)
    for axis, kind in zip(axes, ("run", "compilation"), strict=True):
        for index, subject in enumerate(SUBJECTS):
            heights = [np.median(one.ratios(kind, subject)) for one in gradients]
            places = np.arange(len(gradients)) + (index - 1.5) * 0.2
            bars = axis.bar(places, heights, 0.18, color=PALETTE[index], label=subject)
            axis.bar_label(bars, fmt="%.1f", fontsize=7)
        axis.set_xticks(range(len(gradients)), [one.shape for one in gradients])
        axis.set_xlabel("T x width")
        axis.grid(axis="x", visible=False)
    axes[0].set(title="Gradient: run time", ylabel="times linear_scan", yscale="log")
    axes[1].set_title("Gradient: compile time")
    canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return canvas
