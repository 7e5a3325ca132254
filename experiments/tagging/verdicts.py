"""What was expected, written before the run, and whether it came out."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.data.source import KEYWORD
from experiments.frame.verdicts import Expectation, Verdict
from experiments.tagging.layouts import PACKED, PADDED
from experiments.tagging.model import DIRECTIONS
from experiments.tagging.results import Baselines, Layouts, Tagged, Truth, of_kind

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
SAME = Expectation(
    "packed is padded",
    f"gradients within {TOLERANCE:g} of the largest number, losses of both trainings within "
    f"{TRAJECTORY:g}",
)
FASTER = Expectation(
    "packed is faster", "more real characters a processor second than padded, in every round"
)
POINTS = (FUTURE, WHERE, MEMORY, SAME, FASTER)


def verdicts(results: Sequence[Any]) -> list[Verdict]:
    """All points; those whose results are not there were not run."""
    baselines = of_kind(results, Baselines)[0]
    good = {name: good_seeds(results, name) for name in DIRECTIONS}
    layouts = of_kind(results, Layouts)
    judged: list[Verdict | None] = [None] * len(POINTS)
    if all(good.values()):
        judged[0], judged[1] = _future(baselines.truth, good), _where(baselines.truth, good)
    if good["forward"]:
        judged[2] = _memory(baselines, good["forward"])
    if layouts:
        judged[3], judged[4] = _same(layouts), _faster(layouts)
    return [verdict or point.not_run() for point, verdict in zip(POINTS, judged, strict=True)]


def good_seeds(results: Sequence[Any], direction: str) -> list[Tagged]:
    """Those that did not fail."""
    tagged = of_kind(results, Tagged)
    return [one for one in tagged if one.direction == direction and not one.fitted.failed]


def recall(truth: Truth, tagged: Sequence[Tagged], chosen: np.ndarray) -> float:
    """The share of chosen characters that are told right, in %, the mean of the seeds."""
    labels = truth.labels[chosen]
    return 100 * float(np.mean([(one.predicted[chosen] == labels).mean() for one in tagged]))


def _future(truth: Truth, good: Mapping[str, Sequence[Tagged]]) -> Verdict:
    everything = np.ones(len(truth.labels), bool)
    shares = {
        name: [recall(truth, [one], everything) for one in seeds] for name, seeds in good.items()
    }
    forward, both = (shares[name] for name in DIRECTIONS)
    measured = f"forward at most {max(forward):.2f} %, bidirectional at least {min(both):.2f} %"
    return FUTURE.verdict(measured, min(both) > max(forward))


def _where(truth: Truth, good: Mapping[str, Sequence[Tagged]]) -> Verdict:
    keywords = (truth.labels == KEYWORD) & (truth.length >= LONG)
    places = (truth.position == 0, truth.position == truth.length - 1)
    shares = [[recall(truth, good[name], keywords & at) for name in DIRECTIONS] for at in places]
    first, last = (both - forward for forward, both in shares)
    measured = f"{first:+.1f} points at the first character, {last:+.1f} at the last one"
    return WHERE.verdict(measured, first >= HELPED and abs(last) <= UNHELPED)


def _memory(baselines: Baselines, forward: Sequence[Tagged]) -> Verdict:
    truth = baselines.truth
    shares = {
        name: 100 * (told == truth.labels).mean() for name, told in baselines.predicted.items()
    }
    best = max(shares, key=lambda name: shares[name])
    worst = min(100 * (one.predicted == truth.labels).mean() for one in forward)
    measured = f"forward at least {worst:.2f} %, {best} {shares[best]:.2f} %"
    return MEMORY.verdict(measured, worst > shares[best])


def _same(layouts: Sequence[Layouts]) -> Verdict:
    gradients = max(one.gradient_difference.max() for one in layouts)
    losses = max(np.abs(one.losses[PACKED] - one.losses[PADDED]).max() for one in layouts)
    measured = f"gradients differ by at most {gradients:.1e}, losses by {losses:.1e}"
    return SAME.verdict(measured, gradients <= TOLERANCE and losses <= TRAJECTORY)


def _faster(layouts: Sequence[Layouts]) -> Verdict:
    ratios = {one.direction: one.rate(PACKED) / one.rate(PADDED) for one in layouts}
    parts = [
        f"{name} x {np.median(ratio):.1f}, worst round x {ratio.min():.1f}"
        for name, ratio in ratios.items()
    ]
    return FASTER.verdict("; ".join(parts), all(ratio.min() > 1 for ratio in ratios.values()))
