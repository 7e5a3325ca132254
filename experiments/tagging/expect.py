"""What was expected, written before the run, and whether it came out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.frame.verdicts import Expectation, Verdict
from experiments.tagging.layouts import PACKED, PADDED, Comparison
from experiments.tagging.measure import Results, accuracy, recall, whole_tokens
from experiments.tagging.task import KEYWORD, Paragraph
from experiments.tagging.train import BOTH, CHAIN, FORWARD

TOLERANCE = 1e-5
TRAJECTORY = 1e-3
HELPED, UNHELPED = 10.0, 2.0  # points at the first and the last character of a keyword
LONG = 3  # characters of a keyword that has a beginning and an end

FUTURE = Expectation("the future helps", "the worst bidirectional seed beats the best forward one")
WHERE = Expectation(
    "it helps where a token begins",
    f"keywords of {LONG} characters or more: at the first one {HELPED:g} points or more, at the "
    f"last one {UNHELPED:g} or less",
)
MEMORY = Expectation("memory helps", "every forward seed beats the best of the counted baselines")
CONSISTENT = Expectation(
    "a chain of labels makes tokens whole",
    "of tokens of 2 characters or more, every seed tells more wholly right with a CRF than without",
)
SAME = Expectation(
    "packed is padded",
    f"gradients within {TOLERANCE:g} of the largest number, losses of both trainings within "
    f"{TRAJECTORY:g}",
)
FASTER = Expectation(
    "packed is faster", "more real characters a processor second than padded, in every round"
)


def judged(results: Results) -> list[Verdict]:
    good, truth = results.good, results.truth
    both = [good[name] for name in (FORWARD, BOTH)] if {FORWARD, BOTH} <= good.keys() else None
    return [
        FUTURE.judge(_future, truth, both),
        WHERE.judge(_where, truth, both),
        MEMORY.judge(_memory, truth, results.counted, good.get(FORWARD)),
        CONSISTENT.judge(_consistent, truth, *_paired(results.tagged)),
        SAME.judge(_same, results.comparisons),
        FASTER.judge(_faster, results.comparisons),
    ]


def _future(truth: Paragraph, both: Sequence[np.ndarray]) -> tuple[str, Any]:
    forward, bidirectional = (100 * accuracy(truth.labels, predicted) for predicted in both)
    most, least = forward.max(), bidirectional.min()
    return f"forward at most {most:.2f} %, bidirectional at least {least:.2f} %", least > most


def _where(truth: Paragraph, both: Sequence[np.ndarray]) -> tuple[str, Any]:
    keywords = (truth.labels == KEYWORD) & (truth.length >= LONG)
    places = (truth.position == 0, truth.position == truth.length - 1)
    shares = [[recall(truth, one, keywords & at) for one in both] for at in places]
    first, last = (bidirectional - forward for forward, bidirectional in shares)
    measured = f"{first:+.1f} points at the first character, {last:+.1f} at the last one"
    return measured, first >= HELPED and abs(last) <= UNHELPED


def _memory(truth: Paragraph, counted: Mapping[str, Any], forward: Any) -> tuple[str, Any]:
    best, name = max((accuracy(truth.labels, told), name) for name, told in counted.items())
    worst = accuracy(truth.labels, forward).min()
    return f"forward at least {100 * worst:.2f} %, {name} {100 * best:.2f} %", worst > best


def _paired(tagged):
    """What the same seeds tell without and with a CRF, of seeds that failed in neither."""
    by_name = {one.model: one for one in tagged}
    without, chained = by_name.get(BOTH), by_name.get(CHAIN)
    if without is None or chained is None:
        return None, None
    failed = without.fitted.failed | chained.fitted.failed
    return without.predicted[~failed], chained.predicted[~failed]


def _consistent(truth: Paragraph, without: np.ndarray, chained: np.ndarray) -> tuple[str, Any]:
    shares = [100 * whole_tokens(truth, one) for one in (without, chained)]
    parts = [f"{one:.2f} % without, {other:.2f} % with" for one, other in zip(*shares, strict=True)]
    return "; ".join(parts), (shares[1] > shares[0]).all()


def _same(comparisons: Sequence[Comparison]) -> tuple[str, Any]:
    gradients = max(one.differences.max() for one in comparisons)
    losses = max(np.abs(one.losses[PACKED] - one.losses[PADDED]).max() for one in comparisons)
    measured = f"gradients differ by at most {gradients:.1e}, losses by {losses:.1e}"
    return measured, gradients <= TOLERANCE and losses <= TRAJECTORY


def _faster(comparisons: Sequence[Comparison]) -> tuple[str, Any]:
    ratios = {c.model: c.layouts[PACKED].rate / c.layouts[PADDED].rate for c in comparisons}
    parts = [
        f"{name} x {np.median(ratio):.1f}, worst round x {ratio.min():.1f}"
        for name, ratio in ratios.items()
    ]
    return "; ".join(parts), all(ratio.min() > 1 for ratio in ratios.values())
