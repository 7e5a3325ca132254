from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.frame.figures import PALETTE, line_styles, new_figure
from experiments.tagging.measure import Results, confusion_counts, recall
from experiments.tagging.task import CLASSES, COMMENT, KEYWORD, NAME, NUMBER, STRING
from experiments.tagging.train import MODELS

COLORS: dict[str, str] = dict(zip(MODELS, PALETTE, strict=False))
SHOWN = (KEYWORD, NAME, NUMBER, STRING, COMMENT)
PLACES, ENOUGH = 12, 50


def positions(results: Results) -> Figure:
    styles, truth = line_styles(MODELS), results.truth
    canvas = new_figure(11, 3.2)
    panels = canvas.subplots(1, len(SHOWN), sharey=True)
    for axes, label in zip(panels, SHOWN, strict=True):
        axes.set(title=CLASSES[label], xlabel="place in the token")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        at = [(truth.labels == label) & (truth.position == place) for place in range(PLACES)]
        kept = [place for place in range(PLACES) if at[place].sum() >= ENOUGH]
        for name, predicted in results.good.items():
            shares = [recall(truth, predicted, at[place]) for place in kept]
            axes.plot(np.array(kept) + 1, shares, label=name, **styles[name])
    panels[0].set_ylabel("told right (%)")
    handles = panels[0].get_legend_handles_labels()
    canvas.legend(*handles, loc="outside lower center", ncols=len(MODELS))
    return canvas


def confusion(results: Results) -> Figure:
    canvas = new_figure(5.5 * len(results.good), 5.2)
    panels = canvas.subplots(1, len(results.good), sharey=True, squeeze=False)[0]
    for axes, (name, predicted) in zip(panels, results.good.items(), strict=True):
        counts = np.sum([confusion_counts(results.truth.labels, one) for one in predicted], axis=0)
        shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
        for row, column in np.argwhere(shares >= 0.05):
            value = shares[row, column]
            axes.text(column, row, f"{value:.1f}", ha="center", va="center",
                      color="white" if value > 50 else "black", fontsize=7)  # fmt: skip
        axes.set(title=name, xlabel="told")
        axes.set_xticks(range(len(CLASSES)), CLASSES, rotation=45, ha="right")
        axes.set_yticks(range(len(CLASSES)), CLASSES)
        axes.grid(False)
    panels[0].set_ylabel("is")
    return canvas


def training(results: Results) -> Figure:
    canvas = new_figure(9, 3.4)
    left, right = canvas.subplots(1, 2)
    for one in results.tagged:
        values = 100 * one.fitted.history["validation"].T
        epochs = np.arange(1, len(values) + 1)
        first, *_ = left.plot(epochs, values, color=COLORS[one.model])
        first.set_label(one.model)
    left.set(xlabel="epoch", ylabel="validation accuracy (%)")
    left.legend()
    lengths = results.task.training.lengths
    edges: Any = np.geomspace(lengths.min(), lengths.max(), 25)
    right.hist(lengths, edges, color="gray")
    right.set(xscale="log", xlabel="characters of a paragraph", ylabel="paragraphs")
    return canvas


def layouts(results: Results) -> Figure:
    canvas = new_figure(10, 3.4)
    left, right = canvas.subplots(1, 2)
    names = []
    for one in results.comparisons:
        color = COLORS[one.model]
        for (name, losses), line in zip(one.losses.items(), ("-", "o"), strict=True):
            updates = np.arange(1, len(losses) + 1)
            left.plot(updates, losses, line, color=color, label=f"{one.model}, {name}")
        for name, layout in one.layouts.items():
            row, rate = len(names), layout.rate / 1e3
            right.barh(row, np.median(rate), color=color, alpha=0.5)
            right.plot(rate, np.full(len(rate), row), ".", color=color)
            names.append(f"{one.model},\n{name}")
    left.set(xlabel="update", ylabel="loss (nats a character)")
    left.legend()
    right.set_yticks(range(len(names)), names)
    right.invert_yaxis()
    right.set_xlabel("real characters a processor second (thousands)")
    return canvas
