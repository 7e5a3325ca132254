import collections
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.frame.figures import PALETTE, labels_once, line_styles, new_figure
from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.memory.config import UPDATES_PER_EPOCH, Config
from experiments.memory.expect import UNKNOWN, WORDS, claim_of, disagreements, holds, judged, learns
from experiments.memory.measure import Results, Trained
from experiments.memory.task import LABELS, MIXERS, TASKS

CLAIM = (
    "Parity of a binary history needs one bit of state; to give the history back, a state of H "
    "numbers with p bits needs n ≤ p H. What training finds within that depends on the recurrence: "
    "GRU, LSTM and sLSTM learn parity and hold on longer rows, linear models whose eigenvalues "
    "are positive do not, and eigenvalues in (-1, 1) help."
)
COUNTING = (
    "Every history of n bits, run through cells whose carry is rounded to p bits a number. Black: "
    "what counting allows at most; dotted: a hand-made shift register; lines with marks: a trained "
    "Elman cell. Below: what the best reader of the carry gets right."
)
LENGTHS = (
    "Share of right answers in the later half of rows that were not learnt from, the seed that is "
    "best on the rows before the longest. Learnt on rows up to the dashed line; dotted: what "
    "answering without looking at the row gets."
)
TRAINING = (
    "Share of right answers on the rows of the update, means of 25 updates and of all seeds. Rows "
    "grow longer in the first half of the training."
)
_STYLES = {name: {"label": LABELS[name], **style} for name, style in line_styles(MIXERS).items()}


def report(config: Config, results: Results) -> Report:
    trained, verdicts = results.trained, judged(config, results)
    pictures = [Picture("counting", counting_figure(results), COUNTING)]
    tables = [_counts_table(results)]
    if trained:
        pictures.append(Picture("lengths", lengths_figure(results, config), LENGTHS))
        pictures.append(Picture("training", training_figure(results, config), TRAINING))
        tables += [_scores_table(config, results, task) for task in config.tasks]
        tables.append(_models_table(config, results))
    return Report(
        CLAIM,
        verdicts=verdicts,
        trainings=[_training(config, one) for one in trained],
        pictures=pictures,
        tables=tables,
        found=[
            *(f"{one.point}: {one.measured}." for one in verdicts if one.passed),
            *_found(config, results),
        ],
        failed=[
            f"{TASKS[one.task].label}, {LABELS[one.model]}: {phrase}."
            for one in trained
            for phrase in disagreements(one)
        ],
        files={"counting.csv": _count_rows(results)},
    )


def _training(config: Config, one: Trained) -> Training:
    scores = zip(config.test_lengths, one.scores.T, strict=True)
    right = {f"right_{length}_steps": values for length, values in scores}
    names = {"model": one.model, "task": one.task}
    return Training(names, config.seeds_of(one.task), one.fitted, right)


def _found(config: Config, results: Results) -> Iterator[str]:
    for one in results.rounded:
        longest = len(one.states)
        yield (
            f"{one.name}: all {2**longest:,} histories of {longest} bits end in "
            f"{one.states[-1]:,} of {one.most_states[-1]:,} states."
        )
    for task in config.tasks if results.trained else ():
        here = [one for one in results.trained if one.task == task]
        learnt, held = (
            ", ".join(LABELS[one.model] for one in here if flag(one.chosen)) or "none"
            for flag in (learns, holds)
        )
        yield f"{TASKS[task].label}: learnt by {learnt}; holds on the longest rows for {held}."
        if (num_seeds := len(config.seeds_of(task))) > 1:
            seeds = ", ".join(f"{LABELS[one.model]} {holds(one.scores).sum()}" for one in here)
            yield f"{TASKS[task].label}: seeds of {num_seeds} that hold: {seeds}."
    claims = [one for one in results.trained if claim_of(one) != UNKNOWN]
    agreeing = sum(not disagreements(one) for one in claims)
    yield f"{agreeing} of {len(claims)} claims about a model and a task came out as expected."
    if results.trained and "copying" in config.tasks:
        bits = max(config.test_lengths) // 2
        least = min(one.state_bits for one in results.trained)
        yield (
            f"copying: the longest rows hold {bits} bits, the smallest carry {least:,} in float32. "
            f"Where copying fails {'it is not for want of states' if bits <= least else 'it must'}."
        )


def _counts_table(results: Results) -> Table:
    def percent(one, shares, past):
        return f"{100 * shares[min(len(shares), one.capacity + past) - 1]:.1f}"

    columns = {
        "cell": lambda one: one.name,
        "p H": lambda one: str(one.capacity),
        "carries of all histories": lambda one: f"{one.states[-1]:,} of {one.most_states[-1]:,}",
        "bits right, n = p H (%)": lambda one: percent(one, one.bits_right, 0),
        "n = p H + 3 (%)": lambda one: percent(one, one.bits_right, 3),
        "at most (%)": lambda one: percent(one, one.most_bits_right, 3),
    }
    title = "What the best reader of a rounded carry can give back"
    return Table.by_columns(title, (*results.registers, *results.rounded), columns)


