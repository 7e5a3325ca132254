from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.frame.figures import PALETTE, draw_seeds, new_figure
from experiments.minimal.expect import CAUGHT, TOLERANCE
from experiments.minimal.forecasts import change_errors
from experiments.minimal.measure import Evaluated
from experiments.minimal.task import INDUSTRIES, scale, scaled_changes
from experiments.minimal.train import Trained

GRAY = "#666666"
SMOOTHED = 25
SHOWN = ("construction", "leisure_and_hospitality", "nondurable_goods", "utilities")


def training(trainings: Sequence[Trained]) -> Figure:
    short, others = (
        [one for one in trainings if (one.purpose == "overfit") == flag] for flag in (True, False)
    )
    rows = (
        ("loss", "loss"),
        ("recurrent_gradient_norm", "gradient norm,\nrecurrent weights"),
        ("input_gradient_norm", "gradient norm,\ninput weights"),
    )
    styles = _styles()
    canvas = new_figure(10, 7)
    axes = canvas.subplots(len(rows), 2, sharex="col", width_ratios=(1, 1.6))
    for (left, right), (name, label) in zip(axes, rows, strict=True):
        left.set_ylabel(label)
        left.set_yscale("log")
        right.set_yscale("linear" if name == "loss" else "log")
        for one in short:
            _draw(left, one, name, 1, ("#000000", "-"))
        for one, style in zip(others, styles, strict=False):
            _draw(right, one, name, SMOOTHED, style)
    for axis in axes[-1]:
        axis.set_xlabel("update")
    axes[0, 0].set_title("a short sequence (share of variance left)")
    axes[0, 1].set_title(f"industries (Huber loss), means of {SMOOTHED} updates")
    canvas.align_ylabels()
    handles, labels = axes[0, 1].get_legend_handles_labels()
    if handles:
        canvas.legend(handles, labels, loc="outside lower center", ncols=3)
    return canvas


def _draw(axis, trained, name, window, style):
    fitted, (color, line) = trained.fitted, style
    values = fitted.of_good_seeds(fitted.of_updates()[name])
    if len(values):
        values = values.reshape(len(values), -1, window).mean(axis=-1)
        updates = window * np.arange(1, values.shape[1] + 1)
        label = f"{trained.purpose}: {trained.setting.name}"
        draw_seeds(axis, values, None, color, label, xs=updates, line=line, middle=np.median)


def baselines(evaluated: Evaluated) -> Figure:
    entries = sorted(evaluated.entries, key=lambda entry: -entry.one_step.mean())
    entries = [entry for entry in entries if entry.name != "seasonal naive"]
    left_out = next(one for one in evaluated.entries if one.name == "seasonal naive")
    seen = evaluated.task.is_training
    canvas = new_figure(8, 4)
    axes = canvas.subplots()
    for row, entry in enumerate(entries):
        for group, color, marker, shift in (
            (seen, PALETTE[0], "o", 0.12),
            (~seen, PALETTE[1], "s", -0.12),
        ):
            errors = entry.one_step[:, group].mean(axis=(1, 2))
            heights = np.full(len(errors), row + shift)
            label = ("industries seen" if group is seen else "held out") if row == 0 else None
            axes.plot(errors, heights, marker, color=color, alpha=0.75, label=label)
    axes.set_yticks(range(len(entries)), [_called(entry) for entry in entries])
    axes.set_xlabel("absolute error one month ahead (mean absolute changes)")
    axes.set_title(f"not shown: seasonal naive, {left_out.one_step.mean():.1f}")
    axes.legend(loc="upper right")
    return canvas


