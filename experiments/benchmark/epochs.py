"""An epoch in one call beside a call for every minibatch."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax

import jaxrnn as jr
from experiments.benchmark.layers import case_name
from experiments.benchmark.measured import Measured, Timing, measured
from experiments.benchmark.work import (
    LEARNING_RATE,
    Shape,
    Subject,
    compiled,
    prepared_in_place,
)

PART = "epochs"
OURS = "jaxrnn"
A_CALL_A_STEP = "a call a step"
# Minibatches of an epoch, and their shape.
CASES = (
    (64, Shape(32, 25, 8, 32)),
    (64, Shape(1, 256, 32, 64)),
    (16, Shape(32, 100, 64, 128)),
    (4, Shape(32, 128, 128, 256)),
)
QUICK_CASES = ((4, Shape(2, 8, 4, 8)),)


def measure(quick: bool, timing: Timing, bar: Any) -> Iterator[Measured]:
    """The same minibatches both ways, on the device before the clock starts."""
    for num_batches, shape in QUICK_CASES if quick else CASES:
        case = f"{num_batches} of {case_name(shape)}"
        bar.stage(case)
        subjects = prepared_epochs(num_batches, shape)
        yield from measured(subjects, timing, PART, "LSTM", case)
        bar.advance()
        bar.finish_stage(case)


def num_cases(quick: bool) -> int:
    """How often `measure` advances the bar."""
    return len(QUICK_CASES if quick else CASES)


def prepared_epochs(num_batches: int, shape: Shape) -> dict[str, Subject]:
    """`make_epoch_step`, and `make_train_step` called in a loop."""
    cell, optimizer = jr.lstm(shape.units), optax.adam(LEARNING_RATE)

    def loss_fn(params, batch, key):
        outputs = jr.unroll(cell, params, batch, time_major=True, key=key).outputs
        return (outputs**2).mean(), {}

    def start():
        params = cell.init(jax.random.key(0), shape.features)
        return jr.TrainState.create(params, optimizer)

    size = num_batches, shape.steps, shape.batch, shape.features
    batches = jax.random.normal(jax.random.key(1), size)
    epoch = prepared_in_place(jr.make_epoch_step(loss_fn, optimizer), start(), batches)
    step = jr.make_train_step(loss_fn, optimizer)
    return {OURS: epoch, A_CALL_A_STEP: _loop(step, start(), list(batches))}


def _loop(step, state, batches):
    ready, seconds, temporary = compiled(step, state, batches[0], donate=(0,))

    def call():
        nonlocal state
        losses = []
        for batch in batches:
            state, metrics = ready(state, batch)
            losses.append(metrics["loss"])
        return state, {"loss": jnp.stack(losses)}

    return Subject(call, seconds, temporary)
