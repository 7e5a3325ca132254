from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.frame.fitting import Training
from experiments.frame.report import Picture, Report
from experiments.frame.stats import mean_and_spread, share
from experiments.frame.tables import Table
from experiments.minimal import figures
from experiments.minimal.config import Config
from experiments.minimal.expect import judged
from experiments.minimal.forecasts import Entry, change_errors, difference
from experiments.minimal.measure import Evaluated, Results
from experiments.minimal.task import HELD_OUT, INDUSTRIES, scaled_changes

CLAIM = (
    "Six checks verify that a recurrent network is wired, trained and evaluated correctly. Here "
    "exponential smoothing and a GRU for what it leaves (after Smyl 2020) forecast the monthly "
    "change of employment in 15 US industries, of which three are never trained on, in years after "
    "those of the training. The data are seasonally adjusted, so a seasonal forecast has little to "
    "go by; the strong baselines are averages of the last changes."
)
TRAINING = (
    "Loss and gradient norms (before clipping) by update; thin: seeds, thick: median. On the left "
    "the short sequence, where the loss is the share of variance left."
)
OF_EVALUATED = {
    "baselines": "Errors one step ahead in the test months. A point is the mean over months and "
    "industries; of the networks every seed is shown.",
    "horizons": "Left: the same months forecast from the truth and from own forecasts. Right: how "
    "far the level is off when nothing after the origin is known.",
    "forecasts": "Employment, and what is made of the months before the first test year alone. "
    "The level is 100 log of its ratio to the first month shown.",
    "boundaries": "Several sequences in one row, against each alone. What is wrong on purpose must "
    "lie right of the dashed line, what is right left of the dotted one.",
}


def report(config: Config, results: Results) -> Report:
    trainings = _trainings(config, results)
    pictures = [Picture("training", figures.training(results.trainings), TRAINING)]
    tables = [_trainings_table(results)]
    files, found = {}, []
    if (evaluated := results.evaluated) is not None:
        files["errors.csv"] = _error_rows(evaluated)
        tables += [_errors_table(evaluated), _generation_table(evaluated)]
        tables.append(_boundaries_table(evaluated))
        pictures += Picture.drawn(figures, OF_EVALUATED, evaluated)
        found = _comparisons(evaluated.entries)
    return Report(
        CLAIM,
        verdicts=judged(config, results, trainings),
        trainings=trainings,
        pictures=pictures,
        tables=tables,
        found=found,
        failed=["The last seed of the short sequence was provoked to fail."],
        files=files,
    )


def _trainings(config: Config, results: Results) -> list[Training]:
    return [
        Training(
            {"training": one.name},
            [config.first_seed + index for index in range(len(one.fitted.failed))],
            one.fitted,
            {
                "purpose": one.purpose,
                "provoked": one.provoked,
                **one.setting._asdict(),
                "evaluator": one.evaluator,
                "validation_error": "" if one.errors is None else one.errors,
            },
        )
        for one in results.trainings
    ]


def _error_rows(evaluated: Evaluated) -> Iterator[dict[str, Any]]:
    months = evaluated.task.months[evaluated.task.test_from :]
    for entry in evaluated.entries:
        for (seed, industry, month), error in np.ndenumerate(entry.one_step):
            yield {
                "model": entry.name,
                "seed": seed,
                "industry": INDUSTRIES[industry],
                "month": str(months[month]),
                "error": float(error),
            }


