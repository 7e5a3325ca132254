"""What float32 costs over long sequences: every model against itself in float64."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxrnn as jr
from experiments.frame.figures import PALETTE, new_figure
from experiments.frame.models import KINDS, MODELS, CatalogueOptions, Sizes
from experiments.frame.options import at_least
from experiments.frame.progress import progress_bar
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table

CLAIM = (
    "The error of float32 against float64 stays where it is over a long sequence when a model "
    "forgets, and grows when it does not."
)
SHOWN = (1, 16, 256, 4096)
EXTREME = 1e4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CatalogueOptions):
    """The error of float32 against float64 with the same parameters and inputs, along the sequence.

    The error at t is the largest difference of outputs within (t/2, t], relative to the largest
    output there. Each model also reads a short sequence of bfloat16 inputs of +-10000, which close
    or open every gate, and whatever is not finite in its outputs and gradients is counted.
    """

    QUICK = {"models": ("gru", "lru", "min_gru", "mlstm"), "num_steps": 4096}

    num_steps: Annotated[int, at_least(2)] = 65536
    """Steps of the sequence."""


class Rounded(NamedTuple):
    """The errors of one model."""

    model: str  # its name
    times: np.ndarray  # t, powers of two and the end
    errors: np.ndarray  # the error at each t
    not_finite: int  # outputs of the long run in float32 that are NaN or infinite
    extreme: int  # outputs and gradients of the bfloat16 run that are


def measure(config: Config) -> Iterator[list[Rounded]]:
    results = []
    with progress_bar(len(config.models)) as bar:
        for name in config.models:
            bar.stage(name)
            results = [*results, _rounded(config, name)]
            bar.advance()
            bar.finish_stage(f"{name}: {results[-1].errors[-1]:.1e} at the end")
            yield results


def _rounded(config, name):
    model = MODELS[name].make(Sizes.of(config.width, config.state_size))
    params = model.init(jax.random.key(0), config.width)
    xs = np.asarray(jax.random.normal(jax.random.key(1), (config.num_steps, config.width)))
    rounded = np.asarray(jr.unroll(model, params, xs).outputs)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (params, xs))
        exact = np.asarray(jr.unroll(model, *wide).outputs)
    times, errors = errors_along(rounded, exact)
    not_finite = int(np.sum(~np.isfinite(rounded)))
    return Rounded(name, times, errors, not_finite, _extreme(model, params, config.width))


def errors_along(rounded: np.ndarray, exact: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest difference in (t/2, t] relative to the largest value there, for some t."""
    num_steps = len(exact)
    times = sorted({2**power for power in range(num_steps.bit_length())} | {num_steps})
    windows = [slice(time // 2, time) for time in times]
    errors = [
        np.max(np.abs(rounded[window] - exact[window])) / np.max(np.abs(exact[window]))
        for window in windows
    ]
    return np.array(times), np.array(errors)


def _extreme(model: Any, params: Any, width: int) -> int:
    """How many numbers are not finite after inputs that saturate everything."""
    signs = jax.random.rademacher(jax.random.key(2), (128, width), jnp.bfloat16)

    def mean(params):
        outputs = jr.unroll(model, params, EXTREME * signs).outputs
        return outputs.astype(jnp.float32).mean(), outputs

    leaves = jax.tree.leaves(jax.jit(jax.grad(mean, has_aux=True))(params))
    return int(sum(jnp.sum(~jnp.isfinite(leaf)) for leaf in leaves))


def report(config: Config, results: Sequence[Rounded]) -> Report:
    worst = max(results, key=lambda result: result.errors[-1])
    bad = [result.model for result in results if result.not_finite or result.extreme]
    caption = "Relative error of float32 outputs against the step."
    return Report(
        CLAIM,
        pictures=[Picture("rounding", _figure(results), caption)],
        tables=[_table(config, results)],
        found=[f"Largest error at the end: {worst.model}, {worst.errors[-1]:.0e}."],
        failed=[f"{name}: numbers that are not finite." for name in bad],
        files={"metrics.csv": _rows(results)},
    )


def _rows(results: Sequence[Rounded]) -> Iterator[dict[str, Any]]:
    for result in results:
        bad = {"not_finite": result.not_finite, "extreme_not_finite": result.extreme}
        for time, error in zip(result.times, result.errors, strict=True):
            yield {"model": result.model, "t": int(time), "error": float(error)} | bad


def _table(config: Config, results: Sequence[Rounded]) -> Table:
    shown = [time for time in results[0].times if time in (*SHOWN, config.num_steps)]
    rows = []
    for result in results:
        errors = dict(zip(result.times, result.errors, strict=True))
        cells = [f"{errors[time]:.1e}" for time in shown]
        rows.append((result.model, *cells, str(result.not_finite), str(result.extreme)))
    columns = ("model", *(f"t = {time:,}" for time in shown))
    title = "Relative error of float32 outputs, and numbers that are not finite"
    return Table(title, (*columns, "not finite", "bfloat16, extreme"), rows)


def _figure(results: Sequence[Rounded]) -> Figure:
    canvas = new_figure(8.0, 3.6)
    by_kind = {kind: [one for one in results if MODELS[one.model].kind == kind] for kind in KINDS}
    by_kind = {kind: chosen for kind, chosen in by_kind.items() if chosen}
    axes = canvas.subplots(1, len(by_kind), sharey=True, squeeze=False)[0]
    looks = [(color, style) for style in ("-", "--") for color in PALETTE]
    for axis, (kind, chosen) in zip(axes, by_kind.items(), strict=True):
        for result, (color, style) in zip(chosen, looks, strict=False):
            axis.plot(result.times, result.errors, style, color=color, label=result.model)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.axhline(float(np.finfo(np.float32).eps), color="gray", linewidth=0.7)
        axis.set(xlabel="step t", title=kind)
        axis.legend(fontsize=7, loc="upper left")
    axes[0].set_ylabel("relative error within (t/2, t]")
    return canvas
