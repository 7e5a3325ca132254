"""What is expected of the four models, written down before the run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame.stats import LEVEL, Interval, bootstrap
from experiments.frame.verdicts import Expectation, Verdict
from experiments.translate.config import Config
from experiments.translate.measure import FIXEDS, WITH_ATTENTION, Measured, Results

Models = Sequence[Measured]
ONES_FIRST = ("de",)
RESAMPLES = 1000
GAP_GROWS, TIES = 5.0, 0.002

LEARNED = Expectation(
    "1 attention learns the task", "each kind writes at least 80 % of the shorter half right"
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
    f"over all lengths in training, above the source as it is beyond doubt ({LEVEL} %)",
)
WIDTH = Expectation(
    "6 the vector is the bottleneck", "the fewer of its units pass, the fewer numbers are right"
)
ORDER = Expectation(
    "7 the map shows the order of words",
    "tens read after ones in German, before them elsewhere (median; each kind)",
)
SAME = Expectation(
    "8 written rightly = every token right after the true prefix",
    f"the same pairs, up to {100 * TIES:g} % for ties in rounding, for every training",
)


def judged(config: Config, results: Results) -> list[Verdict]:
    task, whole, by_units = results.task, results.whole, results.by_units
    every_width = len(by_units) > len(config.kept) > 0
    within, beyond, short, long = map(
        np.flatnonzero, (task.within, ~task.within, task.shorter_half, task.longest_quarter)
    )

    def asked_for(kinds):
        asked = [kind for kind in kinds if kind in config.models]
        return [whole[kind] for kind in asked] if set(asked) <= set(whole) else []

    looking, fixed = asked_for(WITH_ATTENTION), asked_for(FIXEDS)
    reverse, forward = (whole.get(kind) if len(fixed) == 2 else None for kind in FIXEDS[::-1])
    return [
        LEARNED.judge(learned, looking, short),
        ATTENTION.judge(all_above, looking, fixed, long),
        GAP.judge(gap, looking, fixed, short, long),
        LONGER.judge(all_above, looking, fixed, beyond),
        REVERSING.judge(reversing, reverse, forward, within),
        WIDTH.judge(width, by_units if every_width else None, within),
        ORDER.judge(order, looking, config.languages, task.within),
        SAME.judge(same, results.measured),
    ]


def learned(looking: Models, short: np.ndarray) -> tuple[str, Any]:
    shares = [100 * one.mean_exact[short].mean() for one in looking]
    return " and ".join(f"{share:.1f} %" for share in shares), min(shares) >= 80


def all_above(looking: Models, fixed: Models, where: np.ndarray) -> tuple[str, Any]:
    every = [difference(one, other, where) for one in looking for other in fixed]
    least = min(every, key=lambda one: one.low)
    return f"the least difference {least.shown(1)} points", least.low > 0


def gap(looking: Models, fixed: Models, short: np.ndarray, long: np.ndarray) -> tuple[str, Any]:
    means = [np.mean([one.mean_exact for one in kinds], axis=0) for kinds in (looking, fixed)]
    at_short, at_long = (100 * (means[0] - means[1])[where].mean() for where in (short, long))
    measured = f"{at_short:+.1f} points on short sources, {at_long:+.1f} on long ones"
    return measured, min(at_long, at_long - at_short) >= GAP_GROWS


def reversing(reverse: Measured, forward: Measured, within: np.ndarray) -> tuple[str, Any]:
    gained = difference(reverse, forward, within)
    return f"{gained.shown(1)} points", gained.low > 0


def width(by_units: Mapping[int, Measured], within: np.ndarray) -> tuple[str, Any]:
    shares = {units: 100 * one.mean_exact[within].mean() for units, one in by_units.items()}
    measured = ", ".join(f"{units} units {share:.1f} %" for units, share in shares.items())
    return measured, all(np.diff(list(shares.values())) > 0)


def order(looking: Models, languages: Sequence[str], within: np.ndarray) -> tuple[str, Any]:
    told, right = [], True
    for one in looking:
        medians = {
            language: float(np.median(letters)) if len(letters) else np.nan
            for language, letters in order_of_last_digits(one, languages, within).items()
        }
        right &= all(
            median > 0 if language in ONES_FIRST else median < 0
            for language, median in medians.items()
        )
        of_kind = ", ".join(f"{language} {median:+.1f}" for language, median in medians.items())
        told.append(f"{one.setting.kind}: {of_kind}")
    return f"letters from the ones to the tens: {'; '.join(told)}", right


def same(measured: Models) -> tuple[str, Any]:
    most = max((one.exact != one.all_forced).mean(axis=-1).max() for one in measured)
    return f"at most {100 * most:.2f} % of the pairs differ", most <= TIES


def difference(one: Measured, other: Measured, where: np.ndarray) -> Interval:
    """Of the shares written right, in points; numbers are drawn, as all languages have the same."""
    points = 100 * (one.mean_exact - other.mean_exact)[where]
    _, group = np.unique(one.pairs.numbers[where], return_inverse=True)
    return bootstrap(np.bincount(group, points), np.bincount(group), resamples=RESAMPLES)


def order_of_last_digits(
    one: Measured, languages: Sequence[str], chosen: np.ndarray
) -> dict[str, np.ndarray]:
    """By language, letters from where the ones are read to where the tens are; above 0: tens later.

    Of the `chosen` pairs that a seed wrote right and whose last two digits are two words in every
    language: 21 to 99 without tens.
    """
    numbers = one.pairs.numbers
    chosen = chosen & one.exact & (numbers % 100 > 20) & (numbers % 10 != 0)
    chosen &= ~one.fitted.failed[:, None]
    centres = one.answers.weights @ np.arange(one.answers.weights.shape[-1])
    rows, ones = np.arange(len(numbers)), np.char.str_len(numbers.astype(str)) - 1
    letters = centres[:, rows, ones - 1] - centres[:, rows, ones]
    return {language: letters[chosen & (one.pairs.languages == language)] for language in languages}
