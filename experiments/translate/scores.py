"""Scores by length of the source and by language, and how sure a difference is."""

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.data.spelled import Pairs
from experiments.translate.config import FIXED
from experiments.translate.results import Measured

PARTS = 4  # of the lengths in training
RESAMPLES, LEVEL = 1000, 95


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


def longest_quarter(pairs: Pairs, longest: int) -> np.ndarray:
    """The longest sources whose lengths are in training, bool `[N]`."""
    low = round((PARTS - 1) * longest / PARTS)
    return (pairs.lengths > low) & (pairs.lengths <= longest)


def shortest_half(pairs: Pairs, longest: int) -> np.ndarray:
    """The shorter sources, bool `[N]`."""
    return pairs.lengths <= longest / 2


def whole_kinds(results: Sequence[Measured]) -> dict[str, list[Measured]]:
    """By kind the trainings that did not fail and hand on all their units."""
    found: dict[str, list[Measured]] = {}
    for one in results:
        if not one.setting.is_probe and not one.fitted.failed:
            found.setdefault(one.setting.kind, []).append(one)
    return found


def exact_by_kind(results: Sequence[Measured]) -> dict[str, np.ndarray]:
    """How many of the seeds wrote each pair right, a share `[N]`, for each of `whole_kinds`."""
    kinds = whole_kinds(results)
    return {kind: np.mean([one.exact for one in ones], axis=0) for kind, ones in kinds.items()}


def exact_by_units(results: Sequence[Measured]) -> dict[int, np.ndarray]:
    """The same of the fixed vector, by the units that pass, the fewest first."""
    found: dict[int, list[np.ndarray]] = {}
    for one in results:
        if one.setting.kind == FIXED and not one.fitted.failed:
            found.setdefault(one.setting.kept, []).append(one.exact)
    return {units: np.mean(exact, axis=0) for units, exact in sorted(found.items())}


def mean_and_interval(
    differences: np.ndarray, numbers: np.ndarray, seed: int = 0
) -> tuple[float, float, float]:
    """The mean of differences `[N]` and its interval (mean, low, high).

    A number stands in all languages, and these are not independent: numbers are drawn, not pairs.
    """
    _, group = np.unique(numbers, return_inverse=True)
    sums, counts = np.bincount(group, differences), np.bincount(group)
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(counts), size=(RESAMPLES, len(counts)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return float(differences.mean()), float(low), float(high)
