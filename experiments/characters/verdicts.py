"""What is expected, written down before the run, and what was measured."""

from collections.abc import Sequence
from typing import Any

from experiments.characters.config import Config
from experiments.characters.evaluation import ORDERS, Baselines, Scored, Written, difference
from experiments.characters.writing import NUCLEUS
from experiments.frame.models import LABELS
from experiments.frame.verdicts import Expectation, Verdict

SEEN = 0.01
COLD_START, COLD_BITS = 8, 0.2
FAR = 64
LOOPS = 0.1

LEAK = Expectation(
    "1 nothing known is asked",
    f"at most {SEEN:.0%} of the held-out runs of 60 characters are in the training text",
)
COUNTS = Expectation(
    "2 more than counts",
    f"every model needs fewer bits than the {max(ORDERS)}-gram with back-off",
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
    f"in at least {LOOPS:.0%} more of the texts than in the truth, for every model; by nucleus "
    f"{NUCLEUS:g} in at most {LOOPS:.0%} more",
)
LINES = (LEAK, COUNTS, CARRIED, COLD, FREE, LOOPING)


def verdicts(config: Config, results: Sequence[Any]) -> list[Verdict]:
    """All lines, as far as they can be told from any prefix of the results."""
    baselines = next(one for one in results if isinstance(one, Baselines))
    scored = [one for one in results if isinstance(one, Scored)]
    written = [one for one in results if isinstance(one, Written)]
    main = [one for one in scored if one.trained.mode == config.modes[0]]
    seen = baselines.corpus.seen
    lines = [LEAK.verdict(f"{seen:.2%}", seen <= SEEN)]
    if len(written) < len(config.models):
        return lines + [line.not_run() for line in LINES[1:]]
    return [
        *lines,
        _counts(baselines, main),
        _carried(scored),
        _cold(main),
        _free(config, written),
        _looping(baselines, written),
    ]


def _counts(baselines, main):
    limit = baselines.bits[f"{max(ORDERS)}-gram"]
    worst = max(main, key=lambda one: one.mean_bits)
    measured = f"{limit:.3f}; the most of a model: {_of(worst)} {worst.mean_bits:.3f}"
    return COUNTS.verdict(measured, worst.mean_bits < limit)


def carried_against_reset(scored: Sequence[Scored]) -> dict[str, Any]:
    """For every mixer trained in both modes, the interval of the difference of bits."""
    by = {(one.trained.model.mixer, one.trained.mode): one for one in scored}
    return {
        mixer: difference(by[mixer, "carried"], by[mixer, "reset"])
        for mixer, mode in by
        if mode == "carried" and (mixer, "reset") in by
    }


def _carried(scored):
    intervals = carried_against_reset(scored)
    if not intervals:
        return CARRIED.not_run()
    worst = max(intervals, key=lambda mixer: intervals[mixer].high)
    interval = intervals[worst]
    measured = (
        f"the least: {LABELS[worst]} {interval.mean:+.3f} "
        f"[{interval.low:+.3f}, {interval.high:+.3f}]"
    )
    return CARRIED.verdict(measured, interval.high < 0)


def cold_cost(one: Scored) -> float:
    """Bits per character that a reset costs in the first characters of a chunk."""
    cold, warm = (one.by_position[name][:COLD_START].mean() for name in ("reset", "carried"))
    return float(cold - warm)


def _cold(main):
    least = min(main, key=cold_cost)
    cost = cold_cost(least)
    return COLD.verdict(f"the least: {_of(least)} {cost:+.2f}", cost >= COLD_BITS)


def right_shares(written: Written, start: int) -> tuple[float, float]:
    """The share that is right from `start` on: with the truth to read, and read freely."""
    return float(written.forced.right[:, start:].mean()), float(
        written.free_right[:, start:].mean()
    )


def _free(config, written):
    if config.written_length <= FAR:
        return FREE.not_run()
    shares = {own.model.mixer: right_shares(own, FAR) for own in written}
    worst = max(shares, key=lambda mixer: shares[mixer][1] / max(shares[mixer][0], 1e-9))
    forced, free = shares[worst]
    measured = f"the most: {LABELS[worst]} {free:.0%} against {forced:.0%}"
    return FREE.verdict(measured, free <= forced / 2)


def _looping(baselines, written):
    real = baselines.real.loops
    greedy = min(written, key=lambda own: own.traits["greedy"].loops)
    nucleus = max(written, key=lambda own: own.traits[f"nucleus {NUCLEUS:g}"].loops)
    least, most = greedy.traits["greedy"].loops, nucleus.traits[f"nucleus {NUCLEUS:g}"].loops
    measured = (
        f"truth {real:.0%}; greedy at least {least:.0%} ({LABELS[greedy.model.mixer]}), "
        f"nucleus at most {most:.0%} ({LABELS[nucleus.model.mixer]})"
    )
    return LOOPING.verdict(measured, least >= real + LOOPS and most <= real + LOOPS)


def _of(one: Scored) -> str:
    return LABELS[one.trained.model.mixer]
