from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.dynamics.config import Config
from experiments.dynamics.measure import NUM_SHOWN, Analysed, Trained
from experiments.dynamics.task import EVIDENCE, FLIP_FLOP
from experiments.frame.figures import PALETTE, labels_once, new_figure

GRAY, LIGHT = "#8A8A8A", "#9CCFEF"
# By the number of unstable directions; the last one stands for all larger numbers.
KINDS = (
    ("stable point", "o", PALETTE[2]),
    ("1 unstable direction", "X", PALETTE[1]),
    ("2 unstable directions", "s", PALETTE[3]),
    ("3 or more", "D", PALETTE[6]),
)


def flow(config: Config, results: Sequence[Trained]) -> Figure:
    shown = [one for one in results if one.task.name in (FLIP_FLOP, EVIDENCE)]
    tasks = list(dict.fromkeys(one.task.name for one in shown))
    canvas = new_figure(5.2 * len(config.cells), 4.6 * len(tasks) + 0.6)
    axes = canvas.subplots(len(tasks), len(config.cells), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for one in shown:
        axis = axes[tasks.index(one.task.name), config.cells.index(one.cell)]
        axis.set_axis_on()
        draw_flow(axis, one.analysed[0])
        axis.set(title=one.name, xlabel="first principal component", ylabel="second")
    canvas.legend(*labels_once(axes.flat), loc="outside lower center", ncols=4)
    return canvas


def draw_flow(axis, analysed: Analysed) -> None:
    """Everything in the two directions along which the states of trajectories vary most."""
    states = analysed.states.reshape(-1, analysed.states.shape[-1])
    middle = states.mean(axis=0)
    directions = np.linalg.svd(states - middle, full_matrices=False)[2][:2]

    def projected(path):
        return directions @ (path - middle).T

    def draw(paths, color, width, label, order):
        for number, path in enumerate(paths):
            axis.plot(*projected(path), color=color, linewidth=width, zorder=order,
                      label=None if number else label)  # fmt: skip

    draw(analysed.states[:NUM_SHOWN], LIGHT, 0.5, "trajectories of the task", 1)
    draw(analysed.flow, GRAY, 0.6, "flow without input", 2)
    for path in analysed.flow:
        (x, next_x), (y, next_y) = projected(path[:2])
        arrow = {"arrowstyle": "-|>", "color": GRAY, "linewidth": 0.6, "mutation_scale": 6}
        axis.annotate("", (next_x, next_y), (x, y), arrowprops=arrow, zorder=2)
    departures = analysed.departures.states
    draw(departures.reshape(-1, *departures.shape[2:]), PALETTE[1], 1.2, "away from saddles", 3)
    unstable = np.minimum(analysed.points.num_unstable, len(KINDS) - 1)
    fixed, points = np.asarray(analysed.points.is_fixed), np.asarray(analysed.points.carry.h)
    for number, (label, marker, color) in enumerate(KINDS):
        for is_fixed, face in ((True, color), (False, "white")):
            chosen = (unstable == number) & (fixed == is_fixed)
            style = {"facecolor": face, "edgecolor": "black" if is_fixed else color}
            if chosen.any():
                axis.scatter(
                    *projected(points[chosen]), s=45 if is_fixed else 22, marker=marker, zorder=4,
                    linewidth=0.7, label=label if is_fixed else f"slow, {label}", **style
                )  # fmt: skip


def time_constants(config: Config, results: Sequence[Trained]) -> Figure:
    canvas = new_figure(10, 4)
    left, right = canvas.subplots(1, 2)
    for one in results:
        place = config.cells.index(one.cell)
        color, marker = PALETTE[place], "os"[place]
        style = {"color": color, "marker": marker, "linestyle": "none", "alpha": 0.75}
        for analysed in one.analysed:
            slow, next_one = analysed.time_constants()[:, :2].T
            if one.task.name == EVIDENCE:
                left.plot(analysed.outputs, slow, **style, label=f"{one.cell}, longest")
                open_style = style | {"fillstyle": "none"}
                left.plot(analysed.outputs, next_one, **open_style, label=f"{one.cell}, next")
            elif one.task.name != FLIP_FLOP:
                taus = np.full(len(slow), one.task.time_constant * (1.04 if place else 0.96))
                right.plot(taus, slow, **style, label=f"{one.cell}, longest")
                right.plot(
                    taus, next_one, **style | {"fillstyle": "none"}, label=f"{one.cell}, next"
                )
    left.axhline(config.num_steps, color="black", linewidth=0.8, label="steps of a sequence")
    left.set(yscale="log", xlabel="output at the point", ylabel="time constant, its size (steps)")
    left.set_title("evidence: fixed and slow points")
    ends = np.array([min(config.time_constants) / 1.5, max(config.time_constants) * 1.5])
    right.plot(ends, ends, color="black", linewidth=0.8, label="equal")
    right.set(xscale="log", yscale="log", xlabel="time constant of the task (steps)")
    right.set_title("leaky evidence: the fixed point")
    for axis in (left, right):
        axis.legend(*labels_once([axis]), fontsize=7)
    return canvas
