"""What is expected, written down before the run, and what was measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.characters.config import Config
from experiments.characters.measure import ORDERS, Results, Scored, Written, carried_less_reset
from experiments.characters.writing import GREEDY, SAMPLED
from experiments.frame.stats import Interval
from experiments.frame.verdicts import Expectation, Verdict

SEEN = 0.01
BEST_COUNT = f"{max(ORDERS)}-gram"
COLD_START, COLD_BITS = 8, 0.2
FAR = 64
LOOPS = 0.1

LEAK = Expectation(
    "1 nothing known is asked",
    f"at most {SEEN:.0%} of the held-out runs of 60 characters are in the training text",
)
COUNTS = Expectation(
    "2 more than counts", f"every model needs fewer bits than the {BEST_COUNT} with back-off"
)
CARRIED = Expectation(
    "3 a carry that is handed on in training",
    "saves bits for every model, read with a carry that is handed on; interval over topics below 0",
)
COLD = Expectation(
    "4 a cold start costs",
    f"with a reset at every chunk the first {COLD_START} characters cost {COLD_BITS:g} bits more, "
    "for every model",
)
FREE = Expectation(
    "5 teacher forcing flatters",
    f"from {FAR} characters on, of the greedy text at most half as many characters are right as "
    "with the truth to read",
)
LOOPING = Expectation(
    "6 greedy text falls into loops",
    f"in at least {LOOPS:.0%} more of the texts than in the truth, for every model; by {SAMPLED} "
    f"in at most {LOOPS:.0%} more",
)


def judged(config: Config, results: Results) -> list[Verdict]:
    """All six; those of models once all of them have written."""
    seen = results.corpus.seen
    written = results.written if len(results.written) == len(config.models) else ()
    trained = results.of_mode(config.modes[0]) if written else ()
    return [
        LEAK.verdict(f"{seen:.2%}", seen <= SEEN),
        COUNTS.judge(_counts, trained, results.baselines[BEST_COUNT]),
        CARRIED.judge(_carried, carried_less_reset(results.scored) if written else ()),
        COLD.judge(_cold, trained),
        FREE.judge(_free, written if config.written_length > FAR else ()),
        LOOPING.judge(_looping, written, results.truth.traits.loops),
    ]


def _counts(trained: Sequence[Scored], limit: float) -> tuple[str, Any]:
    most, name = max((one.mean_bits, one.model.label) for one in trained)
    return f"{limit:.3f}; the most of a model: {name} {most:.3f}", most < limit


def _carried(differences: Mapping[str, Interval]) -> tuple[str, Any]:
    name = max(differences, key=lambda name: differences[name].high)
    return f"the least: {name} {differences[name].shown(3)}", differences[name].high < 0


def cold_cost(one: Scored) -> float:
    """Bits per character that a reset costs in the first characters of a chunk."""
    cold, warm = (one.by_position[name][:COLD_START].mean() for name in ("reset", "carried"))
    return float(cold - warm)


def _cold(trained: Sequence[Scored]) -> tuple[str, Any]:
    cost, name = min((cold_cost(one), one.model.label) for one in trained)
    return f"the least: {name} {cost:+.2f}", cost >= COLD_BITS


def right_shares(written: Written, start: int) -> tuple[float, float]:
    """The share that is right from `start` on: with the truth to read, and read freely."""
    return written.forced.right[:, start:].mean(), written.free_right[:, start:].mean()


def _free(written: Sequence[Written]) -> tuple[str, Any]:
    shares = {own.model.label: right_shares(own, FAR) for own in written}
    name = max(shares, key=lambda name: shares[name][1] / max(shares[name][0], 1e-9))
    forced, free = shares[name]
    return f"the most: {name} {free:.0%} against {forced:.0%}", free <= forced / 2


def _looping(written: Sequence[Written], real: float) -> tuple[str, Any]:
    least, greedy = min((own.by_decoding[GREEDY].traits.loops, own.model.label) for own in written)
    most, sampled = max((own.by_decoding[SAMPLED].traits.loops, own.model.label) for own in written)
    measured = (
        f"truth {real:.0%}; greedy at least {least:.0%} ({greedy}), "
        f"nucleus at most {most:.0%} ({sampled})"
    )
    return measured, least >= real + LOOPS and most <= real + LOOPS
