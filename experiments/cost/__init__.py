"""Time and memory against T: RNN, state space and attention, measured beside what is predicted."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.cost.config import Config
from experiments.cost.formulas import count_simple
from experiments.cost.measuring import Steps, as_measured, measure_length
from experiments.cost.report import report
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar

__all__ = ["Config", "measure", "report"]


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Any]:
    """Counts, then all models at one length after the other; a length is a checkpoint."""
    steps: Steps = {}

    def one_length(state, index):
        return state, measure_length(config, config.lengths[index], steps)

    # Compilation takes as long as a few hundred steps of a sequence, whatever their number.
    work = [length + 1000 for length in config.lengths]
    with progress_bar(sum(work)) as bar:
        yield count_simple()
        for index, length in enumerate(config.lengths):
            bar.stage(f"{length} steps")
            _, history = checkpoints.run("lengths", np.zeros(1, np.float32), index + 1, one_length)
            arrays = {name: values[index] for name, values in history.items()}
            yield from as_measured(config, length, arrays)
            bar.advance(work[index])
            bar.finish_stage(f"{length} steps")
