"""What the experiment hands on from measuring to reporting."""

from typing import NamedTuple

import numpy as np

from experiments.minimal.baselines import Baseline
from experiments.minimal.comparison import Entry
from experiments.minimal.forecasts import Forecasts
from experiments.minimal.probes import Difference, PaddingProbe
from experiments.minimal.task import Task
from experiments.minimal.training import Trained


class Choice(NamedTuple):
    """A setting trained on the months before those to choose by, and its errors there, `[S]`."""

    trained: Trained
    errors: np.ndarray

    @property
    def error(self) -> float:
        """The mean over the seeds that did not fail; infinite if all did."""
        kept = self.errors[~self.trained.failed]
        return float(kept.mean()) if len(kept) else float("inf")


class Evaluated(NamedTuple):
    """What came out of the models that were trained for the test.

    Attributes:
        task: The series and their split.
        padding: What padding changed.
        boundaries: How far every right and wrong way is from the sequences alone.
        forecasts: Of the GRU.
        leaks: What of the training depends on what is tested on.
        entries: Errors of the GRU, of its stateless twin, and of every baseline.
        baselines: The baselines themselves.
    """

    task: Task
    padding: PaddingProbe
    boundaries: list[Difference]
    forecasts: Forecasts
    leaks: list[str]
    entries: list[Entry]
    baselines: list[Baseline]
