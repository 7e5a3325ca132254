"""Whether anything that is learned from depends on what is to be tested on."""

import numpy as np

from experiments.minimal.baselines import make_baselines
from experiments.minimal.task import Task, scaled_changes, training_changes


def changed_by_what_is_hidden(task: Task) -> list[str]:
    """What of the training changes when the test months and the industries held out are others.

    Names of the parts that changed; nothing when the split is right.
    """
    hidden = np.ones_like(task.changes, bool)
    hidden[task.is_training, : task.test_from] = False
    noise = 100 * np.random.default_rng(0).normal(size=task.changes.shape)
    other = task._replace(changes=np.where(hidden, noise, task.changes))
    changed = [
        name
        for name, part in _learned_from(task).items()
        if not np.array_equal(part, _learned_from(other)[name])
    ]
    past = task.changes[task.is_training, : task.test_from]
    for one, two in zip(make_baselines(task), make_baselines(other), strict=True):
        same = np.array_equal(one.forecast(past, 2), two.forecast(past, 2))
        if one.chosen != two.chosen or not same:
            changed.append(one.name)
    return changed


def _learned_from(task: Task) -> dict[str, np.ndarray]:
    chosen_by = scaled_changes(task, task.validation_from)[task.is_training, : task.test_from]
    return {
        "series to train on": training_changes(task, task.test_from),
        "series to train on for the choice": training_changes(task, task.validation_from),
        "series to choose by": chosen_by,
    }
