"""What several numbers amount to: means, spreads, and intervals by resampling."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

LEVEL = 95  # per cent, of every interval


class Interval(NamedTuple):
    """A mean and its interval; of a difference below 0, the first is smaller."""

    mean: float
    low: float
    high: float

    def shown(self, digits: int) -> str:
        """The mean with its sign, and the interval in brackets."""
        return f"{self.mean:+.{digits}f} [{self.low:+.{digits}f}, {self.high:+.{digits}f}]"


def bootstrap(
    sums: Any, counts: Any = None, *, resamples: int = 2000, block: int = 1, seed: int = 0
) -> Interval:
    """The mean of values that come in groups, with an interval by drawing groups again.

    Groups are what is independent: topics of a text, numbers in several languages, months.

    Args:
        sums: `[G]`, the sum of the values of each group.
        counts: `[G]`, how many values are in each; one when left out.
        resamples: How often `G` groups are drawn with replacement.
        block: Neighbouring groups that are drawn together, the last ones with the first.
        seed: Of the draws.
    """
    sums = np.asarray(sums, float)
    counts = np.ones(len(sums)) if counts is None else np.asarray(counts)
    size = len(sums)
    generator = np.random.default_rng(seed)
    first = generator.integers(size, size=(resamples, -(-size // block), 1))
    drawn = (first + np.arange(block)).reshape(resamples, -1)[:, :size] % size
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(float(sums.sum() / counts.sum()), float(low), float(high))


def mean_and_spread(values: np.ndarray, digits: int = 1) -> str:
    """Mean ± standard deviation of the sample, as far as there are values for them."""
    if len(values) == 0:
        return "-"
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def median_and_quartiles(values: np.ndarray, digits: int = 2) -> str:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def share(flags: Sequence[Any] | np.ndarray) -> str:
    """How many of the flags are set, "2 of 5"."""
    return f"{int(np.sum(flags))} of {len(flags)}"
