"""The figures: the radius, gates, number formats, warnings, clipping and truncation."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.patches import Rectangle

from experiments.frame.figures import PALETTE, figure, line_styles
from experiments.frame.plots import (
    draw_carry_norms,
    draw_jacobian_spectrum,
    draw_last_output_sensitivity,
)
from experiments.gradients.config import Config
from experiments.gradients.gates import Gated
from experiments.gradients.judges import by_pair, reaches
from experiments.gradients.precision import (
    ARGUMENTS,
    FORMATS,
    INPUT_SCALES,
    Grown,
    Saturated,
)
from experiments.gradients.recall import NUM_SYMBOLS, Clipped, Recalled
from experiments.gradients.sweep import KERNELS, Swept
from experiments.gradients.warning import Warned

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
    "clipping": "Accuracy of the recall by update (means of 50), a line a seed; solid: clipped, "
    "dashed: not. Right: norm of the gradient before clipping.",
    "truncation": "Accuracy of the recall (median over seeds) by delay and truncation; framed: the "
    "gradient reaches the symbol. Right: what is learned along the updates at the longest delay, a "
    "line a seed; dotted: chance.",
}
SHOWN_GAINS = 5


def radius(config: Config, swept: Sequence[Swept], path: Path) -> None:
    """Exponents and norms, a column for each activation."""
    gains = np.array(config.gains)
    places = np.unique(np.linspace(0, len(gains) - 1, SHOWN_GAINS).astype(int))
    with figure(path, 10, 5.6) as canvas:
        axes = canvas.subplots(2, len(swept), squeeze=False, sharey="row")
        for (top, bottom), one in zip(axes.T, swept, strict=True):
            top.plot(gains, np.log(gains), color="black", linewidth=1, label="log ρ")
            for kind, values, color in zip(KERNELS, one.exponents, PALETTE, strict=False):
                top.plot(gains, np.median(values, axis=1), color=color, label=kind)
                top.plot(gains, values, ".", color=color, markersize=4)
            top.axhline(0, color="black", linewidth=0.6, linestyle=":")
            top.set(title=one.activation, xlabel="spectral radius ρ")
            norms = {f"ρ = {gains[i]:g}": one.norms[0, i, 0] for i in places}
            draw_carry_norms(bottom, norms)
            bottom.get_legend().remove()
            bottom.set(ylabel="", ylim=(1e-2, 1e12))
        axes[0, 0].set_ylabel("largest Lyapunov exponent\n(nats per step)")
        axes[1, 0].set_ylabel("norm of the carry ‖hₜ‖")
        axes[0, 0].legend()
        axes[1, len(swept) // 2].legend(fontsize="small")


def gates(config: Config, gated: Sequence[Gated], path: Path) -> None:
    """Sensitivities of the first seed, and three spectra."""
    del config
    with figure(path, 10, 3.8) as canvas:
        left, right = canvas.subplots(1, 2)
        draw_last_output_sensitivity(left, {one.name: one.sensitivity[0] for one in gated})
        left.set_ylim(bottom=1e-12)
        for one, color in zip(gated, PALETTE, strict=False):
            if one.spectrum is not None:
                draw_jacobian_spectrum(right, one.spectrum, one.name, color)
        right.set_ylim(bottom=-30)


def formats(config: Config, saturated: Saturated, grown: Sequence[Grown], path: Path) -> None:
    """The slope of tanh, saturated units, and growth."""
    del config
    styles = line_styles(FORMATS)
    with figure(path, 10, 3.4) as canvas:
        left, middle, right = canvas.subplots(1, 3)
        for name, style in styles.items():
            slopes = saturated.slopes[name]
            plain = {"color": style["color"], "label": name}
            left.plot(ARGUMENTS, np.where(slopes > 0, slopes, np.nan), **plain)
            left.axvline(saturated.ends[name], color=style["color"], linestyle=":", linewidth=1)
            middle.plot(INPUT_SCALES, 100 * saturated.shares[name], label=name, **style)
        left.set(yscale="log", xlabel="argument", ylabel="slope of tanh")
        middle.set(xscale="log", xlabel="size of the inputs", ylabel="saturated units (%)")
        if grown:
            one = min(grown, key=lambda one: abs(one.rate - 0.02))
            _draw_growth(right, one)
        right.axhline(65504, color="black", linewidth=0.8, linestyle=":", label="65504")
        right.set(yscale="log", xscale="log", xlabel="step", ylabel="state", ylim=(1, 1e30))
        for axis in (left, middle, right):
            axis.legend(fontsize="small")


def _draw_growth(axis, one):
    """The widest line first, as some lie on each other; a cross where a state overflows."""
    widths = (1.6, 1.6, 4.0)
    drawn = list(zip(one.states.items(), PALETTE, widths, strict=False))
    for (name, states), color, width in reversed(drawn):
        axis.plot(np.where(np.isfinite(states), states, np.nan), color=color, lw=width, label=name)
        if last := one.overflow(name):
            axis.plot(last - 2, states[last - 2], "x", color=color, markersize=8, zorder=5)


def warnings(config: Config, warned: Sequence[Warned], path: Path) -> None:
    """Norms of the carry and sensitivities of the three networks."""
    del config
    with figure(path, 10, 3.4) as canvas:
        left, middle, right = canvas.subplots(1, 3)
        draw_carry_norms(left, {one.name: one.norms for one in warned})
        draw_carry_norms(middle, {one.name: one.silent_norms for one in warned})
        draw_last_output_sensitivity(right, {one.name: one.sensitivity for one in warned})
        for axis, title in ((left, "inputs at every step"), (middle, "one input, then silence")):
            axis.set(title=title, ylim=(1e-8, 1e14))
        right.set(title="reach", ylim=(1e-12, 1e14))


def clipping(config: Config, trained: Sequence[Clipped], path: Path) -> None:
    """Accuracy and gradient norm of every seed."""
    del config
    colors = {gain: PALETTE[i] for i, gain in enumerate(sorted({one.gain for one in trained}))}
    with figure(path, 10, 3.4) as canvas:
        left, right = canvas.subplots(1, 2)
        for one in trained:
            is_clipped = math.isfinite(one.clip)
            style = {"color": colors[one.gain], "linestyle": "-" if is_clipped else "--"}
            label = f"ρ = {one.gain:g}, {'clipped' if is_clipped else 'not clipped'}"
            label = label if one.seed == min(other.seed for other in trained) else "_"
            values = 100 * one.fitted.history["accuracy"].mean(axis=1)
            updates = np.cumsum([len(row) for row in one.fitted.history["accuracy"]])
            left.plot(updates, values, label=label, **style)
            norms = np.median(one.fitted.history["gradient_norm"], axis=1)
            right.plot(updates, np.where(norms > 0, norms, np.nan), **style)
        left.axhline(100 / NUM_SYMBOLS, color="black", linewidth=0.8, linestyle=":")
        left.set(xlabel="update", ylabel="accuracy (%)", ylim=(0, 102))
        right.set(xlabel="update", ylabel="norm of the gradient", yscale="log")
        canvas.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=4)


def truncation(config: Config, trained: Sequence[Recalled], path: Path) -> None:
    """Accuracy by delay and truncation, and over the updates at the longest delay, by cell."""
    cells = list(dict.fromkeys(one.cell for one in trained))
    with figure(path, 10, 3 * len(cells)) as canvas:
        for (left, right), cell in zip(
            canvas.subplots(len(cells), 2, squeeze=False), cells, strict=True
        ):
            image = _draw_map(left, config, by_pair(trained, cell))
            left.set_title(cell)
            canvas.colorbar(image, ax=left, label="accuracy (%)")
            _draw_longest(right, config, [one for one in trained if one.cell == cell])


def _draw_map(axis, config, found):
    table = np.full((len(config.delays), len(config.truncations)), np.nan)
    for row, delay in enumerate(config.delays):
        for column, steps in enumerate(config.truncations):
            if reaches(delay, steps):
                corner = column - 0.46, row - 0.44
                color = PALETTE[1]
                axis.add_patch(Rectangle(corner, 0.92, 0.88, fill=False, edgecolor=color, lw=2.5))
            if (delay, steps) in found:
                value = table[row, column] = found[delay, steps]
                color = "black" if value > 0.6 else "white"
                axis.text(column, row, f"{value:.0%}", ha="center", va="center", color=color)
    axis.set_xticks(range(len(config.truncations)), list(map(str, config.truncations)))
    axis.set_yticks(range(len(config.delays)), list(map(str, config.delays)))
    axis.set(xlabel="truncation (steps)", ylabel="delay (steps)")
    axis.grid(False)
    return axis.imshow(100 * table, cmap="cividis", vmin=0, vmax=100, aspect="auto")


def _draw_longest(axis, config, trained):
    longest = max(one.delay for one in trained)
    for index, steps in enumerate(config.truncations):
        chosen = [one for one in trained if (one.delay, one.truncation) == (longest, steps)]
        for one in chosen:
            accuracies = 100 * one.fitted.history["accuracy"].mean(axis=1)
            updates = np.cumsum([len(row) for row in one.fitted.history["accuracy"]])
            label = f"truncation {steps}" if one is chosen[0] else "_"
            axis.plot(updates, accuracies, color=PALETTE[index % len(PALETTE)], label=label)
    axis.axhline(100 / NUM_SYMBOLS, color="black", linewidth=0.8, linestyle=":")
    axis.set(xlabel="update", ylabel="accuracy (%)", ylim=(0, 102), title=f"delay {longest}")
    axis.legend(fontsize="small")
