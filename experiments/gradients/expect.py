"""What one is led to expect, as criteria that are here before the run, and how each is judged."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame.verdicts import Expectation, Verdict
from experiments.gradients.config import Config
from experiments.gradients.jacobians import STATES, Gated, Swept, Worked
from experiments.gradients.measure import (
    CELLS,
    CLIPPING,
    LSTM,
    NUM_SYMBOLS,
    TANH,
    TRUNCATION,
    VANISHING_GAIN,
    Results,
    Trained,
    settings_of,
)
from experiments.gradients.warning import (
    EXPLODING,
    HEALTHY,
    IN_LIBRARY,
    MAX_NORM,
    VANISHING,
    Grown,
    Saturated,
    Warned,
)

LEARNED, NOT_LEARNED = 0.9, 0.5
CURVED = ("tanh", "relu")
CUT = (
    f"at the longest delay at most {NOT_LEARNED:.0%} wherever the gradient does not reach the "
    f"symbol (chance is {1 / NUM_SYMBOLS:.0%})"
)


def judged(config: Config, results: Results) -> list[Verdict]:
    """All of them, as far as the results go; trainings are judged when all of a part are there."""
    worked, radius, gated, _, formats, growth, warnings, *_ = results
    gains = config.gains
    truncation, clipping = (_all_of(config, results, part) for part in (TRUNCATION, CLIPPING))
    return [
        Expectation(
            "the product is ordered",
            "∂h(T)/∂h(0) = J(T) ... J(1) to 1e-5; with the factors reversed it is off by more than "
            "10 %",
        ).judge(order, worked),
        Expectation(
            "worked example",
            "α = 1/2 and inputs 2, 0, 4 give 1, 0.5, 2.25 and ∂h(3)/∂h(0) = 1/8; detaching after "
            "step 2 keeps the states and leaves 0",
        ).judge(average, worked),
        Expectation(
            "linear: log ρ",
            "the largest exponent is log ρ at every radius: to 0.001 (orthogonal), 0.1 (Gaussian)",
        ).judge(linear, radius, gains),
        Expectation(
            "ρ below 1 contracts", "tanh and relu have exponents below 0 for all ρ < 1"
        ).judge(sign, radius, gains, -1),
        Expectation(
            "ρ above 1 explodes", "tanh and relu have exponents above 0 for all ρ > 1"
        ).judge(sign, radius, gains, 1),
        Expectation(
            "orthogonal keeps the norm in the linear part",
            "at ρ = 1 the exponent is 0 (to 0.001) without an activation, below -0.01 with tanh",
        ).judge(linear_part, radius, gains),
        Expectation(
            "relu drifts upwards",
            "at the largest ρ its norm ends beyond 100 √H and its mean above 0 for every "
            "orthogonal kernel, at the smallest below 10 √H; tanh stays below √H",
        ).judge(drift, radius, config.num_units),
        Expectation(
            "gates remember",
            "steps until a thousandth of the sensitivity is left: LSTM with forget bias 1 beyond "
            "bias 0, chrono beyond both and five times those of Elman",
        ).judge(gates, gated),
        Expectation(
            "float32 tanh is 1 beyond 9", "slope above 0 at 7; at 9 exactly 0, and tanh exactly 1"
        ).judge(flat, formats),
        Expectation(
            "float16 overflows, float32 carries",
            "1 to 5 % a step pass 65504 within 3000 steps, where predicted to 5 %; the library's "
            "carry is finite there",
        ).judge(overflow, growth),
        Expectation(
            "warning 1: norm of the carry",
            "after one input: exploding grows a thousandfold, vanishing falls below a thousandth, "
            "healthy within a factor of 10",
        ).judge(norms, warnings),
        Expectation(
            "warning 2: recurrent against input gradient",
            "vanishing: the recurrent norm is below 1/100 of the input norm; healthy: it is not",
        ).judge(ratio, warnings),
        Expectation(
            "warning 3: last output, first input",
            "sensitivity relative to that of the last input: vanishing below 1e-6, healthy above "
            "0.01, exploding above 1000",
        ).judge(reach, warnings),
        Expectation(
            "clipping shortens",
            "direction kept to 1e-6, norm at most 1; after an update at the rate 0.01 the carry "
            "still grows a thousandfold",
        ).judge(shortens, warnings),
        Expectation(
            "clipping restores nothing",
            "vanishing: steps more than 10 back have below 1e-3 of the gradient, the same after "
            "clipping; trained, both ways stay below 50 % accuracy",
        ).judge(restores_nothing, warnings, clipping),
        Expectation(
            "clipping helps against explosion",
            "exploding start: accuracy at least 10 points above that without clipping, or those "
            "seeds fail",
        ).judge(helps, clipping),
        Expectation(
            "a gradient that reaches teaches",
            f"accuracy at least {LEARNED:.0%} wherever the truncation is longer than the delay",
        ).judge(teaches, truncation),
        Expectation("truncation limits credit, tanh", CUT).judge(cut, truncation, TANH),
        Expectation("truncation limits credit, LSTM", CUT).judge(cut, truncation, LSTM),
    ]


def _all_of(config, results, part):
    """The trainings of a part, none unless all are there."""
    trained = getattr(results, part)
    complete = len(trained) == sum(setting.part == part for setting in settings_of(config))
    return trained if complete else ()


def order(worked: Worked) -> tuple[str, Any]:
    measured = f"off by {worked.in_order:.0e}; reversed by {worked.reversed:.0%}"
    return measured, worked.in_order < 1e-5 and worked.reversed > 0.1


def average(worked: Worked) -> tuple[str, Any]:
    shown = ", ".join(f"{number:g}" for number in worked.average)
    good = worked.average == (*STATES, 1 / 8) and worked.detached == (*STATES, 0)
    return f"{shown}; detached {worked.detached[-1]:g}", good


def linear(swept: Mapping[str, Swept], gains: Sequence[float]) -> tuple[str, Any]:
    off = np.abs(swept["linear"].exponents - np.log(gains)[:, None]).max(axis=(1, 2))
    return f"off by at most {off[0]:.0e} and {off[1]:.1e}", off[0] < 1e-3 and off[1] < 0.1


def sign(swept: Mapping[str, Swept], gains: Sequence[float], side: int) -> tuple[str, Any]:
    """Whether exponents have the sign that `side` says, at the radii on this side of 1."""
    beyond = side * (np.array(gains) - 1) > 0
    held = {name: side * swept[name].exponents[:, beyond] > 0 for name in CURVED}
    word = "above" if side > 0 else "below"
    shown = (f"{name}: {one.sum()} of {one.size} {word} 0" for name, one in held.items())
    return ", ".join(shown), all(one.all() for one in held.values())


def linear_part(swept: Mapping[str, Swept], gains: Sequence[float]) -> tuple[str, Any]:
    linear, tanh = (swept[name].exponents[0, gains.index(1.0)] for name in ("linear", "tanh"))
    measured = f"{np.abs(linear).max():.0e} off 0; tanh {tanh.max():+.2f}"
    return measured, (np.abs(linear) < 1e-3).all() and (tanh < -0.01).all()


def drift(swept: Mapping[str, Swept], num_units: int) -> tuple[str, Any]:
    bound, highest = math.sqrt(num_units), swept["tanh"].norms.max()
    ends, means = (values[0, :, :, -1] for values in swept["relu"][1:])
    measured = f"norms {ends[-1].min():.0e} and {ends[0].max():.1f}, tanh {highest:.1f}"
    grown = (ends[-1] > 100 * bound).all() and (means[-1] > 0).all()
    return measured, grown and (ends[0] < 10 * bound).all() and highest < bound


def gates(gated: Mapping[str, Gated]) -> tuple[str, Any]:
    median = {name: float(np.median(one.horizons)) for name, one in gated.items()}
    chrono, one, none = (median[f"LSTM, {n}"] for n in ("chrono", "forget bias 1", "forget bias 0"))
    return _shown(median, "g", "; "), chrono > one > none and chrono >= 5 * median["Elman"]


def flat(formats: Mapping[str, Saturated]) -> tuple[str, Any]:
    one = formats["float32"]
    measured = f"slope exactly 0 from {one.end:.2f} on, tanh exactly 1 from {one.one:.2f} on"
    return measured, 7 < one.end <= 9 and one.one <= 9


def overflow(grown: Mapping[float, Grown]) -> tuple[str, Any]:
    parts, good = [], True
    for rate, one in grown.items():
        step, predicted = one.overflow("float16"), one.predicted()
        parts.append(f"{rate:.0%}: {step} (predicted {predicted})")
        good &= step is not None and abs(step - predicted) <= 0.05 * predicted
        good &= step is not None and bool(np.isfinite(one.states[IN_LIBRARY][step - 1]))
    return ", ".join(parts), good


def norms(warned: Mapping[str, Warned]) -> tuple[str, Any]:
    growth = {name: one.silent_norms[-1] / one.silent_norms[0] for name, one in warned.items()}
    good = growth[EXPLODING] > 1e3 and growth[VANISHING] < 1e-3 and 0.1 < growth[HEALTHY] < 10
    return _shown(growth, ".1e"), good


def ratio(warned: Mapping[str, Warned]) -> tuple[str, Any]:
    ratios = {name: one.ratio for name, one in warned.items()}
    return _shown(ratios, ".2g"), ratios[VANISHING] < 0.01 <= ratios[HEALTHY]


def reach(warned: Mapping[str, Warned]) -> tuple[str, Any]:
    reach = {name: one.reach for name, one in warned.items()}
    good = reach[VANISHING] < 1e-6 and reach[HEALTHY] > 0.01 and reach[EXPLODING] > 1e3
    return _shown(reach, ".1e"), good


def shortens(warned: Mapping[str, Warned]) -> tuple[str, Any]:
    one = warned[EXPLODING]
    measured = (
        f"{one.raw:.1e} to {one.clipped:.2f}, cosine off 1 by {abs(1 - one.cosine):.0e}; last norm "
        f"{one.norms[-1]:.1e}, after the update {one.norm_updated:.1e}"
    )
    good = abs(1 - one.cosine) < 1e-6 and one.clipped <= MAX_NORM * (1 + 1e-6) < one.raw
    return measured, good and one.norm_updated > 1e3 * one.norms[0]


def restores_nothing(warned: Mapping[str, Warned], trained: Sequence[Trained]) -> tuple[str, Any]:
    before, after = warned[VANISHING].long_share, warned[VANISHING].long_share_clipped
    with_clip, without = _by_clip(trained, vanishing=True)
    measured = (
        f"share {before:.0e}, after clipping {after:.0e}; accuracy {np.fmax.reduce(with_clip):.0%} "
        f"clipped, {np.fmax.reduce(without):.0%} not"
    )
    good = before < 1e-3 and abs(after - before) <= 1e-6 * before
    return measured, good and np.max([with_clip, without]) < NOT_LEARNED


def helps(trained: Sequence[Trained]) -> tuple[str, Any]:
    with_clip, without = _by_clip(trained, vanishing=False)
    failed = np.isnan(without)
    rest = np.mean(without[~failed]) if not failed.all() else math.nan
    measured = f"{np.mean(with_clip):.0%} clipped; {rest:.0%} not, {failed.sum()} seeds failed"
    return measured, failed.all() or np.mean(with_clip) >= rest + 0.1


def _by_clip(trained, vanishing):
    """Accuracies from one of the starts, with a clip and without."""
    chosen = [one for one in trained if (one.setting.gain == VANISHING_GAIN) == vanishing]
    return [
        np.concatenate([x.accuracy for x in chosen if math.isfinite(x.setting.clip) == clipped])
        for clipped in (True, False)
    ]


def teaches(trained: Sequence[Trained]) -> tuple[str, Any]:
    least = {f"{cell} at least": math.nan for cell in CELLS}
    for one in (one for one in trained if one.setting.reaches):
        name = f"{one.setting.cell} at least"
        least[name] = np.fmin(least[name], one.median)
    return _shown(least, ".0%"), all(value >= LEARNED for value in least.values())


def cut(trained: Sequence[Trained], cell: str) -> tuple[str, Any]:
    longest = max(one.setting.delay for one in trained)
    chosen = {
        f"truncation {one.setting.truncation}": one.median
        for one in trained
        if (one.setting.cell, one.setting.delay, one.setting.reaches) == (cell, longest, False)
    }
    measured = f"delay {longest}: {_shown(chosen, '.0%')}"
    return measured, chosen and max(chosen.values()) <= NOT_LEARNED


def _shown(values: Mapping[str, float], form: str, between: str = ", ") -> str:
    return between.join(f"{name} {value:{form}}" for name, value in values.items())
