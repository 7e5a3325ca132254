from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.digits.measure import Results
from experiments.digits.model import FAMILIES, family
from experiments.digits.probes import EMPTY
from experiments.digits.task import ORDERS
from experiments.frame.figures import PALETTE, line_styles, new_figure
from experiments.frame.models import LABELS

DECADES = 6
COLORS = dict(zip(FAMILIES, PALETTE, strict=False))


def accuracy(results: Results) -> Figure:
    trainings = results.trainings
    names = [one.sized.name for one in trainings]
    canvas = new_figure(9, 1.2 + 0.36 * len(names))
    panels = canvas.subplots(1, len(ORDERS), sharex=True, sharey=True)
    for axes, task in zip(panels, results.tasks, strict=True):
        axes.set(title=task.order, xlabel="test accuracy (%)")
        for row, one in enumerate(trainings):
            percent = 100 * one.accuracy(task)
            color = COLORS[family(one.sized.name)]
            axes.plot(percent, np.full(len(percent), row), "o", color=color, alpha=0.6)
            if len(percent):
                axes.plot(percent.mean(), row, "|", color=color, markersize=16)
        for entry, line in zip(results.baselines[1:], ("--", ":"), strict=True):
            axes.axvline(100 * entry.shuffled, color="black", linestyle=line, label=entry.name)
    panels[0].set_yticks(range(len(names)), [LABELS[name] for name in names])
    panels[0].invert_yaxis()
    for kind, color in COLORS.items():
        panels[0].plot([], [], "o", color=color, label=kind)
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return canvas


def training(results: Results) -> Figure:
    styles = line_styles(one.sized.name for one in results.trainings)
    canvas = new_figure(10, 4)
    panels = canvas.subplots(1, len(ORDERS), sharey=True)
    for axes, order in zip(panels, ORDERS, strict=True):
        axes.set(title=order, xlabel="epoch")
        for one in results.trainings:
            trained = one.of_order(order)
            values = one.fitted.history["validation"][trained][~one.fitted.failed[trained]]
            if len(values):
                epochs, mean = np.arange(1, values.shape[1] + 1), 100 * values.mean(axis=0)
                label, style = LABELS[one.sized.name], styles[one.sized.name]
                axes.plot(epochs, mean, label=label, **style)
    panels[0].set_ylabel("validation accuracy (%)")
    handles = panels[0].get_legend_handles_labels()
    canvas.legend(*handles, loc="outside right center")
    return canvas


def reach(results: Results) -> Figure:
    names = [LABELS[one.name] for one in results.reaches]
    canvas = new_figure(11, 1.4 + 0.32 * len(names))
    panels = canvas.subplots(1, len(ORDERS), sharey=True)
    for index, (axes, order) in enumerate(zip(panels, ORDERS, strict=True)):
        rows = np.stack([one.sensitivity[index] for one in results.reaches])
        relative = rows / rows.max(axis=1, keepdims=True)
        decades = np.log10(np.maximum(relative, 10.0**-DECADES))
        extent = (0.5, rows.shape[1] + 0.5, len(names) - 0.5, -0.5)
        image = axes.imshow(decades, "cividis", aspect="auto", extent=extent,
                            vmin=-DECADES, vmax=0, interpolation="none")  # fmt: skip
        axes.set(title=order, xlabel="step of the pixel")
        axes.grid(False)
    panels[0].set_yticks(range(len(names)), names)
    text = "sensitivity of the last output,\nlog₁₀ relative to the largest"
    canvas.colorbar(image, ax=panels, label=text, extend="min")
    return canvas


def cost(results: Results) -> Figure:
    times, names = results.times, [one.name for one in results.counted]
    assert times is not None
    streaming = [min(one.carry_bytes.items())[1] / 1024 for one in results.counted]
    bars = {
        "update of all trainings\n(processor ms)": [
            1e3 * np.median(times.update[n]) for n in names
        ],
        "one streamed pixel\n(processor µs)": [1e6 * np.median(times.token[n]) for n in names],
        "carry of one stream\n(KiB)": streaming,
    }
    canvas = new_figure(10, 1.2 + 0.32 * len(names))
    panels = canvas.subplots(1, len(bars), sharey=True)
    for axes, (title, values) in zip(panels, bars.items(), strict=True):
        colors = [COLORS[family(name)] for name in names]
        axes.barh([LABELS[name] for name in names], values, color=colors)
        axes.set(xlabel=title)
        axes.grid(axis="y", visible=False)
        axes.set_axisbelow(True)
        if "pixel" in title:
            axes.axvline(1e6 * np.median(times.token[EMPTY]), color="gray", linestyle="--")
    axes.invert_yaxis()
    handles = [axes.plot([], [], "s", color=color)[0] for color in COLORS.values()]
    canvas.legend(handles, list(COLORS), loc="outside lower center", ncols=3)
    return canvas


def growth(results: Results) -> Figure:
    measured = results.growth
    assert measured is not None
    styles = line_styles(measured.seconds)
    canvas = new_figure(8, 3.6)
    left, right = canvas.subplots(1, 2)
    for name, by_length in measured.seconds.items():
        lengths: list[Any] = sorted(by_length)
        milliseconds = [1e3 * np.median(by_length[length]) for length in lengths]
        mebibytes = [measured.temporary_bytes[name][length] / 2**20 for length in lengths]
        left.plot(lengths, milliseconds, label=LABELS[name], **styles[name])
        right.plot(lengths, mebibytes, label=LABELS[name], **styles[name])
    for axes, name in (
        (left, "time of a gradient (processor ms)"),
        (right, "temporary memory (MiB)"),
    ):
        axes.set(xscale="log", yscale="log", xlabel="steps T", ylabel=name)
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.minorticks_off()
    left.legend()
    return canvas
