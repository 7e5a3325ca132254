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
    ("3 or more unstable directions", "D", PALETTE[6]),
)


def flow(config: Config, results: Sequence[Trained]) -> Figure:
    tasks = (FLIP_FLOP, EVIDENCE)
    canvas = new_figure(5.2 * len(config.cells), 4.6 * len(tasks) + 0.6)
    axes = canvas.subplots(len(tasks), len(config.cells), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for one in (one for one in results if one.task.name in tasks):
        axis = axes[tasks.index(one.task.name), config.cells.index(one.cell)]
        axis.set_axis_on()
        draw_flow(axis, one.analysed[0])
        axis.set(title=one.name, xlabel="first principal component", ylabel="second")
    canvas.legend(*labels_once(axes.flat), loc="outside lower center", ncols=2 * len(config.cells))
    return canvas


def draw_flow(axis, analysed: Analysed) -> None:
    """Everything in the two directions along which the states of trajectories vary most."""
    states = analysed.states.reshape(-1, analysed.states.shape[-1])
    middle = states.mean(axis=0)
    directions = np.linalg.svd(states - middle, full_matrices=False)[2][:2]

    def projected(paths):
        """`[..., H] -> [2, ...]`."""
        return np.moveaxis((paths - middle) @ directions.T, -1, 0)

    def draw(paths, color, width, label, order):
        xs, ys = projected(paths)
        lines = axis.plot(xs.T, ys.T, color=color, linewidth=width, zorder=order)
        for line in lines[:1]:
            line.set_label(label)

    draw(analysed.states[:NUM_SHOWN], LIGHT, 0.5, "trajectories of the task", 1)
    draw(analysed.flow, GRAY, 0.6, "flow without input", 2)
    xs, ys = projected(analysed.flow[:, :2])
    steps = {"angles": "xy", "scale_units": "xy", "scale": 1, "headwidth": 5}
    axis.quiver(xs[:, 0], ys[:, 0], *np.diff([xs, ys])[..., 0], color=GRAY, width=0.002, **steps)
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
        style = {"color": PALETTE[place], "marker": "os"[place], "linestyle": "none", "alpha": 0.75}
        for analysed in one.analysed:
            if one.task.name == FLIP_FLOP:
                continue
            is_sum = one.task.name == EVIDENCE
            axis = left if is_sum else right
            beside = one.task.time_constant + 0.6 * (place - 0.5)
            xs = analysed.outputs[:, 0] if is_sum else np.full(len(analysed.outputs), beside)
            longest, following = analysed.time_constants()[:, :2].T
            axis.plot(xs, longest, **style, label=f"{one.cell}, longest")
            axis.plot(xs, following, **style, fillstyle="none", label=f"{one.cell}, next")
    left.axhline(config.num_steps, color="black", linewidth=0.8, label="steps of a sequence")
    left.set(yscale="log", xlabel="output at the point", ylabel="size of the time constant (steps)")
    left.set_title("evidence: fixed and slow points")
    top = 1.2 * max(config.time_constants)
    right.plot([0, top], [0, top], color="black", linewidth=0.8, label="as the task asks for")
    right.set(xlabel="time constant of the task (steps)", ylabel="time constant (steps)")
    right.set_title("leaky evidence: the fixed point")
    for axis in (left, right):
        axis.legend(*labels_once([axis]), fontsize=7)
    return canvas
