"""Sequences of skewed lengths: padded, in buckets, or packed; the same loss and gradient."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.benchmark.measured import Measured, Timing, measured
from experiments.benchmark.work import Subject

PART = "lengths"
OURS = "packed"
MEDIAN, HIGH = 40, 400
STANDARD_NORMAL_AT_99_PERCENT = 2.326
FEATURES = 64
UNITS, QUICK_UNITS = (64, 256), (8,)
NUM_SEQUENCES, QUICK_NUM_SEQUENCES = 256, 12
BATCH, QUICK_BATCH = 32, 4
# As many as there are batches, so that none has rows that only fill it.
NUM_BUCKETS = 8


# Rows `[B, T, ...]` of inputs, mask and reset; reset is None where a row is one sequence.
Batch = tuple[Any, Any, Any]


def measure(quick: bool, timing: Timing, bar: Any) -> Iterator[Measured]:
    """Loss and gradient over all sequences, batch after batch, in every layout."""
    size = (QUICK_NUM_SEQUENCES, QUICK_BATCH) if quick else (NUM_SEQUENCES, BATCH)
    sequences = drawn(size[0])
    num_tokens = sum(map(len, sequences))
    for units in QUICK_UNITS if quick else UNITS:
        case = f"LSTM-{units}"
        bar.stage(case)
        subjects = {
            name: gradient_of(batches, units)
            for name, batches in layouts(sequences, size[1]).items()
        }
        amounts = dict.fromkeys(subjects, num_tokens)
        group = f"{len(sequences)} sequences, {num_tokens} steps, longest {longest(sequences)}"
        yield from measured(subjects, timing, PART, group, case, amounts)
        bar.advance()
        bar.finish_stage(case)


def num_cases(quick: bool) -> int:
    """How often `measure` advances the bar."""
    return len(QUICK_UNITS if quick else UNITS)


def drawn(num_sequences: int) -> list[np.ndarray]:
    """Sequences of log-normal length, of which the median and the 99th percentile are given."""
    generator = np.random.default_rng(0)
    deviation = np.log(HIGH / MEDIAN) / STANDARD_NORMAL_AT_99_PERCENT
    lengths = np.exp(np.log(MEDIAN) + deviation * generator.standard_normal(num_sequences))
    lengths = np.maximum(lengths.round().astype(int), 1)
    return [generator.standard_normal((length, FEATURES), np.float32) for length in lengths]


def longest(sequences: list[np.ndarray]) -> int:
    """The steps of the longest sequence."""
    return max(map(len, sequences))


def layouts(sequences: list[np.ndarray], batch_size: int) -> dict[str, list[Batch]]:
    """Batches that hold every sequence once: packed, in buckets, or padded."""
    parts = [
        sequences[first : first + batch_size] for first in range(0, len(sequences), batch_size)
    ]
    buckets = jr.bucket_batches(sequences, batch_size, num_buckets=NUM_BUCKETS)
    return {
        OURS: packed(sequences, batch_size),
        f"{NUM_BUCKETS} buckets": [(batch.xs, batch.mask, None) for batch in buckets],
        "padded in the batch": [padded(part, longest(part)) for part in parts],
        "padded to the longest": [padded(part, longest(sequences)) for part in parts],
    }


def packed(sequences: list[np.ndarray], batch_size: int) -> list[Batch]:
    """Packed rows in batches of one size, about `batch_size`; the last may have empty rows."""
    rows = jr.pack(sequences)
    num_batches = max(1, round(len(rows.mask) / batch_size))
    size = -(-len(rows.mask) // num_batches)
    fill = num_batches * size - len(rows.mask)
    xs, mask, reset = (
        np.pad(leaf, [(0, fill)] + [(0, 0)] * (leaf.ndim - 1)).reshape(
            num_batches, size, *leaf.shape[1:]
        )
        for leaf in (rows.xs, rows.mask, rows.reset)
    )
    return list(zip(xs, mask, reset, strict=True))


def padded(sequences: list[np.ndarray], num_steps: int) -> Batch:
    """A row for each sequence."""
    (batch,) = jr.bucket_batches(sequences, len(sequences), boundaries=(num_steps,))
    return batch.xs, batch.mask, None


def gradient_of(batches: list[Batch], units: int) -> Subject:
    """The sum of squares of all outputs, and its gradient, over all batches."""
    cell = jr.lstm(units)
    params = cell.init(jax.random.key(0), FEATURES)

    def loss_fn(params, xs, mask, reset):
        return (jr.unroll(cell, params, xs, mask=mask, reset=reset).outputs ** 2).sum()

    def add(total, params, batch):
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(params, *batch))

    jitted = jax.jit(add, donate_argnums=0)
    batches = [jax.tree.map(jnp.asarray, batch) for batch in batches]

    def call():
        total = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
        for batch in batches:
            total = jitted(total, params, batch)
        return total

    return Subject(call)
