"""What is expected, as criteria that are here before the run, and how each is judged."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.dynamics.config import Config
from experiments.dynamics.measure import Analysed, Trained
from experiments.dynamics.task import EVIDENCE, FLIP_FLOP, NUM_BITS, PULSE_SHARE
from experiments.frame.verdicts import Expectation, Verdict

UNEXPLAINED = 0.05
GAP = 1 / PULSE_SHARE
WITHIN = 0.1
MEMORIES = sorted(itertools.product((-1, 1), repeat=NUM_BITS))
NEIGHBOURS = {
    (one, other)
    for one, other in itertools.combinations(MEMORIES, 2)
    if sum(a != b for a, b in zip(one, other, strict=True)) == 1
}

LEARNT = Expectation(
    "every network learns its task",
    f"at most {100 * UNEXPLAINED:g} % of the variance of the targets is left, for every seed",
)
EIGHT = Expectation(
    "three bits are eight stable points",
    "flip-flop: every network has exactly eight stable fixed points, and the signs of the outputs "
    "there are the eight combinations of three bits",
)
BETWEEN = Expectation(
    "saddles lie between memories",
    "flip-flop: in every network each of the 12 pairs of memories that differ in one bit has a "
    "saddle with one unstable direction, from which a push to either side leads to the two",
)
ADD_UP = Expectation(
    "the indices of the points add up",
    "flip-flop: the signs of det(I - J) at the fixed points sum to 1 in every network, which they "
    "do when none is missed",
)
SETTLED = Expectation(
    "a memory settles before the next pulse",
    f"flip-flop: the longest time constant at every stable point is below {GAP:g} steps, the mean "
    "time between two pulses of a bit",
)
LINE = Expectation(
    "evidence is added up along a line",
    "evidence: at every fixed or slow point one time constant, growing or falling, is longer than "
    "a sequence, and the next is at most a quarter of a sequence",
)
LEAK = Expectation(
    "a leak is a time constant",
    "leaky evidence: every network has one fixed point, it is stable, and its longest time "
    f"constant is that of the task within {100 * WITHIN:g} %",
)


def judged(config: Config, results: Sequence[Trained]) -> list[Verdict]:
    """All of them, as far as the results go; a task counts when all its networks are there."""
    by_task: dict[str, list[Trained]] = {}
    for one in (one for one in results if one.analysed):
        by_task.setdefault(one.task.name, []).append(one)
    whole = {name: ones for name, ones in by_task.items() if len(ones) == len(config.cells)}
    flip_flop, evidence = whole.pop(FLIP_FLOP, []), whole.pop(EVIDENCE, [])
    leaky = [one for ones in whole.values() for one in ones]
    complete = len(leaky) == len(config.cells) * len(config.time_constants)
    networks = [analysed for one in flip_flop for analysed in one.analysed]
    return [
        LEARNT.judge(learnt, results if complete else ()),
        EIGHT.judge(eight, networks),
        BETWEEN.judge(between, networks),
        ADD_UP.judge(indices, networks),
        SETTLED.judge(settled, flip_flop),
        LINE.judge(lambda ones: line(ones, config.num_steps), evidence),
        LEAK.judge(leak, leaky if complete else ()),
    ]


def learnt(results: Sequence[Trained]) -> tuple[str, Any]:
    worst = max(results, key=lambda one: one.error.max())
    most = worst.error.max()
    return f"at most {100 * most:.1f} % ({worst.name})", most <= UNEXPLAINED


def eight(networks: Sequence[Analysed]) -> tuple[str, Any]:
    held = [
        sorted(map(tuple, np.sign(one.outputs[one.is_memory]).astype(int).tolist()))
        for one in networks
    ]
    counts = " ".join(str(len(memories)) for memories in held)
    right = [memories == MEMORIES for memories in held]
    return f"{counts} stable points; {sum(right)} of {len(held)} as expected", all(right)


def between(networks: Sequence[Analysed]) -> tuple[str, Any]:
    joined = [len(one.joined & NEIGHBOURS) for one in networks]
    others = sum(len(one.joined - NEIGHBOURS) for one in networks)
    measured = f"{' '.join(map(str, joined))} of {len(NEIGHBOURS)} pairs; {others} other pairs"
    return measured, min(joined) == len(NEIGHBOURS)


def indices(networks: Sequence[Analysed]) -> tuple[str, Any]:
    sums = [one.index_sum for one in networks]
    return f"sums {' '.join(map(str, sums))}", all(one == 1 for one in sums)


def settled(results: Sequence[Trained]) -> tuple[str, Any]:
    longest = {
        one.cell: [a.time_constants(a.is_memory)[:, 0].max(initial=0) for a in one.analysed]
        for one in results
    }
    measured = "; ".join(f"{cell} {_range(values)}" for cell, values in longest.items())
    return f"longest: {measured}", max(map(max, longest.values())) < GAP


def line(results: Sequence[Trained], num_steps: int) -> tuple[str, Any]:
    parts, passed = [], True
    for one in results:
        constants = np.concatenate([a.time_constants() for a in one.analysed])
        shortest, second = constants[:, 0].min(initial=np.inf), constants[:, 1].max(initial=0)
        parts.append(f"{one.cell} at least {shortest:.0f}, next at most {second:.1f}")
        passed &= len(constants) > 0 and shortest > num_steps and second <= num_steps / 4
    return "; ".join(parts), passed


def leak(results: Sequence[Trained]) -> tuple[str, Any]:
    parts, passed = [], True
    for one in results:
        constants = [a.time_constants(a.is_memory)[:, 0] for a in one.analysed]
        alone = all(
            len(a.points.speed) == len(c) == 1 for a, c in zip(one.analysed, constants, strict=True)
        )
        values = np.concatenate(constants)
        parts.append(f"{one.name}: {_range(values) if alone else 'not one stable point'}")
        away = np.abs(values / one.task.time_constant - 1)
        passed &= alone and away.max() <= WITHIN
    return "; ".join(parts), passed


def _range(values):
    return f"{min(values):.1f} to {max(values):.1f}"
