"""Tables and files of what was measured; the six lines stand at the end."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from experiments.data.employment import INDUSTRIES
from experiments.frame.legacy import Page, Picture
from experiments.frame.run_folder import RunFolder
from experiments.frame.stats import mean_and_spread
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import verdict_rows, verdicts_table, what_failed
from experiments.minimal import plots, verdicts
from experiments.minimal.comparison import Entry, change_errors, difference, run_freely
from experiments.minimal.config import Config
from experiments.minimal.results import Choice, Evaluated
from experiments.minimal.task import HELD_OUT, scaled_changes
from experiments.minimal.training import Trained

CLAIM = (
    "Six checks tell whether a recurrent network is put together, trained and judged rightly. Here "
    "a GRU forecasts the monthly change of employment in 15 US industries, of which it never sees "
    "three, and years it has not seen. The data are seasonally adjusted, so a seasonal forecast "
    "has little to go by; the strong baselines are averages of the last changes."
)


def report(config: Config, results: Sequence[Any], folder: RunFolder) -> Page:
    """Writes rows, figures and tables, and prints the tables, the six lines last."""
    trained = list(_trainings(results))
    seed_rows, update_rows = list(_seed_rows(config, results)), list(_update_rows(config, trained))
    folder.write_csv("results.csv", seed_rows)
    folder.write_csv("metrics.csv", update_rows)
    folder.write_json("seconds.json", {_name(one): round(one.seconds, 1) for one in trained})
    lines = _verdicts(config, results, seed_rows, update_rows)
    folder.write_json("verdicts.json", verdict_rows(lines))
    tables, pictures = [_trainings_table(config, results)], []
    plots.training(trained, folder.path("training.png"))
    pictures.append(Picture("training.png", plots.CAPTIONS["training"]))
    found = []
    for evaluated in (one for one in results if isinstance(one, Evaluated)):
        folder.write_csv("errors.csv", _error_rows(evaluated))
        tables += [_errors_table(evaluated), _generation_table(evaluated)]
        tables.append(_boundaries_table(evaluated))
        for draw in (plots.baselines, plots.horizons, plots.forecasts, plots.boundaries):
            name = f"{draw.__name__}.png"
            draw(evaluated, folder.path(name))
            pictures.append(Picture(name, plots.CAPTIONS[draw.__name__]))
        found += _comparisons(evaluated.entries)
    tables.append(verdicts_table("The six points of the minimal experiment", lines))
    folder.write_text("summary.md", "\n".join(["# minimal\n", *map(markdown, tables)]))
    for table in tables:
        show(table)
    failed = [*what_failed(lines), *_failed_seeds(trained)]
    found = [f"{sum(line.passed is True for line in lines)} of 6 checks passed.", *found]
    return Page("minimal", CLAIM, [tables[-1], *tables[:-1]], pictures, found, failed)


def _verdicts(config, results, seed_rows, update_rows) -> list[verdicts.Verdict]:
    overfitted = next(one for one in _trainings(results) if one.purpose == "overfit")
    lines = [verdicts.overfit_verdict(overfitted)]
    evaluated = next((one for one in results if isinstance(one, Evaluated)), None)
    if evaluated is None:
        return lines + [line.not_run() for line in verdicts.LINES[1:]]
    task = evaluated.task
    truth = scaled_changes(task, task.test_from)
    return [
        *lines,
        verdicts.padding_verdict(evaluated.padding),
        verdicts.boundaries_verdict(evaluated.boundaries),
        verdicts.generation_verdict(evaluated.forecasts, truth),
        verdicts.baselines_verdict(evaluated.entries, evaluated.leaks),
        verdicts.record_verdict(config, seed_rows, update_rows),
    ]


def _trainings(results: Sequence[Any]) -> Iterator[Trained]:
    for one in results:
        if isinstance(one, Choice):
            yield one.trained
        elif isinstance(one, Trained):
            yield one


def _name(trained: Trained) -> str:
    return f"{trained.purpose}: {trained.setting.name}"


def _is_provoked(config: Config, trained: Trained, index: int) -> bool:
    return trained.purpose == "overfit" and index == config.seeds


def _seed_rows(config: Config, results: Sequence[Any]) -> Iterator[dict[str, Any]]:
    errors = {_name(one.trained): one.errors for one in results if isinstance(one, Choice)}
    for trained in _trainings(results):
        validation = errors.get(_name(trained))
        for index, failed in enumerate(trained.failed):
            yield {
                "training": _name(trained),
                "purpose": trained.purpose,
                "seed": config.first_seed + index,
                "provoked": _is_provoked(config, trained, index),
                "status": "failed" if failed else "ok",
                "width": trained.setting.width,
                "truncation": trained.setting.truncation,
                "stateless": trained.setting.stateless,
                "evaluator": trained.evaluator,
                "num_params": trained.num_params,
                "validation_error": "" if validation is None else validation[index],
            }


def _update_rows(config: Config, trainings: Sequence[Trained]) -> Iterator[dict[str, Any]]:
    for trained in trainings:
        num_seeds, num_updates = trained.history["loss"].shape
        for index in range(num_seeds):
            for update in range(num_updates):
                values = {name: float(v[index, update]) for name, v in trained.history.items()}
                names = {"training": _name(trained), "seed": config.first_seed + index}
                yield names | {"update": update + 1} | values


def _error_rows(evaluated: Evaluated) -> Iterator[dict[str, Any]]:
    months = evaluated.task.months[evaluated.task.test_from :]
    for entry in evaluated.entries:
        for seed, errors in enumerate(entry.one_step):
            for name, row in zip(INDUSTRIES, errors, strict=True):
                for month, error in zip(months, row, strict=True):
                    yield {
                        "model": entry.name,
                        "seed": seed,
                        "industry": name,
                        "month": str(month),
                        "error": float(error),
                    }


def _trainings_table(config: Config, results: Sequence[Any]) -> Table:
    errors = {_name(one.trained): one.errors for one in results if isinstance(one, Choice)}
    rows = []
    for trained in _trainings(results):
        own = np.array([not _is_provoked(config, trained, i) for i in range(len(trained.failed))])
        kept = own & ~trained.failed
        validation = errors.get(_name(trained))
        norms = [
            f"{np.median(trained.history[name][kept, -25:]):.2g}" if kept.any() else "-"
            for name in ("recurrent_gradient_norm", "input_gradient_norm")
        ]
        rows.append(
            (
                _name(trained),
                trained.evaluator,
                str(trained.num_params),
                "-" if validation is None else mean_and_spread(validation[kept], 3),
                *norms,
                f"{(own & trained.failed).sum()} of {own.sum()}",
            )
        )
    columns = ("training: width, truncation", "evaluator", "parameters", "validation error")
    columns += ("recurrent norm", "input norm", "failed seeds")
    title = "Trainings: validation error; gradient norms, median of the last 25 updates"
    return Table(title, columns, rows, num_names=2)


def _errors_table(evaluated: Evaluated) -> Table:
    task = evaluated.task
    rows = []
    for entry in sorted(evaluated.entries, key=lambda entry: entry.one_step.mean()):
        groups = (slice(None), task.is_training, ~task.is_training)
        cells = [mean_and_spread(entry.one_step[:, group].mean(axis=(1, 2)), 3) for group in groups]
        year = "-" if entry.levels is None else f"{entry.levels[..., -1].mean():.2f}"
        rows.append((entry.name, entry.chosen, *cells, year))
    horizon = evaluated.forecasts.free.shape[-1]
    columns = ("model", "chosen", "one step, all", "industries seen", "held out")
    columns += (f"level after {horizon} months",)
    title = (
        f"Absolute errors from {task.months[task.test_from]} on, in mean absolute changes before: "
        "mean ± deviation over seeds"
    )
    return Table(title, columns, rows, num_names=2)


def _generation_table(evaluated: Evaluated) -> Table:
    forecasts, task = evaluated.forecasts, evaluated.task
    truth = scaled_changes(task, task.test_from)
    forced, free = (
        change_errors(made, truth, forecasts.origins).mean(axis=(0, 1, 2))
        for made in (forecasts.forced(), forecasts.free)
    )
    rows = [
        (str(month + 1), f"{forced[month]:.3f}", f"{free[month]:.3f}")
        for month in range(len(forced))
    ]
    title = "Error of the change in the months after the origin: the same months, read two ways"
    return Table(title, ("month", "teacher-forced", "free-running"), rows)


def _boundaries_table(evaluated: Evaluated) -> Table:
    rows = [
        (one.name, "wrong on purpose" if one.is_fault else "right", f"{one.value:.1e}")
        for one in evaluated.boundaries
    ]
    title = "Several sequences in one row: difference from each alone, relative to the largest"
    return Table(title, ("way", "kind", "difference"), rows, num_names=2)


def _comparisons(entries: Sequence[Entry]) -> list[str]:
    """Who wins, in words, with the interval."""
    gru, *others = entries
    best = min(others[1:], key=lambda entry: entry.one_step.mean())
    sentences = []
    for other in (others[0], best):
        interval = difference(gru.one_step, other.one_step)
        word = "ties with" if interval.low <= 0 <= interval.high else None
        word = word or ("beats" if interval.mean < 0 else "LOSES to")
        name = "its stateless twin" if other is others[0] else f"the best baseline, {other.name}"
        sentences.append(
            f"One step ahead the GRU {word} {name}: {gru.one_step.mean():.3f} against "
            f"{other.one_step.mean():.3f}, difference {interval.mean:+.3f} "
            f"[{interval.low:+.3f}, {interval.high:+.3f}]."
        )
    freely = run_freely(entries)
    levels = {entry.name: float(errors[..., -1].mean()) for entry, errors in freely}
    first = min(levels, key=lambda name: levels[name])
    sentences.append(
        f"Left alone for {freely[0][1].shape[-1]} months the GRU is off by {levels['GRU']:.2f} "
        f"mean absolute changes; the smallest error is that of {first}, {levels[first]:.2f}."
    )
    names = ", ".join(name.replace("_", " ") for name in HELD_OUT)
    return [*sentences, f"The industries never trained on: {names}."]


def _failed_seeds(trainings: Sequence[Trained]) -> list[str]:
    return [
        f"{_name(trained)}: {trained.failed.sum()} of {len(trained.failed)} seeds failed"
        + (", one of them provoked." if trained.purpose == "overfit" else ".")
        for trained in trainings
        if trained.failed.any()
    ]
