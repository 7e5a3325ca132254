"""What is trained on and what is tested on, by length of the source."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from experiments.data.spelled import Pairs, draw_numbers, make_pairs
from experiments.translate.config import UPDATES_PER_EPOCH, Config

PARTS = 4  # of the lengths in training


class Task(NamedTuple):
    """Pairs to train on, none longer than `longest`, and `[N]` pairs of other numbers to test."""

    training: Pairs
    held_out: Pairs
    longest: int

    @property
    def within(self) -> np.ndarray:
        """The sources whose lengths are in training, bool `[N]`."""
        return self.held_out.lengths <= self.longest

    @property
    def longest_quarter(self) -> np.ndarray:
        """The longest of them, bool `[N]`."""
        return self.within & (self.held_out.lengths > round((PARTS - 1) * self.longest / PARTS))

    @property
    def shorter_half(self) -> np.ndarray:
        """The shorter ones, bool `[N]`."""
        return self.held_out.lengths <= self.longest / 2

    @property
    def examples(self) -> dict[str, int]:
        """Of each language the longest source that is no longer than those in training."""
        rows = {}
        for language in dict.fromkeys(self.held_out.languages.tolist()):
            chosen = self.held_out.languages == language
            lengths = np.where(chosen & self.within, self.held_out.lengths, 0)
            rows[language] = int(np.argmax(lengths))
        return rows


def make_task(config: Config) -> Task:
    """The numbers are split, and only then written out, so no language tells of another one."""
    numbers = draw_numbers(config.num_digits, config.numbers, config.held_out, config.first_seed)
    every, held_out = (make_pairs(part, config.languages, config.num_digits) for part in numbers)
    training = every.where(every.lengths <= config.longest)
    training = training._replace(sources=training.sources[:, : config.longest])
    return Task(training, held_out, config.longest)


def minibatches(config: Config, training: Pairs, seed: int, epoch: int) -> dict[str, np.ndarray]:
    """`sources [U, B, S]`, `targets [U, B, T]` of an epoch, drawn anew; few digits more often."""
    generator = np.random.default_rng([seed, 1, epoch])
    num_digits = np.char.str_len(training.numbers.astype(str))
    chances = np.bincount(num_digits)[num_digits] ** -0.5
    shape = UPDATES_PER_EPOCH, config.batch_size
    chosen = generator.choice(len(chances), size=shape, p=chances / chances.sum())
    return {"sources": training.sources[chosen], "targets": training.targets[chosen]}


def length_groups(lengths: np.ndarray, longest: int) -> Iterator[tuple[str, np.ndarray]]:
    """Name and mask of each quarter of the lengths in training, and of those beyond; none empty."""
    edges = [round(part * longest / PARTS) for part in range(PARTS + 1)]
    edges.append(max(longest, int(lengths.max())))
    for low, high in zip(edges, edges[1:], strict=False):
        mask = (lengths > low) & (lengths <= high)
        if mask.any():
            yield f"{low + 1} to {high}", mask


def digit_groups(pairs: Pairs) -> Iterator[tuple[int, float, np.ndarray, np.ndarray]]:
    """`(digits, median, shorter, longer)`: of each number of digits the sources around the median.

    Long sources are mostly large numbers; here the length differs and what is to be said does not.
    """
    num_digits = np.char.str_len(pairs.numbers.astype(str))
    for digits in range(2, num_digits.max() + 1):
        mask = num_digits == digits
        if mask.any():
            median = float(np.median(pairs.lengths[mask]))
            shorter = pairs.lengths <= median
            yield digits, median, mask & shorter, mask & ~shorter