def _scores_table(config: Config, results: Results, task: str) -> Table:
    rows = []
    for one in (one for one in results.trained if one.task == task):
        claim, row = claim_of(one), {"model": LABELS[one.model]}
        row["expected"] = f"learns: {WORDS[claim.learns]}, holds: {WORDS[claim.holds]}"
        for length, scores in zip(config.test_lengths, one.scores.T, strict=True):
            shown = ("-" if np.isnan(score) else f"{100 * score:.0f}" for score in scores)
            row[f"{length} steps"] = " ".join(shown)
        as_claimed = "differs" if disagreements(one) else "as expected"
        rows.append(row | {"": "-" if claim == UNKNOWN else as_claimed})
    chance = f"chance {100 * TASKS[task].chance:.0f}"
    title = f"{TASKS[task].label}: answers right (%), a number for each seed; {chance}"
    return Table.of(title, rows, num_names=2)


def _models_table(config: Config, results: Results) -> Table:
    failed = collections.Counter()
    for one in results.trained:
        failed[one.model] += int(one.fitted.failed.sum())
    columns = {
        "model": lambda one: LABELS[one.model],
        "features": lambda one: str(one.width),
        "parameters": lambda one: f"{one.fitted.num_params:,}",
        "bits of carry in float32": lambda one: f"{one.state_bits:,}",
        "failed": lambda one: str(failed[one.model]),
    }
    of_models = [one for one in results.trained if one.task == config.tasks[0]]
    return Table.by_columns(f"The models; blocks: {config.num_blocks}", of_models, columns)


def _count_rows(results: Results) -> Iterator[dict[str, Any]]:
    parity = [] if results.parity is None else [results.parity]
    for one in (*parity, *results.registers, *results.rounded):
        for index, step in enumerate(one.steps):
            yield {
                "cell": one.name,
                "capacity_bits": one.capacity,
                "history_bits": step,
                "carries": int(one.states[index]),
                "most_carries": int(one.most_states[index]),
                "histories_right": float(one.states[index] / 2**step),
                "bits_right": float(one.bits_right[index]),
                "most_bits_right": float(one.most_bits_right[index]),
            }


def counting_figure(results: Results) -> Figure:
    bounds = {one.capacity: one for one in results.registers}
    units = dict.fromkeys(one.units for one in results.registers)
    colors = dict(zip(units, PALETTE, strict=False))
    lines = [(c, ":", "") for c in results.registers] + [(c, "-", "o") for c in results.rounded]
    canvas = new_figure(max(5, 2.2 * len(bounds) + 0.8), 4.8)
    axes = canvas.subplots(2, len(bounds), sharex=True, sharey="row", squeeze=False)
    for (top, bottom), (capacity, bound) in zip(axes.T, sorted(bounds.items()), strict=True):
        thick = {"color": "black", "linewidth": 3, "alpha": 0.35}
        top.plot(bound.steps, bound.most_states, label="most that counting allows", **thick)
        bottom.plot(bound.steps, bound.most_bits_right, **thick)
        for one, line, marker in lines:
            if one.capacity == capacity:
                style = {"color": colors[one.units], "linestyle": line, "marker": marker}
                label = f"{one.kind}, H = {one.units}"
                top.plot(one.steps, one.states, label=label, markersize=3, **style)
                bottom.plot(one.steps, one.bits_right, markersize=3, **style)
        for axis in (top, bottom):
            axis.axvline(capacity, color="gray", linewidth=0.7)
        top.set_title(f"p H = {capacity} bits")
        top.set_yscale("log", base=2)
        bottom.set_xlabel("bits of history n")
    axes[0, 0].set_ylabel("different carries")
    axes[1, 0].set_ylabel("share of bits right")
    canvas.legend(*labels_once(axes[0]), loc="outside lower center", ncols=4)
    return canvas


def lengths_figure(results: Results, config: Config) -> Figure:
    def finish(axis, task):
        axis.axvline(config.train_steps, color="gray", linestyle="--", linewidth=0.8)
        axis.axhline(TASKS[task].chance, color="black", linestyle=":", linewidth=0.9)
        axis.set_xscale("log", base=2)
        axis.set_xticks(config.test_lengths, map(str, config.test_lengths))
        axis.set_xlabel("steps of the row")

    def draw(axis, one):
        axis.plot(config.test_lengths, one.chosen, **_STYLES[one.model])

    return _panels(results, config, draw, finish)


def training_figure(results: Results, config: Config) -> Figure:
    def draw(axis, one):
        right = one.fitted.of_epochs()["right"].mean(axis=0)
        updates = UPDATES_PER_EPOCH * np.arange(1, len(right) + 1)
        axis.plot(updates, right, **_STYLES[one.model] | {"marker": ""})

    return _panels(results, config, draw, lambda axis, task: axis.set_xlabel("update"))


def _panels(
    results: Results,
    config: Config,
    draw: Callable[[Any, Trained], Any],
    finish: Callable[[Any, str], Any],
) -> Figure:
    """Axes for the tasks, and beside the last of them the legend."""
    num_columns = min(3, len(config.tasks) + 1)
    num_rows = -(-(len(config.tasks) + 1) // num_columns)
    canvas = new_figure(3.3 * num_columns, 2.9 * num_rows)
    axes = canvas.subplots(num_rows, num_columns, squeeze=False).ravel()
    for axis, task in zip(axes, config.tasks, strict=False):
        for one in results.trained:
            if one.task == task:
                draw(axis, one)
        axis.set(title=TASKS[task].label, ylabel="share of answers right", ylim=(-0.03, 1.03))
        finish(axis, task)
    for axis in axes[len(config.tasks) :]:
        axis.axis("off")
    axes[-1].legend(*axes[0].get_legend_handles_labels(), loc="center", fontsize=8)
    return canvas
