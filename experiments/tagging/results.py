"""What the experiment hands on from measuring to reporting."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.data.source import CLASSES
from experiments.frame.fitting import Fitted
from experiments.tagging.task import Paragraph


class Truth(NamedTuple):
    """The characters of the test files, in the order of the paragraphs; every array is `[N]`."""

    labels: np.ndarray
    position: np.ndarray
    length: np.ndarray
    file: np.ndarray


class Baselines(NamedTuple):
    """Predictions `[N]` without a recurrence, by name; and what they are compared with."""

    truth: Truth
    predicted: Mapping[str, np.ndarray]
    files: Sequence[str]
    about: Mapping[str, Any]
    lengths: np.ndarray


class Tagged(NamedTuple):
    """One training of one model: what it says of the test characters, `[N]`."""

    direction: str
    seed: int
    fitted: Fitted
    predicted: np.ndarray


class Layouts(NamedTuple):
    """Packed against padded, for one model.

    Attributes:
        direction: Of the model.
        losses: "packed" and "padded" to the losses `[updates]` of the same updates.
        gradient_difference: `[updates]`, at the same parameters, relative to the largest number.
        slots: Layout to steps computed in the measured minibatches, padding included.
        characters: Layout to real characters in them.
        seconds: Layout to processor seconds `[rounds]`.
        temporary_bytes: Layout to what XLA plans.
    """

    direction: str
    losses: Mapping[str, np.ndarray]
    gradient_difference: np.ndarray
    slots: Mapping[str, int]
    characters: Mapping[str, int]
    seconds: Mapping[str, np.ndarray]
    temporary_bytes: Mapping[str, int]

    def rate(self, layout: str) -> np.ndarray:
        """Real characters a processor second, `[rounds]`."""
        return self.characters[layout] / self.seconds[layout]


def truth_of(paragraphs: Sequence[Paragraph]) -> Truth:
    """Paragraphs laid end to end."""
    _, *rest = (np.concatenate(arrays) for arrays in zip(*paragraphs, strict=True))
    return Truth(*rest)


def confusion(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """How often the class of the row was called that of the column, `[classes, classes]`."""
    size = len(CLASSES)
    return np.bincount(labels * size + predicted, minlength=size**2).reshape(size, size)


def f1_scores(counts: np.ndarray) -> np.ndarray:
    """2 TP / (2 TP + FP + FN) of every class; NaN for one that is neither there nor told."""
    both = counts.sum(axis=0) + counts.sum(axis=1)
    return 2 * np.diag(counts) / np.where(both > 0, both, np.nan)


def macro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The mean over classes, each with the same weight."""
    return float(np.nanmean(f1_scores(confusion(labels, predicted))))


def accuracy(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The share of characters."""
    return float((labels == predicted).mean())


def of_kind(results: Any, kind: Any) -> list[Any]:
    """The results of one kind, in order."""
    return [one for one in results if isinstance(one, kind)]
