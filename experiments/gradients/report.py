"""Tables, files and the page."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.frame.legacy import Page, Picture
from experiments.frame.run_folder import RunFolder
from experiments.frame.stats import mean_and_spread
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import verdict_rows, verdicts_table, what_failed
from experiments.gradients import plots
from experiments.gradients.config import Config
from experiments.gradients.expectations import verdicts
from experiments.gradients.gates import Gated
from experiments.gradients.judges import LEARNED, by_pair, exponents, reaches
from experiments.gradients.precision import FORMATS, INPUT_SCALES, Grown, Saturated
from experiments.gradients.recall import Clipped, Recalled, accuracy, last
from experiments.gradients.sweep import KERNELS, Swept
from experiments.gradients.warning import RECENT, VANISHING, Warned

CLAIM = (
    "The gradient of a recurrent network passes through the product J(t) J(t-1) ... J(k+1) of its "
    "Jacobians. Where that contracts, early steps are forgotten in training; where it expands, "
    "updates explode. Activation, kernel, gates and number format decide which; clipping helps "
    "against the second alone, and truncation cuts what it does not reach."
)


def report(config: Config, results: Sequence[Any], folder: RunFolder) -> Page:
    """Writes rows, figures and tables of whatever was done, and prints the tables."""
    lines = verdicts(config, results)
    folder.write_json("verdicts.json", verdict_rows(lines))

    tables = [verdicts_table("What was expected, and what was measured", lines)]
    tables += list(_tables(config, results))
    pictures = list(_pictures(config, results, folder))
    trained = _of(results, Recalled) + _of(results, Clipped)
    if trained:
        folder.write_csv("trainings.csv", [_training_row(one) for one in trained])
    if swept := _of(results, Swept):
        folder.write_csv("exponents.csv", list(_exponent_rows(config, swept)))
    folder.write_text("summary.md", "\n".join(["# gradients\n", *map(markdown, tables)]))
    for table in tables:
        show(table)
    done = [line for line in lines if line.passed is not None]
    found = [f"{sum(map(bool, (x.passed for x in done)))} of {len(done)} expectations held."]
    found += _sentences(config, results)
    return Page("gradients", CLAIM, tables, pictures, found, what_failed(lines) + _failed(trained))


def _of(results, kind):
    return [one for one in results if isinstance(one, kind)]


def _tables(config, results) -> Iterator[Table]:
    makers = (
        (Swept, _radius_table),
        (Gated, _gates_table),
        (Saturated, _formats_table),
        (Grown, _growth_table),
        (Warned, _warnings_table),
        (Recalled, _truncation_table),
        (Clipped, _clipping_table),
    )
    for kind, make in makers:
        if have := _of(results, kind):
            yield make(config, have)


def _radius_table(config, swept):
    rows = []
    for place, gain in enumerate(config.gains):
        cells = [
            mean_and_spread(one.exponents[kind, place], 3)
            for one in swept
            for kind in range(len(KERNELS))
        ]
        rows.append((f"{gain:g}", f"{np.log(gain):.3f}", *cells))
    columns = [f"{one.activation}, {kind}" for one in swept for kind in KERNELS]
    title = "Largest Lyapunov exponent by spectral radius ρ, nats a step: mean ± deviation"
    return Table(title, ("ρ", "log ρ", *columns), rows)


def _gates_table(config, gated):
    rows = [
        (
            one.name,
            mean_and_spread(one.horizons),
            mean_and_spread(one.exponents, 3),
            f"{np.median(one.sensitivity[:, 0] / one.sensitivity[:, -1]):.0e}",
        )
        for one in gated
    ]
    columns = ("cell", "steps to 1/1000", "exponent (nats a step)", "first input / last input")
    title = f"Cells before training, {config.num_steps} steps of noise: mean ± deviation over seeds"
    return Table(title, columns, rows)


def _formats_table(config, saturated):
    (one,) = saturated
    rows = [
        (
            name,
            f"{one.ones[name]:.2f}",
            f"{one.ends[name]:.2f}",
            *(f"{100 * one.shares[name][INPUT_SCALES.index(scale)]:.1f}" for scale in (1, 8, 64)),
        )
        for name in FORMATS
    ]
    columns = ("format", "tanh is 1 from", "slope is 0 from")
    columns += tuple(f"saturated at inputs x {scale} (%)" for scale in (1, 8, 64))
    return Table(
        "Where tanh is flat, and the share of units of a tanh cell that are", columns, rows
    )


def _growth_table(config, grown):
    rows = []
    for one in grown:
        steps = [one.overflow(name) for name in one.states]
        cells = ("never" if step is None else str(step) for step in steps)
        rows.append((f"{one.rate:.0%}", f"{one.factor:.5f}", str(one.predicted()), *cells))
    columns = ("growth a step", "factor in float16", "float16 predicted", *grown[0].states)
    return Table("The step after which a growing state is not finite", columns, rows)


def _warnings_table(config, warned):
    rows = [
        (
            one.name,
            f"{one.norms[-1] / one.norms[0]:.1e}",
            f"{one.silent_norms[-1] / one.silent_norms[0]:.1e}",
            f"{one.recurrent / one.inputs:.2g}",
            f"{one.sensitivity[0] / one.sensitivity[-1]:.1e}",
            f"{one.long_share:.1e}",
            f"{one.nothing} of {len(one.sensitivity)}",
        )
        for one in warned
    ]
    columns = ("network", "carry, last / first", "the same, one input")
    columns += ("gradient, recurrent / input", "reach, first / last input")
    columns += (f"gradient from beyond {RECENT} steps", "inputs without any gradient")
    return Table("Three warnings, and what they warn of", columns, rows)


def _truncation_table(config, trained):
    rows = []
    for cell in dict.fromkeys(one.cell for one in trained):
        found = by_pair(trained, cell)
        for delay in config.delays:
            cells = (_cell(found, delay, steps) for steps in config.truncations)
            rows.append((cell, str(delay), *cells))
    columns = ("cell", "delay", *(f"truncation {steps}" for steps in config.truncations))
    title = "Accuracy of the recall in %, median over seeds; chance is 25"
    return Table(title, columns, rows, num_names=2)


def _cell(found, delay, steps):
    if (delay, steps) not in found:
        return "-"
    return f"{100 * found[delay, steps]:.0f}" + ("" if reaches(delay, steps) else " (cut)")


def _clipping_table(config, trained):
    groups: dict[tuple[float, float], list[Clipped]] = {}
    for one in trained:
        groups.setdefault((one.gain, one.clip), []).append(one)
    rows = []
    for (gain, clip), members in groups.items():
        good = [one for one in members if not one.fitted.failed]
        accuracies = 100 * np.array([accuracy(one.fitted) for one in good])
        first = [np.ravel(one.fitted.history["gradient_norm"])[:50] for one in members]
        rows.append(
            (
                f"{gain:g}",
                "none" if clip == float("inf") else f"{clip:g}",
                mean_and_spread(accuracies),
                f"{np.nanmedian(first):.1e}",
                f"{np.nanmax(first):.1e}",
                f"{len(members) - len(good)} of {len(members)}",
            )
        )
    columns = ("ρ", "clipped to", "accuracy (%)", "gradient norm, median", "largest", "failed")
    title = f"Gradient descent at delay {max(config.delays)}; norms are of the first 50 updates"
    return Table(title, columns, rows, num_names=2)


def _pictures(config, results, folder) -> Iterator[Picture]:
    def drawn(name, *have):
        getattr(plots, name)(config, *have, folder.path(f"{name}.png"))
        return Picture(f"{name}.png", plots.CAPTIONS[name])

    kinds = (
        ("radius", Swept),
        ("gates", Gated),
        ("warnings", Warned),
        ("truncation", Recalled),
        ("clipping", Clipped),
    )
    for name, kind in kinds:
        if have := _of(results, kind):
            yield drawn(name, have)
    if saturated := _of(results, Saturated):
        yield drawn("formats", saturated[0], _of(results, Grown))


def _sentences(config, results) -> Iterator[str]:
    swept = {one.activation: one for one in _of(results, Swept)}
    for name in ("tanh", "relu"):
        for place, kind in enumerate(KERNELS):
            if name in swept:
                yield _crossing(config, exponents([swept[name]], name)[place], name, kind)
    for one in (one for one in _of(results, Warned) if one.name == VANISHING):
        yield (
            f"With noise at every step the vanishing network looks well by two of the warnings: its"
            f" carry does not shrink (last over first {one.norms[-1] / one.norms[0]:.2g}) and its "
            f"recurrent gradient is {one.recurrent / one.inputs:.2g} times that of the input. A "
            f"norm says nothing about how far back it comes from; the reach does, and so does the "
            f"share from beyond {RECENT} steps, {one.long_share:.0e}."
        )
    yield from _learned_past_the_cut(config, _of(results, Recalled))


def _learned_past_the_cut(config, trained) -> Iterator[str]:
    for cell in dict.fromkeys(one.cell for one in trained):
        found = by_pair(trained, cell)
        pairs = [pair for pair, value in found.items() if value >= LEARNED and not reaches(*pair)]
        if pairs:
            shown = ", ".join(f"{steps} of {delay} steps" for delay, steps in pairs)
            yield (
                f"The {cell} cell learns to recall although the gradient ends before the symbol "
                f"(it goes back {shown}): the carry crosses the cut with its value, what is left of"
                " the symbol can be read, and parameters that learn to keep it over the last steps "
                "are those of all steps."
            )


def _crossing(config, values, activation, kind):
    above = np.median(values, axis=-1) > 0
    where = (
        f"from ρ = {config.gains[int(np.argmax(above))]:g} on" if above.any() else "at no ρ here"
    )
    return f"{activation} with {kind} kernels explodes {where}; a linear cell above ρ = 1."


def _training_row(one):
    kind = "truncation" if isinstance(one, Recalled) else "clipping"
    settings = {
        name: getattr(one, name, "") for name in ("cell", "delay", "truncation", "gain", "clip")
    }
    return {
        "part": kind,
        **settings,
        "seed": one.seed,
        "status": "failed" if one.fitted.failed else "ok",
        "accuracy": accuracy(one.fitted),
        "loss": float(last(one.fitted, "loss").mean()),
        "num_params": one.fitted.num_params,
    }


def _exponent_rows(config, swept):
    for one in swept:
        for place, kind in enumerate(KERNELS):
            for gain, row, norms in zip(
                config.gains, one.exponents[place], one.norms[place], strict=True
            ):
                for seed, value in zip(config.all_seeds, row, strict=True):
                    index = seed - config.first_seed
                    yield {
                        "activation": one.activation,
                        "kernel": kind,
                        "spectral_radius": gain,
                        "seed": seed,
                        "exponent": float(value),
                        "last_norm": float(norms[index, -1]),
                    }


def _failed(trained):
    return [
        f"Seed {one.seed} failed: {', '.join(f'{k} {v}' for k, v in _settings(one).items())}."
        for one in trained
        if one.fitted.failed
    ]


def _settings(one):
    return {name: value for name, value in one._asdict().items() if name not in ("seed", "fitted")}
