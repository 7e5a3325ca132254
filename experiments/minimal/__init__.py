"""The minimal experiment: six checks of a recurrent network, on monthly employment by industry."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from experiments.data.employment import load_employment
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.minimal.baselines import make_baselines
from experiments.minimal.comparison import baseline_entry, model_entry
from experiments.minimal.config import Config
from experiments.minimal.forecasts import free_runner, make_forecasts, one_step_runner
from experiments.minimal.leakage import changed_by_what_is_hidden
from experiments.minimal.overfit import overfit
from experiments.minimal.probes import (
    boundary_runner,
    padding_runner,
    probe_boundaries,
    probe_padding,
)
from experiments.minimal.report import report
from experiments.minimal.results import Choice, Evaluated
from experiments.minimal.task import Task, make_task, scaled_changes, training_changes
from experiments.minimal.training import UPDATES_PER_CALL, Setting, Trained, train

__all__ = ["Config", "measure", "report"]

PIECES = (30, 17, 24)


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Any]:
    """Overfits, chooses width and truncation, trains for the test, and probes what came out."""
    task = make_task(load_employment(), config.test_from)
    settings = choices(config)
    epochs = config.updates // UPDATES_PER_CALL
    total = config.overfit_updates // UPDATES_PER_CALL + (len(settings) + 2) * epochs + 1
    with progress_bar(total) as bar:
        bar.stage("overfit a short sequence")
        short = training_changes(task, task.validation_from)[0]
        yield (overfitted := overfit(config, short, checkpoints, bar.advance))
        bar.finish_stage(f"overfit: {overfitted.history['loss'][:-1, -1].max():.1e} left")
        chosen = []
        for setting in settings:
            bar.stage(setting.name)
            chosen.append(_choice(config, task, setting, checkpoints, bar.advance))
            bar.finish_stage(f"{setting.name}: validation error {chosen[-1].error:.3f}")
            yield chosen[-1]
        best = min(chosen, key=lambda choice: choice.error).trained.setting
        finals = []
        for setting in (best, best._replace(stateless=True)):
            bar.stage(f"{setting.name}, for the test")
            series = training_changes(task, task.test_from)
            finals.append(train(config, "test", setting, series, checkpoints, bar.advance))
            yield finals[-1]
        bar.stage("probes and forecasts")
        yield evaluate(config, task, *finals)
        bar.advance()


def choices(config: Config) -> list[Setting]:
    """Every width with the longest truncation, every truncation with the middle width."""
    longest, middle = max(config.truncations), sorted(config.widths)[len(config.widths) // 2]
    settings = [Setting(width, longest) for width in config.widths]
    settings += [Setting(middle, truncation) for truncation in config.truncations]
    return list(dict.fromkeys(settings))


def _choice(config, task, setting, checkpoints, epoch_done) -> Choice:
    """Trains on the months before those to choose by, and scores the training industries there."""
    cut = task.validation_from
    trained = train(config, "choice", setting, training_changes(task, cut), checkpoints, epoch_done)
    known = scaled_changes(task, cut)[task.is_training, : task.test_from]
    forecasts = one_step_runner(setting, trained.params)(known)
    errors = np.abs(forecasts - known[:, 1:])[..., cut - 1 :].mean(axis=(1, 2))
    return Choice(trained, errors)


def evaluate(config: Config, task: Task, gru: Trained, stateless: Trained) -> Evaluated:
    """Everything that is asked of the trained models."""
    good, other = _good_params(gru), _good_params(stateless)
    one = jax.tree.map(lambda leaf: leaf[0], good)
    series = scaled_changes(task, task.test_from)
    num_months = series.shape[1]
    origins = np.arange(task.test_from, num_months - config.horizon + 1)
    forecasts = make_forecasts(
        one_step_runner(gru.setting, good),
        free_runner(gru.setting, good, config.horizon),
        series,
        origins,
    )
    without_memory = one_step_runner(stateless.setting, other)(series)
    baselines = make_baselines(task)
    return Evaluated(
        task,
        probe_padding(padding_runner(gru.setting, one), series, config.first_seed),
        probe_boundaries(boundary_runner(gru.setting, one), series[: len(PIECES)], PIECES),
        forecasts,
        changed_by_what_is_hidden(task),
        [
            model_entry("GRU", gru.setting.name, task, forecasts.one_step, forecasts),
            model_entry("stateless", stateless.setting.name, task, without_memory, None),
            *(baseline_entry(one, task, origins, config.horizon) for one in baselines),
        ],
        baselines,
    )


def _good_params(trained: Trained) -> Any:
    """The parameters of the seeds that did not fail; of all, if none is left."""
    kept = ~trained.failed if not trained.failed.all() else np.ones_like(trained.failed)
    return jax.tree.map(lambda leaf: leaf[kept], trained.params)
