"""What is measured of every model at every length, and what is predicted of it."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.cost.config import Config
from experiments.cost.model import (
    JUDGED_AT_END,
    Simple,
    carry_bytes,
    count_simple,
    features_of,
    model,
    width_of,
)
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.models import count_params
from experiments.frame.progress import progress_bar
from experiments.frame.timing import interleaved_seconds, temporary_bytes

GIB = 2**30
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
# Compilation takes as long as so many steps of a sequence, whatever their number.
STEPS_OF_A_COMPILATION = 1000


class Counted(NamedTuple):
    """Numbers of one model at one length, which take no time."""

    width: float
    num_params: float
    training_bytes: float  # temporaries of loss and gradient, as XLA plans them
    carry_bytes: float  # in the arrays of the carry
    predicted_work: float  # multiply-adds of a forward pass, from shapes
    predicted_training: float  # bytes kept for the backward pass, from shapes
    predicted_carry: float  # bytes of the carry, by a formula
    predicted_step: float  # multiply-adds of a streamed token, from shapes


class Measured(NamedTuple):
    """One model at one length; seconds are those of every round."""

    model: str
    num_steps: int
    counted: Counted
    training_seconds: np.ndarray  # of loss and gradient; NaN where that was not run
    token_seconds: np.ndarray  # of one streamed token

    @property
    def was_run(self) -> bool:
        return bool(np.isfinite(self.training_seconds).all())

    def numbers(self) -> dict[str, float]:
        seconds = {name: float(np.median(getattr(self, name))) for name in self._fields[-2:]}
        return self.counted._asdict() | seconds


class Results(NamedTuple):
    """Formulas and counts of a simple cell, and a record of every model and length so far."""

    simple: Simple
    models: Mapping[str, tuple[Measured, ...]] = {}  # T rising, the same for all models


class Subject(NamedTuple):
    """One model at one length, compiled; `train` is None where it would need too much memory."""

    counted: Counted
    train: Callable[[], Any] | None
    stream: Callable[[], Any]


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    """Counts, then all models at one length after the other; a length is a checkpoint."""
    steps: dict[Any, Any] = {}  # compiled steps by model and shapes, which most lengths share

    def one_length(state, index):
        return state, _measure_length(config, config.lengths[index], steps)

    work = [length + STEPS_OF_A_COMPILATION for length in config.lengths]
    with progress_bar(sum(work)) as bar:
        yield (results := Results(count_simple()))
        for index, length in enumerate(config.lengths):
            bar.stage(f"{length} steps")
            _, history = checkpoints.run("lengths", np.zeros(1, np.float32), index + 1, one_length)
            arrays = (history[name][index] for name in ("counted", "training", "token"))
            models = {
                name: (
                    *results.models.get(name, ()),
                    Measured(name, length, Counted(*map(float, counted)), *seconds),
                )
                for name, counted, *seconds in zip(config.models, *arrays, strict=True)
            }
            yield (results := results._replace(models=models))
            bar.advance(work[index])
            bar.finish_stage(f"{length} steps")


def _measure_length(config, num_steps, steps):
    """All models at one length: arrays with a leading axis of models."""
    subjects = {name: _make_subject(config, name, num_steps, steps) for name in config.models}

    def timed(calls):
        return interleaved_seconds(calls, config.rounds, clock=CLOCKS[config.clock])

    training = {name: one.train for name, one in subjects.items() if one.train is not None}
    seconds = timed(training) if training else {}
    streamed = timed({name: one.stream for name, one in subjects.items()})
    not_run = np.full(config.rounds, np.nan)
    return {
        "counted": np.array([one.counted for one in subjects.values()], np.float64),
        "training": np.stack([seconds.get(name, not_run) for name in subjects]),
        "token": np.stack([streamed[name] / config.tokens for name in subjects]),
    }


def _make_subject(config, name, num_steps, steps):
    """Compiles a model for one length; its gradient may run if it keeps to the bound."""
    width = width_of(name, config.num_features, config.num_params)
    layer = model(name, width, num_steps)
    features = features_of(name, config.num_features)
    params = layer.init(jax.random.key(0), features)
    xs = jax.random.normal(jax.random.key(1), (1, num_steps, features))

    def loss_fn(params, xs):
        rollout = jr.unroll(layer, params, xs)
        return ((rollout.carry.h if name in JUDGED_AT_END else rollout.outputs) ** 2).mean()

    compiled = jax.jit(jax.value_and_grad(loss_fn)).lower(params, xs).compile()
    temporary = temporary_bytes(compiled)
    carry = layer.initial_carry(params, (1,))
    predicted, predicted_step = (jr.count_cost(layer, params, xs[:, :n]) for n in (num_steps, 1))
    counted = Counted(
        width,
        count_params(params),
        temporary,
        sum(leaf.nbytes for leaf in jax.tree.leaves(carry)),
        predicted.multiply_adds,
        predicted.training_memory,
        carry_bytes(name, width, num_steps),
        predicted_step.multiply_adds,
    )
    fits = not temporary > config.memory_bound * GIB
    train = (lambda: compiled(params, xs)) if fits else None
    key = name, str(jax.tree.map(jnp.shape, carry))
    if key not in steps:
        step = jax.jit(lambda *args: jr.step(layer, *args), donate_argnums=1)
        steps[key] = step.lower(params, carry, xs[:, 0]).compile()
    return Subject(counted, train, _reader(steps[key], params, carry, config.tokens, features))


def _reader(step, params, carry, num_tokens, features):
    """Hands the carry from token to token; it stays where the last round left it."""
    values = np.random.default_rng(0).standard_normal((num_tokens, 1, features), np.float32)
    tokens = list(map(jnp.asarray, values))

    def read():
        nonlocal carry
        y = None
        for token in tokens:
            carry, y = step(params, carry, token)
        return y

    return read
