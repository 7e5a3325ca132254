"""What is said of the three families, with a criterion for each saying."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from experiments.digits.measure import Results
from experiments.digits.model import FAMILIES, REPRESENTATIVES
from experiments.frame.models import LABELS
from experiments.frame.verdicts import Expectation, Verdict

PERMUTED = 1  # the order in which time says nothing of the place on the page


class Claim(NamedTuple):
    """A saying about one family, judged by every measured model of it."""

    family: str  # one of `FAMILIES`
    expectation: Expectation  # the saying, and what must come out for it to hold
    measure: Callable[[Results], Mapping[str, float]]  # name to number, of the results
    low: float  # the least number with which it holds
    high: float  # the largest one
    shown: str  # from that number to text

    def holds(self, value: float) -> bool:
        """Whether it holds for a model with this number; never for NaN."""
        return self.low <= value <= self.high


def _depths(results: Results) -> dict[str, float]:
    return {one.name: _ratio(one.parallel_depth) for one in results.counted}


def _carries(results: Results) -> dict[str, float]:
    return {one.name: _ratio(one.carry_bytes) for one in results.counted}


def _early(results: Results) -> dict[str, float]:
    return {one.name: float(one.early()[PERMUTED]) for one in results.reaches}


def _exponents(results: Results) -> dict[str, float]:
    """Between the last two lengths, where overheads weigh least."""
    exponents = {}
    for name, seconds in results.growth.seconds.items() if results.growth else ():
        shorter, longer = sorted(seconds)[-2:]
        times = sorted(seconds[longer])[len(seconds[longer]) // 2]
        times /= sorted(seconds[shorter])[len(seconds[shorter]) // 2]
        exponents[name] = math.log(times) / math.log(longer / shorter)
    return exponents


def _claims(dimension, measure, shown, of_families) -> Iterable[Claim]:
    for family, (saying, criterion, low, high) in of_families.items():
        expectation = Expectation(f"{dimension}, {family}: {saying}", criterion)
        yield Claim(family, expectation, measure, low, high, shown)


_FIXED = ("fixed size", "256 times the context: carry x 1", 0, 1)
_FADES = (
    "compressed state: early inputs fade",
    "permuted: sensitivity to the first quarter of the steps is at most half of that to the last",
    0,
    0.5,
)
_LINEAR = (
    "state dynamics: linear in length",
    "time of a gradient grows as T^1.2 at most",
    -math.inf,
    1.2,
)
# The depth of a linear recurrence may grow by a square root and a logarithm: by 6.
CLAIMS = (
    *_claims("training path", _depths, "depth x {:.1f}", {
        "RNN": ("serial", "16 times the steps: depth x 12 or more", 12, math.inf),
        "linear": ("parallel scans or convolutions", "16 times the steps: depth x 6 or less", 0, 6),
        "attention": (
            "positions parallel within a layer", "16 times the steps: depth x 1.5 or less", 0, 1.5
        ),
    }),
    *_claims("inference state", _carries, "carry x {:.0f}", {
        "RNN": _FIXED,
        "linear": _FIXED,
        "attention": (
            "cache grows with context", "256 times the context: carry x 200 or more", 200, math.inf
        ),
    }),
    *_claims("history access", _early, "early / late {:.2g}", {
        "RNN": _FADES,
        "linear": _FADES,
        "attention": (
            "direct access to positions",
            "permuted: sensitivity to the first quarter of the steps is at least half of that to "
            "the last", 0.5, math.inf,
        ),
    }),
    *_claims("long-range cost", _exponents, "time ~ T^{:.2f}", {
        "RNN": _LINEAR,
        "linear": _LINEAR,
        "attention": (
            "scores quadratic in length", "time of a gradient grows as T^1.5 at least",
            1.5, math.inf,
        ),
    }),
)  # fmt: skip


def judged(results: Results) -> list[Verdict]:
    """Every claim; it holds when it holds for every measured model of its family."""
    verdicts = []
    for claim in CLAIMS:
        values = claim.measure(results)
        known = {name: values[name] for name in FAMILIES[claim.family] if name in values}
        verdicts.append(claim.expectation.judge(lambda known, c=claim: _judge(c, known), known))
    return verdicts


def _judge(claim: Claim, known: Mapping[str, float]) -> tuple[str, bool]:
    exceptions = [name for name, value in known.items() if not claim.holds(value)]
    shown = exceptions or [REPRESENTATIVES[claim.family]]
    shown = [name for name in shown if name in known] or list(known)[:1]
    parts = [f"{LABELS[name]}: {claim.shown.format(known[name])}" for name in shown]
    if not exceptions and len(known) > 1:
        low, high = (claim.shown.format(f(known.values())) for f in (min, max))
        parts.append(f"all {len(known)}: {low} to {high.split()[-1]}")
    return "; ".join(parts), not exceptions


def _ratio(by_size: Mapping[int, float]) -> float:
    return by_size[max(by_size)] / by_size[min(by_size)]
