"""Whether what was measured is what was expected: a judge for each line."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.frame.verdicts import Expectation, Verdict
from experiments.gradients.config import Config
from experiments.gradients.gates import Gated
from experiments.gradients.precision import IN_LIBRARY, Grown, Saturated
from experiments.gradients.recall import (
    CELLS,
    EXPLODING_GAIN,
    LSTM,
    TANH,
    VANISHING_GAIN,
    Clipped,
    Recalled,
    accuracy,
)
from experiments.gradients.sweep import GAUSSIAN, KERNELS, ORTHOGONAL, Swept
from experiments.gradients.warning import EXPLODING, HEALTHY, MAX_NORM, VANISHING, Warned
from experiments.gradients.worked import STATES, Worked

LEARNED, NOT_LEARNED = 0.9, 0.5


def order(line: Expectation, config: Config, have: list[Worked]) -> Verdict:
    """Derivatives against the product."""
    (one,) = have
    measured = f"off by {one.in_order:.0e}; reversed by {one.reversed:.0%}"
    return line.verdict(measured, one.in_order < 1e-5 and one.reversed > 0.1)


def average(line: Expectation, config: Config, have: list[Worked]) -> Verdict:
    """Against what is worked out by hand."""
    (one,) = have
    measured = (
        f"{', '.join(f'{state:g}' for state in one.states)}; {one.sensitivity:g}; detached "
        f"{one.detached_sensitivity:g}"
    )
    good = one.states == one.detached_states == STATES
    return line.verdict(
        measured, good and (one.sensitivity, one.detached_sensitivity) == (1 / 8, 0)
    )


def exponents(have: Sequence[Swept], activation: str) -> np.ndarray:
    """Of one activation, `[kernels, gains, S]`."""
    return next(one.exponents for one in have if one.activation == activation)


def linear(line: Expectation, config: Config, have: list[Swept]) -> Verdict:
    """The exponents against log ρ."""
    off = np.abs(exponents(have, "linear") - np.log(config.gains)[:, None]).max(axis=(1, 2))
    measured = f"off by at most {off[0]:.0e} and {off[1]:.1e}"
    limits = {ORTHOGONAL: 1e-3, GAUSSIAN: 0.1}
    return line.verdict(measured, all(off[i] < limits[kind] for i, kind in enumerate(KERNELS)))


def below(line: Expectation, config: Config, have: list[Swept]) -> Verdict:
    """Every exponent at a radius below 1."""
    chosen = np.array(config.gains) < 1
    found = {name: exponents(have, name)[:, chosen] for name in ("tanh", "relu")}
    measured = ", ".join(f"{name} at most {one.max():+.2f}" for name, one in found.items())
    return line.verdict(measured, all((one < 0).all() for one in found.values()))


def above(line: Expectation, config: Config, have: list[Swept]) -> Verdict:
    """Every exponent at a radius above 1."""
    chosen = np.array(config.gains) > 1
    found = {name: exponents(have, name)[:, chosen] for name in ("tanh", "relu")}
    measured = ", ".join(
        f"{name}: {(one > 0).sum()} of {one.size} above 0" for name, one in found.items()
    )
    return line.verdict(measured, all((one > 0).all() for one in found.values()))


def linear_part(line: Expectation, config: Config, have: list[Swept]) -> Verdict:
    """The exponents of an orthogonal kernel."""
    place = KERNELS.index(ORTHOGONAL), config.gains.index(1.0)
    linear, tanh = (exponents(have, name)[place] for name in ("linear", "tanh"))
    measured = f"{np.abs(linear).max():.0e} off 0; tanh {tanh.max():+.2f}"
    return line.verdict(measured, (np.abs(linear) < 1e-3).all() and (tanh < -0.01).all())


def drift(line: Expectation, config: Config, have: list[Swept]) -> Verdict:
    """Norms and means of relu at the ends of the range."""
    place = KERNELS.index(ORTHOGONAL)
    bound = math.sqrt(config.num_units)
    relu, tanh = (next(s for s in have if s.activation == name) for name in ("relu", "tanh"))
    ends = relu.norms[place, :, :, -1]
    means = relu.means[place, -1, :, -1]
    measured = f"norms {ends[-1].min():.0e} and {ends[0].max():.1f}, tanh {tanh.norms.max():.1f}"
    grown = (ends[-1] > 100 * bound).all() and (means > 0).all()
    return line.verdict(
        measured, grown and (ends[0] < 10 * bound).all() and tanh.norms.max() < bound
    )


def gates(line: Expectation, config: Config, have: list[Gated]) -> Verdict:
    """Horizons."""
    median = {one.name: float(np.median(one.horizons)) for one in have}
    measured = "; ".join(f"{name} {value:g}" for name, value in median.items())
    chrono, one, none = (median[f"LSTM, {n}"] for n in ("chrono", "forget bias 1", "forget bias 0"))
    return line.verdict(measured, chrono > one > none and chrono >= 5 * median["Elman"])


def flat(line: Expectation, config: Config, have: list[Saturated]) -> Verdict:
    """Where float32 is flat."""
    (one,) = have
    end, first = one.ends["float32"], one.ones["float32"]
    measured = f"slope exactly 0 from {end:.2f} on, tanh exactly 1 from {first:.2f} on"
    return line.verdict(measured, 7 < end <= 9 and first <= 9)


def overflow(line: Expectation, config: Config, have: list[Grown]) -> Verdict:
    """Where a growing state ends."""
    parts, good = [], True
    for one in have:
        step, predicted = one.overflow("float16"), one.predicted()
        parts.append(f"{one.rate:.0%}: {step} (predicted {predicted})")
        good &= step is not None and abs(step - predicted) <= 0.05 * predicted
        good &= step is not None and bool(np.isfinite(one.states[IN_LIBRARY][step - 1]))
    return line.verdict(", ".join(parts), good)


def _named(have):
    return {one.name: one for one in have}


def norms(line: Expectation, config: Config, have: list[Warned]) -> Verdict:
    """Growth behind one input."""
    growth = {one.name: one.silent_norms[-1] / one.silent_norms[0] for one in have}
    measured = ", ".join(f"{name} {value:.1e}" for name, value in growth.items())
    good = growth[EXPLODING] > 1e3 and growth[VANISHING] < 1e-3
    return line.verdict(measured, good and 0.1 < growth[HEALTHY] < 10)


def ratio(line: Expectation, config: Config, have: list[Warned]) -> Verdict:
    """Gradient norms."""
    ratios = {one.name: one.recurrent / one.inputs for one in have}
    measured = ", ".join(f"{name} {value:.2g}" for name, value in ratios.items())
    return line.verdict(measured, ratios[VANISHING] < 0.01 <= ratios[HEALTHY])


def reach(line: Expectation, config: Config, have: list[Warned]) -> Verdict:
    """The first input against the last."""
    reach = {one.name: one.sensitivity[0] / one.sensitivity[-1] for one in have}
    measured = ", ".join(f"{name} {value:.1e}" for name, value in reach.items())
    good = reach[VANISHING] < 1e-6 and reach[HEALTHY] > 0.01 and reach[EXPLODING] > 1e3
    return line.verdict(measured, good)


def shortens(line: Expectation, config: Config, have: list[Warned]) -> Verdict:
    """The exploding gradient, before and after."""
    one = _named(have)[EXPLODING]
    measured = (
        f"{one.raw:.1e} to {one.clipped:.2f}, cosine off 1 by {abs(1 - one.cosine):.0e}; last norm "
        f"{one.norms[-1]:.1e}, after the update {one.norm_updated:.1e}"
    )
    good = abs(1 - one.cosine) < 1e-6 and one.clipped <= MAX_NORM * (1 + 1e-6) < one.raw
    return line.verdict(measured, good and one.norm_updated > 1e3 * one.norms[0])


def accuracies(have: Sequence[Clipped], gain: float, clipped: bool) -> np.ndarray:
    """Of the seeds, NaN for those that failed."""
    chosen = [one for one in have if one.gain == gain and math.isfinite(one.clip) == clipped]
    return np.array([accuracy(one.fitted) for one in chosen])


def restores_nothing(line: Expectation, config: Config, have: list[Any]) -> Verdict:
    """The vanishing gradient, and what is learned from it."""
    net = _named([one for one in have if isinstance(one, Warned)])[VANISHING]
    trained = [one for one in have if isinstance(one, Clipped)]
    with_clip, without = (accuracies(trained, VANISHING_GAIN, flag) for flag in (True, False))
    change = abs(net.long_share_clipped - net.long_share)
    measured = (
        f"share {net.long_share:.0e}, after clipping {net.long_share_clipped:.0e}; accuracy "
        f"{np.nanmax(with_clip):.0%} clipped, {np.nanmax(without):.0%} not"
    )
    good = net.long_share < 1e-3 and change <= 1e-6 * net.long_share
    return line.verdict(measured, good and max(with_clip.max(), without.max()) < NOT_LEARNED)


def helps(line: Expectation, config: Config, have: list[Clipped]) -> Verdict:
    """What is learned from an exploding start."""
    with_clip, without = (accuracies(have, EXPLODING_GAIN, flag) for flag in (True, False))
    failed = int(np.isnan(without).sum())
    rest = float(np.nanmean(without)) if failed < len(without) else float("nan")
    measured = f"{np.mean(with_clip):.0%} clipped; {rest:.0%} not, {failed} seeds failed"
    return line.verdict(measured, failed == len(without) or np.mean(with_clip) >= rest + 0.1)


def by_pair(have: Sequence[Recalled], cell: str) -> dict[tuple[int, int], float]:
    """Median accuracy over seeds, by delay and truncation; failed seeds count as 0."""
    pairs: dict[tuple[int, int], list[float]] = {}
    for one in have:
        if one.cell == cell:
            value = accuracy(one.fitted)
            value = 0 if math.isnan(value) else value
            pairs.setdefault((one.delay, one.truncation), []).append(value)
    return {pair: float(np.median(values)) for pair, values in pairs.items()}


def reaches(delay: int, truncation: int) -> bool:
    """Whether the gradient of the recall goes back as far as the symbol."""
    return truncation > delay


def teaches(line: Expectation, config: Config, have: list[Recalled]) -> Verdict:
    """What is learned where the gradient reaches the symbol."""
    least = {}
    for cell in CELLS:
        found = by_pair(have, cell)
        least[cell] = min((v for pair, v in found.items() if reaches(*pair)), default=math.nan)
    measured = ", ".join(f"{cell} at least {value:.0%}" for cell, value in least.items())
    return line.verdict(measured, all(value >= LEARNED for value in least.values()))


def cut_tanh(line: Expectation, config: Config, have: list[Recalled]) -> Verdict:
    """What the plain cell learns where the gradient does not reach the symbol."""
    return _cut(line, config, by_pair(have, TANH))


def cut_lstm(line: Expectation, config: Config, have: list[Recalled]) -> Verdict:
    """What the LSTM learns where the gradient does not reach the symbol."""
    return _cut(line, config, by_pair(have, LSTM))


def _cut(line, config, found):
    longest = max(config.delays)
    chosen = {steps: v for (d, steps), v in found.items() if d == longest and not reaches(d, steps)}
    measured = f"delay {longest}: " + ", ".join(
        f"truncation {steps} {value:.0%}" for steps, value in chosen.items()
    )
    return line.verdict(measured, chosen and max(chosen.values()) <= NOT_LEARNED)
