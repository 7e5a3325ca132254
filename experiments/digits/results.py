"""What the experiment hands on from measuring to reporting."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Baseline(NamedTuple):
    """What can be done without a recurrence: accuracy on the test digits of two splits."""

    name: str
    shuffled: float
    file_order: float


class Baselines(NamedTuple):
    """All of them, and how many digits there are in each part."""

    entries: list[Baseline]
    sizes: tuple[int, int, int]


class Reach(NamedTuple):
    """How strongly the last output hears each pixel, `[orders, 64]`, the mean of some digits."""

    name: str
    sensitivity: np.ndarray

    def early(self) -> np.ndarray:
        """The first quarter of the steps relative to the last quarter, `[orders]`."""
        quarter = self.sensitivity.shape[1] // 4
        first, last = self.sensitivity[:, :quarter], self.sensitivity[:, -quarter:]
        return first.mean(axis=1) / last.mean(axis=1)


class Counted(NamedTuple):
    """What shapes alone tell of a model.

    Attributes:
        name: Of the model.
        depth: Steps to the sequential depth of a forward pass over so many, as it runs here.
        parallel_depth: The same with parallel scans where there are any.
        carry_bytes: Context to the bytes of the carry of one stream that may use all of it.
        multiply_adds: Steps to those of a forward pass, a step.
    """

    name: str
    depth: Mapping[int, int]
    parallel_depth: Mapping[int, int]
    carry_bytes: Mapping[int, int]
    multiply_adds: Mapping[int, float]


class Times(NamedTuple):
    """Processor seconds `[rounds]`, interleaved, of an update of all trainings and of one token."""

    update: Mapping[str, np.ndarray]
    token: Mapping[str, np.ndarray]


class Growth(NamedTuple):
    """The gradient of one mixer over sequences of several lengths.

    Attributes:
        width: Features of all mixers.
        seconds: Name to length to processor seconds `[rounds]`.
        temporary_bytes: Name to length to what XLA plans.
    """

    width: int
    seconds: Mapping[str, Mapping[int, np.ndarray]]
    temporary_bytes: Mapping[str, Mapping[int, int]]


def of_kind(results: Any, kind: Any) -> list[Any]:
    """The results of one kind, in order."""
    return [one for one in results if isinstance(one, kind)]
