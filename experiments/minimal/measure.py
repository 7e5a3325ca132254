"""Overfits, chooses width and truncation, trains for the test, and probes what came out."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.minimal.config import UPDATES_PER_EPOCH, Config
from experiments.minimal.forecasts import (
    Baseline,
    Entry,
    Forecasts,
    baseline_entry,
    free_runner,
    make_baselines,
    make_forecasts,
    model_entry,
    one_step_runner,
)
from experiments.minimal.probes import (
    Difference,
    PaddingProbe,
    boundary_runner,
    changed_by_what_is_hidden,
    padding_runner,
    probe_boundaries,
    probe_padding,
)
from experiments.minimal.task import (
    Task,
    load_employment,
    make_task,
    scaled_changes,
    training_changes,
)
from experiments.minimal.train import Setting, Trained, overfit, train

PIECES = (30, 17, 24)


class Evaluated(NamedTuple):
    """What came out of the models that were trained for the test."""

    task: Task  # the series and their split
    padding: PaddingProbe  # what padding changed
    boundaries: list[Difference]  # how far every right and wrong way is from the sequences alone
    forecasts: Forecasts  # of the GRU
    leaks: list[str]  # what of the training depends on what is tested on
    entries: list[Entry]  # errors of the GRU, of its stateless twin, and of every baseline
    baselines: list[Baseline]  # the baselines themselves


class Results(NamedTuple):
    overfit: Trained  # the training on the short sequence
    choices: tuple[Trained, ...] = ()  # every setting to choose from
    finals: tuple[Trained, ...] = ()  # the best and its stateless twin, for the test
    evaluated: Evaluated | None = None  # what the test and the probes say

    @property
    def trainings(self) -> list[Trained]:
        return [self.overfit, *self.choices, *self.finals]


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    task = make_task(load_employment(), config.test_from)
    settings = settings_to_choose_from(config)
    epochs = config.updates // UPDATES_PER_EPOCH
    total = config.overfit_updates // UPDATES_PER_EPOCH + (len(settings) + 2) * epochs + 1
    with progress_bar(total) as bar:
        bar.stage("overfit a short sequence")
        short = training_changes(task, task.validation_from)[0]
        results = Results(overfit(config, short, checkpoints, bar.advance))
        left = results.overfit.fitted.last("loss")[:-1].max()
        bar.finish_stage(f"overfit: {left:.1e} left")
        yield results
        for setting in settings:
            bar.stage(setting.name)
            trained = _train_to_choose(config, task, setting, checkpoints, bar.advance)
            bar.finish_stage(f"{setting.name}: validation error {trained.error:.3f}")
            yield (results := results._replace(choices=(*results.choices, trained)))
        best = min(results.choices, key=lambda trained: trained.error).setting
        for setting in (best, best._replace(stateless=True)):
            bar.stage(f"{setting.name}, for the test")
            series = training_changes(task, task.test_from)
            trained = train(config, "test", setting, series, checkpoints, bar.advance)
            yield (results := results._replace(finals=(*results.finals, trained)))
        bar.stage("probes and forecasts")
        yield results._replace(evaluated=evaluate(config, task, *results.finals))
        bar.advance()


def settings_to_choose_from(config: Config) -> list[Setting]:
    """Every width with the longest truncation, every truncation with the middle width."""
    longest, middle = max(config.truncations), sorted(config.widths)[len(config.widths) // 2]
    settings = [Setting(width, longest) for width in config.widths]
    settings += [Setting(middle, truncation) for truncation in config.truncations]
    return list(dict.fromkeys(settings))


def _train_to_choose(config, task, setting, checkpoints, advance) -> Trained:
    """Trains on the months before those to choose by, and scores the training industries there."""
    cut = task.validation_from
    trained = train(config, "choice", setting, training_changes(task, cut), checkpoints, advance)
    known = scaled_changes(task, cut)[task.is_training, : task.test_from]
    forecasts = one_step_runner(setting, trained.fitted.params)(known)
    errors = np.abs(forecasts - known[:, 1:])[..., cut - 1 :].mean(axis=(1, 2))
    return trained._replace(errors=errors)


def evaluate(config: Config, task: Task, gru: Trained, stateless: Trained) -> Evaluated:
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
    fitted = trained.fitted
    return fitted.params if fitted.failed.all() else fitted.of_good_seeds(fitted.params)
