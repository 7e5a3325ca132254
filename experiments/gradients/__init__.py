"""Vanishing and exploding gradients: Jacobians, gates, number formats, clipping, truncation."""

from collections.abc import Callable, Iterator
from typing import Any

from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.gradients.config import Config
from experiments.gradients.gates import CELLS, look_at
from experiments.gradients.precision import RATES, grow, saturate
from experiments.gradients.recall import (
    accuracy,
    num_clipped,
    num_epochs,
    num_truncated,
    train_clipped,
    train_truncated,
)
from experiments.gradients.report import report
from experiments.gradients.sweep import ACTIVATIONS, sweep
from experiments.gradients.warning import NETS, warn
from experiments.gradients.worked import work_out

__all__ = ["Config", "measure", "report"]

PRODUCT_STEPS = 12
EPOCHS_PER_LOOK = 10  # as long as so many epochs, roughly


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Any]:
    """Looks at networks as they are drawn, then trains."""
    looks = _looks(config)
    trainings = (
        ("truncation", train_truncated, num_truncated(config)),
        ("clipping", train_clipped, num_clipped(config)),
    )
    epochs = num_epochs(config) * sum(number for *_, number in trainings)
    with progress_bar(EPOCHS_PER_LOOK * len(looks) + epochs) as bar:
        for name, look in looks:
            bar.stage(name)
            yield look()
            bar.advance(EPOCHS_PER_LOOK)
            bar.finish_stage(name)
        for name, train, number in trainings:
            bar.stage(f"{number} trainings: {name}")
            found = []
            for trained in train(config, checkpoints, bar.advance):
                found.append(accuracy(trained.fitted))
                yield trained
            bar.finish_stage(f"{name}: accuracies {min(found):.2f} to {max(found):.2f}")


def _looks(config):
    """What needs no training: a name, and what returns a result."""
    looks: list[tuple[str, Callable[[], Any]]] = [
        ("worked examples", lambda: work_out(8, PRODUCT_STEPS, config.first_seed))
    ]
    looks += [(f"radius, {name}", lambda name=name: sweep(config, name)) for name in ACTIVATIONS]
    looks += [(f"gates, {name}", lambda name=name: look_at(config, name)) for name in CELLS]
    looks.append(("number formats", lambda: saturate(config)))
    looks += [(f"growth of {rate:.0%}", lambda rate=rate: grow(rate)) for rate in RATES]
    looks += [(f"warnings, {name}", lambda name=name: warn(config, name)) for name in NETS]
    return looks
