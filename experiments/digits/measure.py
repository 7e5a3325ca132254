"""Trains one model after the other, asks what it costs and how far it hears, and times them all."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.digits.config import Config
from experiments.digits.model import sized
from experiments.digits.probes import (
    Counted,
    Growth,
    Reach,
    Times,
    count,
    grow,
    growth_work,
    reach,
    time_models,
)
from experiments.digits.task import (
    Baseline,
    Task,
    load_digits,
    make_baselines,
    make_split,
    make_tasks,
)
from experiments.digits.train import Trained, train
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.models import LABELS
from experiments.frame.progress import progress_bar

GROWTH_WIDTH = 32
COMPILATION = 8  # what a compilation takes, in epochs


class Results(NamedTuple):
    """What was measured so far; what belongs to a model is in the order of `Config.models`."""

    tasks: Sequence[Task]
    baselines: Sequence[Baseline]
    trainings: tuple[Trained, ...] = ()
    counted: tuple[Counted, ...] = ()
    reaches: tuple[Reach, ...] = ()
    times: Times | None = None
    growth: Growth | None = None


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    """The baselines, one model after the other, and at the end all of them in turns."""
    digits = load_digits()
    split = make_split(digits.labels, config.split_seed)
    tasks = make_tasks(digits, split, config.permutation_seed)
    of_model = config.epochs + 2 * COMPILATION
    total = len(config.models) * of_model + 2 * config.rounds + growth_work(config)
    with progress_bar(total) as bar:
        results = Results(tasks, make_baselines(digits, split))
        yield results
        for name in config.models:
            bar.stage(LABELS[name])
            model = sized(name, config)
            trained = train(config, model, tasks, checkpoints, bar.advance)
            yield (results := results._replace(trainings=(*results.trainings, trained)))
            bar.advance(COMPILATION)
            results = results._replace(
                counted=(*results.counted, count(model, config.num_blocks)),
                reaches=(*results.reaches, reach(trained, tasks)),
            )
            yield results
            bar.advance(COMPILATION)
            bar.finish_stage(f"{LABELS[name]}: {_accuracies(trained, tasks)}")
        bar.stage("times")
        results = results._replace(times=time_models(config, results.trainings, tasks, bar.advance))
        yield results
        bar.stage("growth with length")
        yield results._replace(growth=grow(config, GROWTH_WIDTH, bar.advance))


def _accuracies(trained, tasks):
    parts = []
    for task in tasks:
        values = trained.accuracy(task)
        parts.append(f"{task.order} {100 * values.mean():.1f} %" if len(values) else "failed")
    return ", ".join(parts)
