from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, share
from experiments.frame.tables import Table
from experiments.gradients import figures
from experiments.gradients.config import Config
from experiments.gradients.expect import CURVED, LEARNED, judged
from experiments.gradients.jacobians import KERNELS, Gated, Swept
from experiments.gradients.measure import Results, Trained
from experiments.gradients.warning import INPUT_SCALES, RECENT, VANISHING, Grown, Saturated, Warned

CLAIM = (
    "The gradient of a recurrent network passes through the product J(t) J(t-1) ... J(k+1) of its "
    "Jacobians. Where that contracts, early steps are forgotten in training; where it expands, "
    "updates explode. Activation, kernel, gates and number format decide which; clipping helps "
    "against the second alone, and truncation cuts what it does not reach."
)
CAPTIONS = {
    "radius": "Top: the largest Lyapunov exponent (growth of the product of Jacobians, nats a step)"
    " by spectral radius; a point is a seed, the line their median; black: log ρ. Bottom: norm of "
    "the carry over the steps, orthogonal kernel, first seed.",
    "gates": "Before training. Left: what the last output hears of each input. Right: singular "
    "values of ∂h(t)/∂h(0), first seed: all (band), largest, median.",
    "formats": "Left: the slope of tanh; it is exactly 0 where the line ends. Middle: units through"
    " which no gradient passes, by the size of the inputs. Right: a state that grows by 2 % a step,"
    " until it overflows (cross).",
    "warnings": "Norm of the carry with inputs at every step (left) and at the first alone "
    "(middle); what the last output hears of each input (right).",
    "truncation": "Accuracy of the recall (median over seeds) by delay and truncation; framed: the "
    "gradient reaches the symbol. Right: what is learned along the updates at the longest delay, a "
    "line a seed; dotted: chance.",
    "clipping": "Accuracy of the recall by update (means of 50), a line a seed; solid: clipped, "
    "dashed: not. Right: norm of the gradient before clipping.",
}


def report(config: Config, results: Results) -> Report:
    """A table and a picture of every question that was asked, and the trainings."""
    captions = {name: caption for name, caption in CAPTIONS.items() if getattr(results, name)}
    return Report(
        CLAIM,
        verdicts=judged(config, results),
        trainings=[_training(config, one) for one in (*results.truncation, *results.clipping)],
        pictures=Picture.drawn(figures, captions, config, results),
        tables=[
            table(config, getattr(results, name))
            for name, table in TABLES.items()
            if getattr(results, name)
        ],
        found=list(_found(config, results)),
        files={"exponents.csv": _exponent_rows(config, results.radius)},
    )


def _training(config: Config, one: Trained) -> Training:
    scores = {"accuracy": one.accuracy, "loss": one.last("loss")}
    names = {"training": one.setting.name}
    return Training(names, config.all_seeds, one.fitted, one.setting._asdict() | scores)


def _exponent_rows(config: Config, swept: Mapping[str, Swept]) -> Iterator[dict[str, Any]]:
    for activation, one in swept.items():
        for (kind, gain, seed), exponent in np.ndenumerate(one.exponents):
            yield {
                "activation": activation,
                "kernel": KERNELS[kind],
                "spectral_radius": config.gains[gain],
                "seed": config.all_seeds[seed],
                "exponent": float(exponent),
                "last_norm": float(one.norms[kind, gain, seed, -1]),
            }


def _radius_table(config: Config, swept: Mapping[str, Swept]) -> Table:
    rows = []
    for place, gain in enumerate(config.gains):
        row = {"ρ": f"{gain:g}", "log ρ": f"{np.log(gain):.3f}"}
        for name, one in swept.items():
            for kind, values in zip(KERNELS, one.exponents[:, place], strict=True):
                row[f"{name}, {kind}"] = mean_and_spread(values, 3)
        rows.append(row)
    title = "Largest Lyapunov exponent by spectral radius ρ, nats a step: mean ± deviation"
    return Table.of(title, rows)


def _gates_table(config: Config, gated: Mapping[str, Gated]) -> Table:
    rows = [
        {
            "cell": name,
            "steps to 1/1000": mean_and_spread(one.horizons),
            "exponent (nats a step)": mean_and_spread(one.exponents, 3),
            "first input / last input": f"{np.median(one.reach):.0e}",
        }
        for name, one in gated.items()
    ]
    title = f"Cells before training, {config.num_steps} steps of noise: mean ± deviation over seeds"
    return Table.of(title, rows)


