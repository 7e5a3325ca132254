"""What is expected of the four models, written down in front of the run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.data.spelled import Pairs
from experiments.frame.verdicts import Expectation, Verdict
from experiments.translate.config import FIXED, REVERSED, Config
from experiments.translate.maps import ONES_FIRST, order_of_last_digits
from experiments.translate.model import FIXEDS, WITH_ATTENTION
from experiments.translate.results import Measured
from experiments.translate.scores import (
    LEVEL,
    exact_by_kind,
    exact_by_units,
    longest_quarter,
    mean_and_interval,
    shortest_half,
    whole_kinds,
)

GAP_GROWS, TIES = 5.0, 0.002

LEARNED = Expectation(
    "1 attention learns the task",
    "each kind writes at least 80 % of the shorter half right",
)
ATTENTION = Expectation(
    "2 attention beats the fixed vector on long sources",
    "in the longest quarter of the lengths in training, each kind of attention above each fixed "
    f"vector beyond doubt ({LEVEL} % interval over numbers)",
)
GAP = Expectation(
    "3 the gap grows with the length",
    f"attention minus fixed vector, means of the kinds: at least {GAP_GROWS:g} points in the "
    "longest quarter, and as much more than in the shorter half",
)
LONGER = Expectation(
    "4 attention is better beyond the lengths in training too",
    f"each kind above each fixed vector beyond doubt ({LEVEL} %)",
)
REVERSING = Expectation(
    "5 reversing the source helps the fixed vector",
    f"over all lengths in training, above the source as it stands beyond doubt ({LEVEL} %)",
)
WIDTH = Expectation(
    "6 the vector is the bottleneck",
    "the fewer of its units pass, the fewer numbers are right",
)
ORDER = Expectation(
    "7 the map shows the order of words",
    "tens read behind ones in German, in front of them elsewhere (median; each kind)",
)
SAME = Expectation(
    "8 written rightly = every token right behind the true prefix",
    f"the same pairs, up to {100 * TIES:g} % for ties in rounding, for every training",
)
LINES = (LEARNED, ATTENTION, GAP, LONGER, REVERSING, WIDTH, ORDER, SAME)


def judged(config: Config, results: Sequence[Measured]) -> list[Verdict]:
    """All lines, for whatever has been measured."""
    pairs = results[0].task.held_out
    exact = exact_by_kind(results)

    def asked_for(kinds):
        asked = tuple(kind for kind in kinds if kind in config.models)
        return asked if set(asked) <= set(exact) else ()

    kinds = asked_for(WITH_ATTENTION), asked_for(FIXEDS)
    compare = Comparison(pairs, config.longest, exact, *kinds)
    return [
        compare.learned(),
        *compare.with_and_without_attention(),
        compare.reversing(),
        _width_verdict(config, results, pairs),
        _order_verdict(config, results, pairs, kinds[0]),
        _same_verdict(results),
    ]


class Comparison(NamedTuple):
    """Shares `[N]` of seeds that were right, by kind, on `pairs`; empty kinds are not there yet."""

    pairs: Pairs
    longest: int
    exact: Mapping[str, np.ndarray]
    looking: Sequence[str]
    fixed: Sequence[str]

    def learned(self) -> Verdict:
        if not self.looking:
            return LEARNED.not_run()
        shorter = shortest_half(self.pairs, self.longest)
        shares = [100 * self.exact[kind][shorter].mean() for kind in self.looking]
        measured = " and ".join(f"{share:.1f} %" for share in shares)
        return LEARNED.verdict(measured, min(shares) >= 80)

    def with_and_without_attention(self) -> list[Verdict]:
        if not self.looking or not self.fixed:
            return [line.not_run() for line in (ATTENTION, GAP, LONGER)]
        return [self.attention(), self.gap(), self.longer()]

    def attention(self) -> Verdict:
        return self._all_above(ATTENTION, longest_quarter(self.pairs, self.longest))

    def longer(self) -> Verdict:
        beyond = self.pairs.lengths > self.longest
        return self._all_above(LONGER, beyond) if beyond.any() else LONGER.not_run()

    def gap(self) -> Verdict:
        means = [np.mean([self.exact[k] for k in kinds], 0) for kinds in (self.looking, self.fixed)]
        gap = 100 * (means[0] - means[1])
        short = gap[shortest_half(self.pairs, self.longest)].mean()
        long = gap[longest_quarter(self.pairs, self.longest)].mean()
        measured = f"{short:+.1f} points on short sources, {long:+.1f} on long ones"
        return GAP.verdict(measured, min(long, long - short) >= GAP_GROWS)

    def reversing(self) -> Verdict:
        if REVERSED not in self.fixed or FIXED not in self.fixed:
            return REVERSING.not_run()
        mask = self.pairs.lengths <= self.longest
        mean, low, high = self.difference(REVERSED, FIXED, mask)
        return REVERSING.verdict(f"{mean:+.1f} points [{low:+.1f}, {high:+.1f}]", low > 0)

    def difference(self, one: str, other: str, mask: np.ndarray) -> tuple[float, float, float]:
        """Of the shares in points, with its interval."""
        differences = 100 * (self.exact[one] - self.exact[other])[mask]
        return mean_and_interval(differences, self.pairs.numbers[mask])

    def _all_above(self, line: Expectation, mask: np.ndarray) -> Verdict:
        every = [self.difference(a, f, mask) for a in self.looking for f in self.fixed]
        mean, low, high = min(every, key=lambda one: one[1])
        measured = f"the least difference {mean:+.1f} points [{low:+.1f}, {high:+.1f}]"
        return line.verdict(measured, low > 0)


def _width_verdict(config, results, pairs) -> Verdict:
    mask = pairs.lengths <= config.longest
    means = exact_by_units(results)
    if not config.kept or len(means) <= len(config.kept):
        return WIDTH.not_run()
    shares = {units: 100 * mean[mask].mean() for units, mean in means.items()}
    measured = ", ".join(f"{units} units {share:.1f} %" for units, share in shares.items())
    return WIDTH.verdict(measured, all(np.diff(list(shares.values())) > 0))


def _order_verdict(config, results, pairs, looking) -> Verdict:
    if not looking:
        return ORDER.not_run()
    told, right, kinds = [], True, whole_kinds(results)
    for kind in looking:
        orders = [order_of_last_digits(one, pairs.lengths <= config.longest) for one in kinds[kind]]
        medians = {}
        for language in config.languages:
            values = np.concatenate([order[language] for order in orders])
            medians[language] = float(np.median(values)) if len(values) else np.nan
            late = medians[language] > 0
            right &= late if language in ONES_FIRST else medians[language] < 0
        of_kind = ", ".join(f"{language} {median:+.1f}" for language, median in medians.items())
        told.append(f"{kind}: {of_kind}")
    return ORDER.verdict(f"letters from the ones to the tens: {'; '.join(told)}", right)


def _same_verdict(results) -> Verdict:
    shares = [float((one.exact != one.all_forced).mean()) for one in results]
    measured = f"at most {100 * max(shares):.2f} % of the pairs differ"
    return SAME.verdict(measured, max(shares) <= TIES)
