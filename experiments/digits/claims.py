"""What is said of the three families, a criterion for each saying, and what was measured."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.digits.model import FAMILIES, REPRESENTATIVES, label
from experiments.digits.results import Counted, Growth, Reach, of_kind

LOGARITHMIC = 6.0  # growth of the depth when steps grow by 16: a square root and a logarithm
CONSTANT = 1.5
EARLY = 1  # the permuted order, in which time says nothing of the place on the page


class Claim(NamedTuple):
    """A saying about one family, judged by every measured model of it.

    Attributes:
        dimension: The row of the comparison.
        family: One of `FAMILIES`.
        saying: What is said.
        criterion: What must come out for it to hold.
        holds: From a number of a model to whether it does.
        shown: From that number to text.
        measure: Which number: one of `MEASURES`.
    """

    dimension: str
    family: str
    saying: str
    criterion: str
    holds: Callable[[float], bool]
    shown: str
    measure: str


class Judged(NamedTuple):
    """A claim, what was measured, and "pass", "FAIL" or "not run"."""

    claim: Claim
    measured: str
    verdict: str


def _at_most(limit):
    return lambda value: value <= limit


def _at_least(limit):
    return lambda value: value >= limit


_DEPTH, _CARRY = "depth x {:.1f}", "carry x {:.0f}"
_EARLY, _WORK = "early / late {:.2g}", "time ~ T^{:.2f}"
CLAIMS = (
    Claim("training path", "RNN", "serial", "16 times the steps: depth x 12 or more",
          _at_least(12.0), _DEPTH, "depth"),
    Claim("training path", "linear", "parallel scans or convolutions",
          f"16 times the steps: depth x {LOGARITHMIC:g} or less",
          _at_most(LOGARITHMIC), _DEPTH, "depth"),
    Claim("training path", "attention", "positions parallel within a layer",
          f"16 times the steps: depth x {CONSTANT:g} or less", _at_most(CONSTANT), _DEPTH, "depth"),
    Claim("inference state", "RNN", "fixed size", "256 times the context: carry x 1",
          _at_most(1.0), _CARRY, "carry"),
    Claim("inference state", "linear", "fixed size", "256 times the context: carry x 1",
          _at_most(1.0), _CARRY, "carry"),
    Claim("inference state", "attention", "cache grows with context",
          "256 times the context: carry x 200 or more", _at_least(200.0), _CARRY, "carry"),
    Claim("history access", "RNN", "compressed state: early inputs fade",
          "permuted: the first quarter of the steps is heard half as well as the last, or less",
          _at_most(0.5), _EARLY, "early"),
    Claim("history access", "linear", "compressed state: early inputs fade",
          "permuted: the first quarter of the steps is heard half as well as the last, or less",
          _at_most(0.5), _EARLY, "early"),
    Claim("history access", "attention", "direct access to positions",
          "permuted: the first quarter of the steps is heard more than half as well as the last",
          _at_least(0.5), _EARLY, "early"),
    Claim("long-range cost", "RNN", "state dynamics: linear in length",
          "time of a gradient grows as T^1.2 at most", _at_most(1.2), _WORK, "exponent"),
    Claim("long-range cost", "linear", "state dynamics: linear in length",
          "time of a gradient grows as T^1.2 at most", _at_most(1.2), _WORK, "exponent"),
    Claim("long-range cost", "attention", "scores quadratic in length",
          "time of a gradient grows as T^1.5 at least", _at_least(1.5), _WORK, "exponent"),
)  # fmt: skip


def _depths(results: Sequence[Any]) -> dict[str, float]:
    return {one.name: _ratio(one.parallel_depth) for one in of_kind(results, Counted)}


def _carries(results: Sequence[Any]) -> dict[str, float]:
    return {one.name: _ratio(one.carry_bytes) for one in of_kind(results, Counted)}


def _early(results: Sequence[Any]) -> dict[str, float]:
    return {one.name: float(one.early()[EARLY]) for one in of_kind(results, Reach)}


def _exponents(results: Sequence[Any]) -> dict[str, float]:
    """Between the last two lengths, where overheads weigh least."""
    exponents = {}
    for growth in of_kind(results, Growth):
        for name, seconds in growth.seconds.items():
            shorter, longer = sorted(seconds)[-2:]
            times = sorted(seconds[longer])[len(seconds[longer]) // 2]
            times /= sorted(seconds[shorter])[len(seconds[shorter]) // 2]
            exponents[name] = math.log(times) / math.log(longer / shorter)
    return exponents


MEASURES: Mapping[str, Callable[[Sequence[Any]], dict[str, float]]] = {
    "depth": _depths,
    "carry": _carries,
    "early": _early,
    "exponent": _exponents,
}


def judge(results: Sequence[Any]) -> list[Judged]:
    """Every claim; it holds when it holds for every measured model of its family."""
    values = {name: measure(results) for name, measure in MEASURES.items()}
    return [_judged(claim, values[claim.measure]) for claim in CLAIMS]


def _judged(claim, values):
    known = {name: values[name] for name in FAMILIES[claim.family] if name in values}
    if not known:
        return Judged(claim, "-", "not run")
    exceptions = [name for name, value in known.items() if not claim.holds(value)]
    shown = [REPRESENTATIVES[claim.family]] if not exceptions else exceptions
    shown = [name for name in shown if name in known] or list(known)[:1]
    parts = [f"{label(name)}: {claim.shown.format(known[name])}" for name in shown]
    if not exceptions and len(known) > 1:
        low, high = (claim.shown.format(f(known.values())) for f in (min, max))
        parts.append(f"all {len(known)}: {low} to {high.split()[-1]}")
    return Judged(claim, "; ".join(parts), "FAIL" if exceptions else "pass")


def _ratio(by_size):
    return by_size[max(by_size)] / by_size[min(by_size)]