def _trainings_table(results: Results) -> Table:
    def norm(one, of):
        kept = ~one.provoked & ~one.fitted.failed
        norms = one.fitted.of_updates()[f"{of}_gradient_norm"][kept, -25:]
        return f"{np.median(norms):.2g}" if kept.any() else "-"

    def error(one):
        known = one.errors is not None
        return mean_and_spread(one.fitted.of_good_seeds(one.errors), 3) if known else "-"

    columns = {
        "training: width, truncation": lambda one: one.name,
        "evaluator": lambda one: one.evaluator,
        "parameters": lambda one: str(one.fitted.num_params),
        "validation error": error,
        "share": lambda one: "-" if one.errors is None else f"{one.setting.share:g}",
        "recurrent norm": lambda one: norm(one, "recurrent"),
        "input norm": lambda one: norm(one, "input"),
        "failed seeds": lambda one: share(one.fitted.failed[~one.provoked]),
    }
    title = "Trainings: validation error; gradient norms, median of the last 25 updates"
    return Table.by_columns(title, results.trainings, columns, num_names=2)


def _errors_table(evaluated: Evaluated) -> Table:
    task = evaluated.task
    horizon, rows = evaluated.forecasts.free.shape[-1], []
    for entry in sorted(evaluated.entries, key=lambda entry: entry.one_step.mean()):
        everywhere, seen, held_out = (
            mean_and_spread(entry.one_step[:, group].mean(axis=(1, 2)), 3)
            for group in (slice(None), task.is_training, ~task.is_training)
        )
        level = "-" if entry.levels is None else f"{entry.levels[..., -1].mean():.2f}"
        row = {"model": entry.name, "chosen": entry.chosen, "one step, all": everywhere}
        row |= {"industries seen": seen, "held out": held_out}
        rows.append(row | {f"level after {horizon} months": level})
    title = (
        f"Absolute errors from {task.months[task.test_from]} on, in mean absolute changes before: "
        "mean ± deviation over seeds"
    )
    return Table.of(title, rows, num_names=2)


def _generation_table(evaluated: Evaluated) -> Table:
    forecasts, task = evaluated.forecasts, evaluated.task
    truth = scaled_changes(task, task.test_from)
    forced, free = (
        change_errors(made, truth, forecasts.origins).mean(axis=(0, 1, 2))
        for made in (forecasts.forced(), forecasts.free)
    )
    rows = [
        {"month": str(month), "teacher-forced": f"{one:.3f}", "free-running": f"{other:.3f}"}
        for month, (one, other) in enumerate(zip(forced, free, strict=True), 1)
    ]
    title = "Error of the change in the months after the origin: the same months, read two ways"
    return Table.of(title, rows)


def _boundaries_table(evaluated: Evaluated) -> Table:
    columns = {
        "way": lambda one: one.name,
        "kind": lambda one: "wrong on purpose" if one.is_fault else "right",
        "difference": lambda one: f"{one.value:.1e}",
    }
    title = "Several sequences in one row: difference from each alone, relative to the largest"
    return Table.by_columns(title, evaluated.boundaries, columns, num_names=2)


def _comparisons(entries: Sequence[Entry]) -> list[str]:
    hybrid, *others = entries
    best = min(others[1:], key=lambda entry: entry.one_step.mean())
    sentences = []
    for other in (others[0], best):
        interval = difference(hybrid.one_step, other.one_step)
        word = "ties with" if interval.low <= 0 <= interval.high else None
        word = word or ("beats" if interval.mean < 0 else "LOSES to")
        name = "its stateless twin" if other is others[0] else f"the best baseline, {other.name}"
        sentences.append(
            f"One step ahead the hybrid {word} {name}: {hybrid.one_step.mean():.3f} against "
            f"{other.one_step.mean():.3f}, difference {interval.shown(3)}."
        )
    freely = [entry for entry in entries if entry.levels is not None]
    levels = {entry.name: float(entry.levels[..., -1].mean()) for entry in freely}
    first = min(levels, key=lambda name: levels[name])
    sentences.append(
        f"Left alone for {freely[0].levels.shape[-1]} months the hybrid is off by "
        f"{levels['hybrid']:.2f} mean absolute changes; the smallest error is that of {first}, "
        f"{levels[first]:.2f}."
    )
    names = ", ".join(name.replace("_", " ") for name in HELD_OUT)
    return [*sentences, f"The industries never trained on: {names}."]
