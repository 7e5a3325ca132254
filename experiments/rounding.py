"""What float32 costs over long sequences: every model against itself in float64."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.catalogue import KINDS, MODELS, Sizes, check_options
from experiments.errors import ExperimentError
from experiments.figures import PALETTE, figure
from experiments.page import Page, Picture
from experiments.progress import progress_bar
from experiments.tables import Table, markdown, show

QUICK_MODELS = ("gru", "lru", "min_gru", "mlstm")
EXTREME = 1e4


@dataclasses.dataclass(frozen=True)
class Config:
    """The error of float32 against float64 with the same parameters and inputs, along the sequence.

    The error at t is the largest difference of outputs within (t/2, t], relative to the largest
    output there. Each model also reads a short sequence of bfloat16 inputs of +-10000, which close
    or open every gate, and whatever is not finite in its outputs and gradients is counted.
    """

    models: tuple[str, ...] = tuple(MODELS)
    """Names of models."""
    num_steps: int = 65536
    """Steps of the sequence."""
    width: int = 8
    """Input features and units."""
    num_states: int = 8
    """State size of the linear models."""
    out: Path | None = None
    """A new folder to write to; runs/rounding/TIME when left out."""
    quick: bool = False
    """A short form: four models, 4096 steps."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(models=QUICK_MODELS, num_steps=4096, quick=True)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        check_options(self.models, self.width, self.num_states)
        if self.num_steps < 2:
            raise ExperimentError(f"--num-steps must be at least 2, got {self.num_steps}")


class Rounded(NamedTuple):
    """The errors of one model.

    Attributes:
        model: Its name.
        times: t, powers of two and the end.
        errors: The error at each t.
        not_finite: Outputs of the long run in float32 that are NaN or infinite.
        extreme: Outputs and gradients of the bfloat16 run that are.
    """

    model: str
    times: np.ndarray
    errors: np.ndarray
    not_finite: int
    extreme: int


def measure(config: Config) -> Iterator[Rounded]:
    """Runs one model after the other."""
    with progress_bar(len(config.models)) as bar:
        for name in config.models:
            bar.stage(name)
            result = _measure(config, name)
            bar.advance()
            bar.finish_stage(f"{name}: {result.errors[-1]:.1e} at the end")
            yield result


def _measure(config, name):
    model = MODELS[name].make(Sizes.of(config.width, config.num_states))
    params = model.init(jax.random.key(0), config.width)
    xs = np.asarray(jax.random.normal(jax.random.key(1), (config.num_steps, config.width)))
    rounded = np.asarray(jr.unroll(model, params, xs).outputs)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (params, xs))
        exact = np.asarray(jr.unroll(model, *wide).outputs)
    times, errors = errors_along(rounded, exact)
    bad = int(np.sum(~np.isfinite(rounded)))
    return Rounded(name, times, errors, bad, _extreme(model, params, config.width))


def errors_along(rounded: np.ndarray, exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest difference in (t/2, t] relative to the largest value there, for some t."""
    num_steps = len(exact)
    times = sorted({2**power for power in range(num_steps.bit_length())} | {num_steps})
    errors = []
    for time in times:
        window = slice(time // 2, time)
        largest = np.max(np.abs(exact[window]))
        errors.append(np.max(np.abs(rounded[window] - exact[window])) / largest)
    return np.array(times), np.array(errors)


def _extreme(model, params, width):
    """How many numbers are not finite after inputs that saturate everything."""
    signs = jax.random.rademacher(jax.random.key(2), (128, width), jnp.bfloat16)
    outputs, gradients = _outputs_and_gradients(model, params, EXTREME * signs)
    leaves = jax.tree.leaves((outputs, gradients))
    return int(sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in leaves))


def _outputs_and_gradients(model: Any, params: Any, xs: Any) -> tuple[Any, Any]:
    @functools.partial(jax.grad, has_aux=True)
    def gradient(params):
        outputs = jr.unroll(model, params, xs).outputs
        return outputs.astype(jnp.float32).mean(), outputs

    gradients, outputs = jax.jit(gradient)(params)
    return outputs, gradients


def report(config: Config, results: list[Rounded], folder) -> Page:
    """Writes the table and the figure, and shows the table."""
    table = _table(config, results)
    show(table)
    folder.write_csv("metrics.csv", _rows(results))
    folder.write_text("summary.md", f"{markdown(table)}\n![](rounding.png)\n")
    _plot(results, folder.path("rounding.png"))
    claim = (
        "The error of float32 against float64 stays where it is over a long sequence when a model "
        "forgets, and grows when it does not."
    )
    worst = max(results, key=lambda result: result.errors[-1])
    found = [f"Largest error at the end: {worst.model}, {worst.errors[-1]:.0e}."]
    bad = [result.model for result in results if result.not_finite or result.extreme]
    failed = [f"{name}: numbers that are not finite." for name in bad]
    picture = Picture("rounding.png", "Relative error of float32 outputs against the step.")
    return Page("rounding", claim, [table], [picture], found, failed)


def _rows(results):
    for result in results:
        for time, error in zip(result.times, result.errors, strict=True):
            yield {
                "model": result.model,
                "t": int(time),
                "error": float(error),
                "not_finite": result.not_finite,
                "extreme_not_finite": result.extreme,
            }


def _table(config, results):
    shown = [time for time in results[0].times if time in (1, 16, 256, 4096, config.num_steps)]
    rows = []
    for result in results:
        errors = dict(zip(result.times, result.errors, strict=True))
        cells = [f"{errors[time]:.1e}" for time in shown]
        rows.append((result.model, *cells, str(result.not_finite), str(result.extreme)))
    columns = ("model", *(f"t = {time:,}" for time in shown))
    title = "Relative error of float32 outputs, and numbers that are not finite"
    return Table(title, (*columns, "not finite", "bfloat16, extreme"), rows)


def _plot(results, path):
    with figure(path, 8.0, 3.6) as canvas:
        kinds = [kind for kind in KINDS if any(MODELS[r.model].kind == kind for r in results)]
        axes = canvas.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axis, kind in zip(axes, kinds, strict=True):
            chosen = [result for result in results if MODELS[result.model].kind == kind]
            for result, (color, style) in zip(chosen, _line_styles(), strict=False):
                axis.plot(result.times, result.errors, style, color=color, label=result.model)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.axhline(float(np.finfo(np.float32).eps), color="gray", linewidth=0.7)
            axis.set_xlabel("step t")
            axis.set_title(kind)
            axis.legend(fontsize=7, loc="upper left")
        axes[0].set_ylabel("relative error within (t/2, t]")


def _line_styles():
    return [(color, style) for style in ("-", "--") for color in PALETTE]