def horizons(evaluated: Evaluated) -> Figure:
    forecasts, task = evaluated.forecasts, evaluated.task
    truth = scaled_changes(task, task.test_from)
    months = np.arange(1, forecasts.free.shape[-1] + 1)
    canvas = new_figure(10, 4)
    left, right = canvas.subplots(1, 2)
    for made, color, label in (
        (forecasts.forced(), PALETTE[0], "teacher-forced"),
        (forecasts.free, PALETTE[1], "free-running"),
    ):
        errors = change_errors(made, truth, forecasts.origins).mean(axis=(1, 2))
        draw_seeds(left, errors, None, color, label, xs=months, line="o-")
    left.set_ylabel("error of the change (mean absolute changes)")
    left.set_ylim(bottom=0)
    left.set_title("hybrid, the same months read two ways")
    freely = [entry for entry in evaluated.entries if entry.levels is not None]
    for entry, (color, style) in zip(freely, _styles(), strict=False):
        errors = entry.levels.mean(axis=(0, 1, 2))
        width = 2.4 if entry.name == "hybrid" else 1.2
        right.plot(months, errors, style, color=color, linewidth=width, label=entry.name)
    right.set_yscale("log", base=2)
    right.yaxis.set_major_formatter("{x:g}")
    right.set_ylabel("error of the level (mean absolute changes)")
    right.set_title("the level, nothing known after the origin")
    for axis, corner in ((left, "lower left"), (right, "lower right")):
        axis.set_xlabel("months after the origin")
        axis.set_xticks(months)
        axis.legend(fontsize=7, loc=corner)
    return canvas


def forecasts(evaluated: Evaluated) -> Figure:
    task, made = evaluated.task, evaluated.forecasts
    unit, changes = scale(task.changes, task.test_from), task.changes
    origin, horizon = int(made.origins[0]), made.free.shape[-1]
    best = min(evaluated.entries[2:], key=lambda entry: entry.one_step.mean())
    forecast = next(one.forecast for one in evaluated.baselines if one.name == best.name)
    months = task.months[origin - 1 : origin + horizon]
    canvas = new_figure(10, 6)
    axes = canvas.subplots(2, 2)
    for axis, name in zip(axes.flat, SHOWN, strict=True):
        row = INDUSTRIES.index(name)
        start = origin - 36
        levels = np.concatenate([[0], np.cumsum(changes[row, start:])])
        axis.plot(task.months[start - 1 :], levels, color="black", label="truth")
        at = levels[origin - start]
        for number, one in enumerate(made.free[:, row, 0] * unit[row]):
            path_of_seed = at + np.concatenate([[0], np.cumsum(one)])
            label = "hybrid, a seed a line" if number == 0 else None
            axis.plot(months, path_of_seed, color=PALETTE[1], linewidth=1, label=label)
        other = np.cumsum(forecast(changes[:, :origin], horizon)[row])
        other = at + np.concatenate([[0], other])
        axis.plot(months, other, "--", color=PALETTE[0], label=f"{best.name} {best.chosen}")
        axis.axvline(task.months[origin - 1], color=GRAY, linewidth=0.8, linestyle=":")
        kind = "seen" if task.is_training[row] else "never trained on"
        axis.set_title(f"{name.replace('_', ' ')} ({kind})")
        axis.set_ylabel(f"change since {task.months[start - 1]} (%)")
        axis.set_xlabel("month")
    axes[0, 0].legend(fontsize=8)
    return canvas


def boundaries(evaluated: Evaluated) -> Figure:
    ways = evaluated.boundaries[::-1]
    floor = 1e-8
    canvas = new_figure(8, 3.6)
    axes = canvas.subplots()
    for row, one in enumerate(ways):
        color, marker = (PALETTE[1], "X") if one.is_fault else (PALETTE[0], "o")
        axes.plot(max(one.value, floor), row, marker, color=color, markersize=8)
    axes.set_xscale("log")
    axes.axvline(TOLERANCE, color=GRAY, linestyle=":")
    axes.axvline(CAUGHT, color=GRAY, linestyle="--")
    axes.set_yticks(range(len(ways)), [one.name for one in ways])
    axes.set_xlabel(f"difference relative to the largest output (0 is drawn at {floor:g})")
    axes.set_title("circles: right; crosses: wrong on purpose")
    return canvas


def _styles():
    return [(color, style) for style in ("-", "--", ":") for color in PALETTE]


def _called(entry):
    return f"{entry.name} ({entry.chosen})" if entry.chosen else entry.name
