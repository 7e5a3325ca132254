import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.frame.figures import PALETTE, labels_once, line_styles, new_figure
from experiments.frame.plots import (
    draw_carry_norms,
    draw_jacobian_spectrum,
    draw_last_output_sensitivity,
)
from experiments.gradients.config import UPDATES_PER_EPOCH, Config
from experiments.gradients.jacobians import CELLS, KERNELS
from experiments.gradients.measure import EXPLODING_GAIN, NUM_SYMBOLS, VANISHING_GAIN, Results
from experiments.gradients.warning import ARGUMENTS, FORMATS, INPUT_SCALES

SHOWN_GAINS, SHOWN_RATE = 5, 0.02


def radius(config: Config, results: Results) -> Figure:
    gains, swept = np.array(config.gains), results.radius
    places = np.unique(np.linspace(0, len(gains) - 1, SHOWN_GAINS).astype(int))
    canvas = new_figure(10, 5.6)
    axes = canvas.subplots(2, len(swept), squeeze=False, sharey="row")
    for (top, bottom), (activation, one) in zip(axes.T, swept.items(), strict=True):
        top.plot(gains, np.log(gains), color="black", linewidth=1, label="log ρ")
        for kind, values, color in zip(KERNELS, one.exponents, PALETTE, strict=False):
            top.plot(gains, np.median(values, axis=1), color=color, label=kind)
            top.plot(gains, values, ".", color=color, markersize=4)
        top.axhline(0, color="black", linewidth=0.6, linestyle=":")
        top.set(title=activation, xlabel="spectral radius ρ")
        draw_carry_norms(bottom, {f"ρ = {gains[i]:g}": one.norms[0, i, 0] for i in places})
        bottom.get_legend().remove()
        bottom.set(ylabel="", ylim=(1e-2, 1e12))
    axes[0, 0].set_ylabel("largest Lyapunov exponent\n(nats per step)")
    axes[1, 0].set_ylabel("norm of the carry ‖hₜ‖")
    axes[0, 0].legend()
    axes[1, len(swept) // 2].legend(fontsize="small")
    return canvas


def gates(config: Config, results: Results) -> Figure:
    canvas = new_figure(10, 3.8)
    left, right = canvas.subplots(1, 2)
    first = {name: one.sensitivity[0] for name, one in results.gates.items()}
    draw_last_output_sensitivity(left, first)
    left.set_ylim(bottom=1e-12)
    colors = dict(zip(CELLS, PALETTE, strict=False))
    for name, logs in results.spectra.items():
        draw_jacobian_spectrum(right, logs, name, colors[name])
    right.set_ylim(bottom=-30)
    return canvas


def formats(config: Config, results: Results) -> Figure:
    canvas = new_figure(10, 3.4)
    left, middle, right = canvas.subplots(1, 3)
    for name, style in line_styles(FORMATS).items():
        color, one = style["color"], results.formats[name]
        left.plot(ARGUMENTS, np.where(one.slopes > 0, one.slopes, np.nan), color=color, label=name)
        left.axvline(one.end, color=color, linestyle=":", linewidth=1)
        middle.plot(INPUT_SCALES, 100 * one.shares, label=name, **style)
    left.set(yscale="log", xlabel="argument", ylabel="slope of tanh")
    middle.set(xscale="log", xlabel="size of the inputs", ylabel="saturated units (%)")
    if results.growth:
        _draw_growth(right, results.growth[SHOWN_RATE])
    right.axhline(65504, color="black", linewidth=0.8, linestyle=":", label="65504")
    right.set(yscale="log", xscale="log", xlabel="step", ylabel="state", ylim=(1, 1e30))
    for axis in (left, middle, right):
        axis.legend(fontsize="small")
    return canvas


def _draw_growth(axis, one):
    """The widest line first, as some lie on each other; a cross where a state overflows."""
    drawn = list(zip(one.states.items(), PALETTE, (1.6, 1.6, 4.0), strict=False))
    for (name, states), color, width in reversed(drawn):
        axis.plot(np.where(np.isfinite(states), states, np.nan), color=color, lw=width, label=name)
        if last := one.overflow(name):
            axis.plot(last - 2, states[last - 2], "x", color=color, markersize=8, zorder=5)


def warnings(config: Config, results: Results) -> Figure:
    canvas, warned = new_figure(10, 3.4), results.warnings
    left, middle, right = canvas.subplots(1, 3)
    draw_carry_norms(left, {name: one.norms for name, one in warned.items()})
    draw_carry_norms(middle, {name: one.silent_norms for name, one in warned.items()})
    draw_last_output_sensitivity(right, {name: one.sensitivity for name, one in warned.items()})
    left.set(title="inputs at every step", ylim=(1e-8, 1e14))
    middle.set(title="one input, then silence", ylim=(1e-8, 1e14))
    right.set(title="reach", ylim=(1e-12, 1e14))
    return canvas


def clipping(config: Config, results: Results) -> Figure:
    canvas = new_figure(10, 3.4)
    left, right = canvas.subplots(1, 2)
    colors = {VANISHING_GAIN: PALETTE[0], EXPLODING_GAIN: PALETTE[1]}
    for setting, fitted in results.clipping:
        line, word = ("-", "clipped") if math.isfinite(setting.clip) else ("--", "not clipped")
        style = {"color": colors[setting.gain], "linestyle": line}
        _draw_accuracy(left, fitted, label=f"ρ = {setting.gain:g}, {word}", **style)
        norms = np.median(fitted.history["gradient_norm"], axis=2)
        right.plot(_updates(norms), np.where(norms > 0, norms, np.nan).T, **style)
    left.axhline(100 / NUM_SYMBOLS, color="black", linewidth=0.8, linestyle=":")
    right.set(xlabel="update", ylabel="norm of the gradient", yscale="log")
    canvas.legend(*labels_once([left]), loc="outside upper center", ncols=4)
    return canvas


def truncation(config: Config, results: Results) -> Figure:
    cells = list(dict.fromkeys(one.setting.cell for one in results.truncation))
    canvas = new_figure(10, 3 * len(cells))
    axes = canvas.subplots(len(cells), 2, squeeze=False)
    for (left, right), cell in zip(axes, cells, strict=True):
        chosen = [one for one in results.truncation if one.setting.cell == cell]
        canvas.colorbar(_draw_map(left, config, chosen), ax=left, label="accuracy (%)")
        left.set_title(cell)
        longest = max(one.setting.delay for one in chosen)
        for one in (one for one in chosen if one.setting.delay == longest):
            steps = one.setting.truncation
            color = PALETTE[config.truncations.index(steps) % len(PALETTE)]
            _draw_accuracy(right, one.fitted, color=color, label=f"truncation {steps}")
        right.axhline(100 / NUM_SYMBOLS, color="black", linewidth=0.8, linestyle=":")
        right.set_title(f"delay {longest}")
        right.legend(*labels_once([right]), fontsize="small")
    return canvas


def _draw_map(axis, config, trained):
    table = np.full((len(config.delays), len(config.truncations)), np.nan)
    for one in trained:
        row = config.delays.index(one.setting.delay)
        column = config.truncations.index(one.setting.truncation)
        if one.setting.reaches:
            corner, edge = (column - 0.46, row - 0.44), PALETTE[1]
            axis.add_patch(Rectangle(corner, 0.92, 0.88, fill=False, edgecolor=edge, lw=2.5))
        table[row, column] = one.median
        color = "black" if one.median > 0.6 else "white"
        axis.text(column, row, f"{one.median:.0%}", ha="center", va="center", color=color)
    axis.set_xticks(range(len(config.truncations)), list(map(str, config.truncations)))
    axis.set_yticks(range(len(config.delays)), list(map(str, config.delays)))
    axis.set(xlabel="truncation (steps)", ylabel="delay (steps)")
    axis.grid(False)
    return axis.imshow(100 * table, cmap="cividis", vmin=0, vmax=100, aspect="auto")


def _draw_accuracy(axis, fitted, **style):
    values = fitted.of_epochs()["accuracy"]
    axis.plot(_updates(values), 100 * values.T, **style)
    axis.set(xlabel="update", ylabel="accuracy (%)", ylim=(0, 102))


def _updates(values):
    return UPDATES_PER_EPOCH * np.arange(1, values.shape[1] + 1)
