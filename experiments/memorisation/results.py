"""What the experiment hands on from measuring to reporting."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.characters.model import Sized
from experiments.characters.writing import Passage
from experiments.data.topics import Corpus
from experiments.memorisation.connections import Connections


class Chosen(NamedTuple):
    """The text, and the passages of it that are shown."""

    corpus: Corpus
    passages: Sequence[Passage]


class Traced(NamedTuple):
    """A trained model, and what its predictions depend on."""

    model: Sized
    params: Any
    connections: Connections

    def by_distance(self) -> np.ndarray:
        """The share of the dependence on the character so many places back, `[T // 2]`.

        A mean over the predictions in the second half of the passages, each of which has so many
        characters in front of it; the first number is that of the last character.
        """
        shares = self.connections.shares()
        length = shares.shape[-1]
        reach = length // 2
        rows = [shares[:, row, row - reach : row][:, ::-1] for row in range(reach, length)]
        return np.mean(rows, axis=(0, 1))

    def beyond(self, distance: int) -> float:
        """The share of the dependence on characters more than `distance` places back."""
        return float(1 - self.by_distance()[:distance].sum())
