"""What the experiment hands on from measuring to reporting."""

from typing import NamedTuple

import numpy as np

from experiments.data.spelled import PAD
from experiments.frame.fitting import Fitted
from experiments.translate.answers import Answers
from experiments.translate.task import Task
from experiments.translate.training import Setting


class Measured(NamedTuple):
    """One training, and its answers to the held-out pairs of `task`."""

    setting: Setting
    fitted: Fitted
    task: Task
    answers: Answers

    @property
    def exact(self) -> np.ndarray:
        """Pairs whose every token was written right, bool `[N]`."""
        return (self.answers.written == self._truth).all(axis=1)

    @property
    def all_forced(self) -> np.ndarray:
        """Pairs whose every token is right behind the true prefix, bool `[N]`."""
        return (self._right(self.answers.forced) | ~self._real).all(axis=1)

    @property
    def forced_share(self) -> np.ndarray:
        """The share of tokens that are right behind the true prefix, `[N]`."""
        return self._share(self.answers.forced)

    @property
    def written_share(self) -> np.ndarray:
        """The share of tokens that are right in what the model wrote by itself, `[N]`."""
        return self._share(self.answers.written)

    @property
    def _truth(self):
        return self.task.held_out.targets[:, 1:]

    @property
    def _real(self):
        return self._truth != PAD

    def _right(self, tokens):
        return (tokens == self._truth) & self._real

    def _share(self, tokens):
        return self._right(tokens).sum(axis=1) / self._real.sum(axis=1)