def _formats_table(config: Config, formats: Mapping[str, Saturated]) -> Table:
    rows = []
    for name, one in formats.items():
        row = {"format": name, "tanh is 1 from": f"{one.one:.2f}"}
        row["slope is 0 from"] = f"{one.end:.2f}"
        for scale in (1, 8, 64):
            share = one.shares[INPUT_SCALES.index(scale)]
            row[f"saturated at inputs x {scale} (%)"] = f"{100 * share:.1f}"
        rows.append(row)
    return Table.of("Where tanh is flat, and the share of units of a tanh cell that are", rows)


def _growth_table(config: Config, grown: Mapping[float, Grown]) -> Table:
    rows = [
        {
            "growth a step": f"{rate:.0%}",
            "factor in float16": f"{one.factor:.5f}",
            "float16 predicted": str(one.predicted()),
            **{name: str(one.overflow(name) or "never") for name in one.states},
        }
        for rate, one in grown.items()
    ]
    return Table.of("The step after which a growing state is not finite", rows)


def _warnings_table(config: Config, warned: Mapping[str, Warned]) -> Table:
    rows = [
        {
            "network": name,
            "carry, last / first": f"{one.norms[-1] / one.norms[0]:.1e}",
            "the same, one input": f"{one.silent_norms[-1] / one.silent_norms[0]:.1e}",
            "gradient, recurrent / input": f"{one.ratio:.2g}",
            "reach, first / last input": f"{one.reach:.1e}",
            f"gradient from beyond {RECENT} steps": f"{one.long_share:.1e}",
            "inputs without any gradient": f"{one.nothing} of {len(one.sensitivity)}",
        }
        for name, one in warned.items()
    ]
    return Table.of("Three warnings, and what they warn of", rows)


def _truncation_table(config: Config, trained: Sequence[Trained]) -> Table:
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for one in trained:
        cell, delay, steps = one.setting.cell, one.setting.delay, one.setting.truncation
        row = {"cell": cell, "delay": str(delay)}
        row |= {f"truncation {each}": "-" for each in config.truncations}
        word = "" if one.setting.reaches else " (cut)"
        rows.setdefault((cell, delay), row)[f"truncation {steps}"] = f"{100 * one.median:.0f}{word}"
    title = "Accuracy of the recall in %, median over seeds; chance is 25"
    return Table.of(title, rows.values(), num_names=2)


def _clipping_table(config: Config, trained: Sequence[Trained]) -> Table:
    rows = []
    for one in trained:
        first = one.fitted.of_updates()["gradient_norm"][:, :50]
        rows.append(
            {
                "ρ": f"{one.setting.gain:g}",
                "clipped to": f"{one.setting.clip:g}".replace("inf", "none"),
                "accuracy (%)": mean_and_spread(100 * one.fitted.of_good_seeds(one.accuracy)),
                "gradient norm, median": f"{np.nanmedian(first):.1e}",
                "largest": f"{np.nanmax(first):.1e}",
                "failed": share(one.fitted.failed),
            }
        )
    title = f"Gradient descent at delay {max(config.delays)}; norms are of the first 50 updates"
    return Table.of(title, rows, num_names=2)


TABLES = {
    "radius": _radius_table,
    "gates": _gates_table,
    "formats": _formats_table,
    "growth": _growth_table,
    "warnings": _warnings_table,
    "truncation": _truncation_table,
    "clipping": _clipping_table,
}


def _found(config: Config, results: Results) -> Iterator[str]:
    if results.radius:
        for name in CURVED:
            for kind, values in zip(KERNELS, results.radius[name].exponents, strict=True):
                above = np.array(config.gains)[np.median(values, axis=-1) > 0]
                where = f"from ρ = {above[0]:g} on" if len(above) else "at no ρ here"
                yield f"{name} with {kind} kernels explodes {where}; a linear cell above ρ = 1."
    if results.warnings:
        one = results.warnings[VANISHING]
        yield (
            f"With noise at every step the vanishing network looks well by two of the warnings: its"
            f" carry does not shrink (last over first {one.norms[-1] / one.norms[0]:.2g}) and its "
            f"recurrent gradient is {one.ratio:.2g} times that of the input. A norm says nothing "
            f"about how far back it comes from; the reach does, and so does the share from beyond "
            f"{RECENT} steps, {one.long_share:.0e}."
        )
    pairs: dict[str, list[str]] = {}
    for one in results.truncation:
        if one.median >= LEARNED and not one.setting.reaches:
            shown = f"{one.setting.truncation} of {one.setting.delay} steps"
            pairs.setdefault(one.setting.cell, []).append(shown)
    for cell, shown in pairs.items():
        yield (
            f"The {cell} cell learns to recall although the gradient ends before the symbol (it "
            f"goes back {', '.join(shown)}): the carry crosses the cut with its value, what is left"
            " of the symbol can be read, and parameters that learn to keep it over the last steps "
            "are those of all steps."
        )
