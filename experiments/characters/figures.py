from typing import get_args

import numpy as np
from matplotlib.figure import Figure

from experiments.characters.config import Config, Model
from experiments.characters.measure import Results, over_topics
from experiments.characters.model import Sized
from experiments.characters.writing import DECODINGS, GREEDY, SAMPLED
from experiments.frame.figures import PALETTE, new_figure

GRAY = "#666666"
UPDATES = 32  # in a point of the training curves
STEPS = 16  # characters in a point of the curves of free running
MARKERS = dict(zip(DECODINGS, ("o", "s", "^", "D", "v"), strict=True))
LINES = {"carried": "-", "reset": "--"}


def training(config: Config, results: Results) -> Figure:
    canvas = new_figure(10, 4)
    panels = canvas.subplots(1, 2)
    labels = {"loss": "bits per character", "gradient_norm": "norm of the gradient"}
    for axes, (name, label) in zip(panels, labels.items(), strict=True):
        for one in results.scored:
            values = one.fitted.of_updates()[name][0]
            size = min(UPDATES, len(values))
            means = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
            updates = size * np.arange(1, len(means) + 1)
            axes.plot(updates, means, LINES[one.mode], color=_color(one.model), label=one.name)
        axes.set(xlabel="update", ylabel=label)
    panels[1].axhline(config.gradient_clip, color=GRAY, linestyle=":", label="clipped above")
    panels[1].set_yscale("log")
    for axes in panels:
        axes.legend(fontsize=7, ncols=2)
    return canvas


def bits(config: Config, results: Results) -> Figure:
    ordered = sorted(results.scored, key=lambda one: -one.mean_bits)
    canvas = new_figure(8, 1.4 + 0.32 * len(ordered))
    axes = canvas.subplots()
    for row, one in enumerate(ordered):
        mean, *ends = over_topics(one.bits)
        color = _color(one.model)
        axes.plot(ends, [row, row], color=color, linewidth=1)
        fill = color if one.mode == "carried" else "white"
        axes.plot(mean, row, "o", color=color, markerfacecolor=fill)
    axes.set_yticks(range(len(ordered)), [one.name for one in ordered])
    for name, value in results.baselines.items():
        axes.axvline(value, color=GRAY, linestyle=":", linewidth=1)
        axes.text(value, len(ordered) - 0.3, f" {name}", fontsize=7, rotation=45, color=GRAY)
    axes.set(xlabel="held-out bits per character", ylim=(-0.7, len(ordered) + 0.4))
    return canvas


def positions(config: Config, results: Results) -> Figure:
    by_mode = {mode: results.of_mode(mode) for mode in config.modes}
    by_mode = {mode: scored for mode, scored in by_mode.items() if scored}
    canvas = new_figure(5 * len(by_mode), 4)
    panels = canvas.subplots(1, len(by_mode), sharey=True, squeeze=False)[0]
    for axes, (mode, scored) in zip(panels, by_mode.items(), strict=True):
        for one in scored:
            for read, values in one.by_position.items():
                label = one.model.label if read == "carried" else None
                places = np.arange(1, len(values) + 1)
                axes.plot(places, values, LINES[read], color=_color(one.model), label=label)
        axes.set(xscale="log", xlabel="place in the chunk (characters)")
        axes.set_title(f"carry {'handed on' if mode == 'carried' else 'reset'} in training")
        axes.set_ylabel("held-out bits per character")
        axes.legend(fontsize=8)
    return canvas


def free_running(config: Config, results: Results) -> Figure:
    canvas = new_figure(10, 4)
    left, right = canvas.subplots(1, 2)
    for own in results.written:
        look = {"color": _color(own.model)}
        left.plot(*_by_steps(100 * own.forced.right), "-", label=own.model.label, **look)
        left.plot(*_by_steps(100 * own.free_right), "--", **look)
        right.plot(*_by_steps(own.by_decoding[GREEDY].bits), "--", **look)
        right.plot(*_by_steps(own.by_decoding[SAMPLED].bits), "-", label=own.model.label, **look)
    right.plot(*_by_steps(results.truth.bits), "-", color="black", label="truth")
    left.set_ylabel("characters as in the truth (%)")
    right.set_ylabel("bits per character for the judge")
    for axes in (left, right):
        axes.set(xlabel="characters after the prompt", ylim=(0, None))
        axes.legend(fontsize=7, ncols=2)
    return canvas


def decodings(config: Config, results: Results) -> Figure:
    canvas = new_figure(7, 4.6)
    axes = canvas.subplots()
    for own in results.written:
        for name, one in own.by_decoding.items():
            point = one.bits.mean(), 100 * one.traits.distinct
            axes.plot(*point, MARKERS[name], color=_color(own.model), markersize=7, alpha=0.85)
    real = results.truth.bits.mean(), 100 * results.truth.traits.distinct
    axes.plot(*real, "X", color="black", markersize=11, label="truth")
    for name, marker in MARKERS.items():
        axes.plot([], [], marker, color=GRAY, label=name)
    for own in results.written:
        axes.plot([], [], "-", color=_color(own.model), label=own.model.label, lw=4)
    axes.set_xlabel("bits per character for the n-gram judge")
    axes.set_ylabel("runs of 12 characters said first (%)")
    axes.legend(fontsize=8, loc="lower right")
    return canvas


def _by_steps(values):
    """Means over the passages and over `STEPS` characters."""
    steps = values.shape[1] // STEPS
    means = values[:, : steps * STEPS].reshape(len(values), steps, STEPS).mean(axis=(0, 2))
    return STEPS * (np.arange(steps) + 0.5), means


def _color(model: Sized) -> str:
    return PALETTE[get_args(Model).index(model.mixer)]
