"""Digits pixel by pixel: RNNs, state-space models and attention at one size, measured."""

from collections.abc import Iterator
from typing import Any

from experiments.data.digits import load_digits
from experiments.digits.baselines import make_baselines
from experiments.digits.config import Config
from experiments.digits.model import label, sized
from experiments.digits.probes import count, grow, growth_work, reach, time_models
from experiments.digits.report import report
from experiments.digits.task import make_split, make_tasks
from experiments.digits.training import train
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar

__all__ = ["Config", "measure", "report"]

GROWTH_WIDTH = 32
COMPILATION = 8  # what a compilation takes, in epochs


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Any]:
    """Trains one model after the other, and times all of them in turns at the end."""
    digits = load_digits()
    split = make_split(digits.labels, config.split_seed)
    tasks = make_tasks(digits, split, config.permutation_seed)
    of_model = config.epochs + 2 * COMPILATION
    total = len(config.models) * of_model + 2 * config.rounds + growth_work(config)
    with progress_bar(total) as bar:
        yield make_baselines(digits, split)
        trainings = []
        for name in config.models:
            bar.stage(label(name))
            model = sized(name, config)
            trained = train(config, model, tasks, checkpoints, bar.advance)
            trainings.append(trained)
            yield trained
            bar.advance(COMPILATION)
            yield count(model, config.num_blocks)
            yield reach(trained, tasks)
            bar.advance(COMPILATION)
            bar.finish_stage(f"{label(name)}: {_accuracies(trained, tasks)}")
        bar.stage("times")
        yield time_models(config, trainings, tasks, bar.advance)
        bar.stage("growth with length")
        yield grow(config, GROWTH_WIDTH, bar.advance)


def _accuracies(trained, tasks):
    parts = []
    for task in tasks:
        values = trained.accuracy(task)
        parts.append(f"{task.order} {100 * values.mean():.1f} %" if len(values) else "failed")
    return ", ".join(parts)
