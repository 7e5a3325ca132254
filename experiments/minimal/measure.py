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
    choose_smoothing,
    free_runner,
    make_baselines,
    make_forecasts,
    model_entry,
    one_step_runner,
)
from experiments.minimal.model import Setting, with_share
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
    changes_to_choose_by,
    load_employment,
    make_task,
    scaled_changes,
    training_changes,
    with_mean,
)
from experiments.minimal.train import Trained, overfit, train

PIECES = (30, 17, 24)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the correction, to choose from; 0 is smoothing alone


class Evaluated(NamedTuple):
    """What came out of the models that were trained for the test."""

    task: Task  # the series and their split
    padding: PaddingProbe  # what padding changed
    boundaries: list[Difference]  # how far every right and wrong way is from the sequences alone
    forecasts: Forecasts  # of the hybrid
    leaks: list[str]  # what of the training depends on what is tested on
    entries: list[Entry]  # errors of the hybrid, of its stateless twin, and of every baseline
    baselines: list[Baseline]  # the baselines themselves


class Results(NamedTuple):
    overfit: Trained  # the training on the short sequence
    choices: tuple[Trained, ...] = ()  # every setting to choose from, then a stateless twin
    finals: tuple[Trained, ...] = ()  # the best and its stateless twin, for the test
    evaluated: Evaluated | None = None  # what the test and the probes say

    @property
    def trainings(self) -> list[Trained]:
        return [self.overfit, *self.choices, *self.finals]


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    task = make_task(load_employment(), config.test_from)
    decay = choose_smoothing(task)
    settings = settings_to_choose_from(config, decay)
    epochs = config.updates // UPDATES_PER_EPOCH
    total = config.overfit_updates // UPDATES_PER_EPOCH + (len(settings) + 3) * epochs + 1
    with progress_bar(total) as bar:
        bar.stage("overfit a short sequence")
        short = with_mean(training_changes(task, task.validation_from))[0]
        results = Results(overfit(config, decay, short, checkpoints, bar.advance))
        left = results.overfit.fitted.last("loss")[:-1].max()
        bar.finish_stage(f"overfit: {left:.1e} left")
        yield results

        def with_choice(setting):
            bar.stage(setting.name)
            trained = _train_to_choose(config, task, setting, checkpoints, bar.advance)
            bar.finish_stage(f"{setting.name}: validation error {trained.error:.4f}")
            return results._replace(choices=(*results.choices, trained))

        for setting in settings:
            yield (results := with_choice(setting))
        best = min(results.choices, key=lambda trained: trained.error).setting
        yield (results := with_choice(best._replace(stateless=True)))
        for setting in (best, results.choices[-1].setting):
            bar.stage(f"{setting.name}, for the test")
            series = training_changes(task, task.test_from)
            trained = train(config, "test", setting, series, checkpoints, bar.advance)
            yield (results := results._replace(finals=(*results.finals, trained)))
        bar.stage("probes and forecasts")
        yield results._replace(evaluated=evaluate(config, task, *results.finals))
        bar.advance()


def settings_to_choose_from(config: Config, decay: float) -> list[Setting]:
    """Every width, every truncation and every number of months ahead, with the others fixed."""
    longest, middle = max(config.truncations), sorted(config.widths)[len(config.widths) // 2]
    first = min(config.aheads)
    settings = [Setting(width, longest, decay, first) for width in config.widths]
    settings += [Setting(middle, truncation, decay, first) for truncation in config.truncations]
    settings += [Setting(middle, longest, decay, ahead) for ahead in config.aheads]
    return list(dict.fromkeys(settings))


def _train_to_choose(config, task, setting, checkpoints, advance) -> Trained:
    """Trains on the months before those to choose by, and scores the training industries there.

    The share of the correction is the one with the smallest error.
    """
    cut = task.validation_from
    trained = train(config, "choice", setting, training_changes(task, cut), checkpoints, advance)
    known = changes_to_choose_by(task)
    shrunk = [with_share(trained.fitted.params, share) for share in SHARES]
    params = jax.tree.map(lambda *leaves: np.concatenate(leaves), *shrunk)
    forecasts = one_step_runner(setting, params)(known)
    errors = np.abs(forecasts - known[:, 1:])[..., cut - 1 :].mean(axis=(1, 2))
    scored = [
        trained._replace(setting=setting._replace(share=share), errors=of_share)
        for share, of_share in zip(SHARES, np.split(errors, len(SHARES)), strict=True)
    ]
    return min(scored, key=lambda one: one.error)


def evaluate(config: Config, task: Task, hybrid: Trained, stateless: Trained) -> Evaluated:
    good, other = _good_params(hybrid), _good_params(stateless)
    one = jax.tree.map(lambda leaf: leaf[0], good)
    series = scaled_changes(task, task.test_from)
    num_months = series.shape[1]
    origins = np.arange(task.test_from, num_months - config.horizon + 1)
    forecasts = make_forecasts(
        one_step_runner(hybrid.setting, good, task.is_training),
        free_runner(hybrid.setting, good, task.is_training, config.horizon),
        series,
        origins,
    )
    without_memory = one_step_runner(stateless.setting, other, task.is_training)(series)
    baselines = make_baselines(task)
    features = with_mean(series, task.is_training)
    return Evaluated(
        task,
        probe_padding(padding_runner(hybrid.setting, one), features, config.first_seed),
        probe_boundaries(boundary_runner(hybrid.setting, one), features[: len(PIECES)], PIECES),
        forecasts,
        changed_by_what_is_hidden(task),
        [
            model_entry("hybrid", hybrid.setting.chosen, task, forecasts.one_step, forecasts),
            model_entry("stateless", stateless.setting.chosen, task, without_memory, None),
            *(baseline_entry(one, task, origins, config.horizon) for one in baselines),
        ],
        baselines,
    )


def _good_params(trained: Trained) -> Any:
    """The parameters of the seeds that did not fail, or of all; with the share that was chosen."""
    fitted = trained.fitted
    params = fitted.params if fitted.failed.all() else fitted.of_good_seeds(fitted.params)
    return with_share(params, trained.setting.share)
