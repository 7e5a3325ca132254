"""Time against memory of one gradient through long sequences, by what the evaluator stores."""

from collections.abc import Iterator
from typing import Any, Literal

import jax

import jaxrnn as jr
from experiments.benchmark.measured import Measured, Timing, measured
from experiments.benchmark.work import Subject, prepared

PART = "checkpoints"
OURS = "everything"
LENGTHS, QUICK_LENGTHS = (1_000, 10_000, 100_000, 1_000_000), (64, 256)
UNITS, QUICK_UNITS = 64, 8
POLICIES: dict[str, int | Literal["sqrt"] | None] = {
    OURS: None,
    "every 16th": 16,
    "every 128th": 128,
    "sqrt": "sqrt",
}
# Of sequences that take so long, one round tells enough.
LONG = 300_000


def measure(quick: bool, timing: Timing, bar: Any) -> Iterator[Measured]:
    """One row; the carries of every K-th step are stored and the steps between made twice."""
    units = QUICK_UNITS if quick else UNITS
    for steps in QUICK_LENGTHS if quick else LENGTHS:
        bar.stage(f"{steps:,} steps")
        rounds = timing if steps < LONG else Timing(0, 1, timing.clock)
        yield from measured(
            prepared_gradients(steps, units), rounds, PART, f"LSTM-{units}", f"{steps:,}"
        )
        bar.advance()
        bar.finish_stage(f"{steps:,} steps")


def num_cases(quick: bool) -> int:
    """How often `measure` advances the bar."""
    return len(QUICK_LENGTHS if quick else LENGTHS)


def prepared_gradients(steps: int, units: int) -> dict[str, Subject]:
    """The gradient of the mean of all squared outputs, one subject a policy."""
    cell = jr.lstm(units)
    params = cell.init(jax.random.key(0), units)
    xs = jax.random.normal(jax.random.key(1), (steps, 1, units))

    def make(evaluator):
        def loss(params, xs):
            rollout = jr.unroll(cell, params, xs, time_major=True, evaluator=evaluator)
            return (rollout.outputs**2).mean()

        return jax.grad(loss)

    return {
        name: prepared(make(jr.sequential(checkpoint=policy)), params, xs)
        for name, policy in POLICIES.items()
    }
