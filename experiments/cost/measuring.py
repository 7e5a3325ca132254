"""What is measured of one model at one length, and what is predicted of it."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.cost.config import Config
from experiments.cost.formulas import carry_bytes
from experiments.cost.models import features_of, judged_at_end, model, width_of
from experiments.frame.models import count_params
from experiments.frame.timing import interleaved_seconds

GIB = 2**30


class Counted(NamedTuple):
    """Numbers of one model at one length.

    Attributes:
        width: Units.
        num_params: Parameters, counted in the arrays.
        training_bytes: What XLA plans for temporaries of loss and gradient.
        carry_bytes: Counted in the arrays of the carry.
        predicted_work: Multiply-adds of a forward pass, from shapes.
        predicted_training: Bytes kept for the backward pass, from shapes.
        predicted_carry: Bytes of the carry, by a formula.
        predicted_step: Multiply-adds of a streamed token, from shapes.
    """

    width: float
    num_params: float
    training_bytes: float
    carry_bytes: float
    predicted_work: float
    predicted_training: float
    predicted_carry: float
    predicted_step: float


class Measured(NamedTuple):
    """One model at one length.

    Attributes:
        model: Its name.
        num_steps: T.
        counted: What takes no time.
        training_seconds: Of loss and gradient, one a round; NaN where that was not run.
        token_seconds: Of one streamed token, one a round.
    """

    model: str
    num_steps: int
    counted: Counted
    training_seconds: np.ndarray
    token_seconds: np.ndarray

    @property
    def was_run(self) -> bool:
        """Whether the gradient was."""
        return bool(np.isfinite(self.training_seconds).all())


class Subject(NamedTuple):
    """One model at one length, compiled; `train` is None where it would need too much memory."""

    counted: Counted
    train: Callable[[], Any] | None
    stream: Callable[[], Any]


Steps = dict[tuple[str, str], Any]
"""Compiled streaming steps by model and shapes of the carry; most do not know T."""


def measure_length(config: Config, num_steps: int, steps: Steps) -> dict[str, np.ndarray]:
    """All models at one length: fields of `Measured` with a leading axis of models."""
    subjects = {name: make_subject(config, name, num_steps, steps) for name in config.models}
    training = {name: one.train for name, one in subjects.items() if one.train is not None}
    seconds = timed(config, training) if training else {}
    streamed = timed(config, {name: one.stream for name, one in subjects.items()})
    not_run = np.full(config.rounds, np.nan)
    return {
        "counted": np.array([one.counted for one in subjects.values()], np.float64),
        "training_seconds": np.stack([seconds.get(name, not_run) for name in subjects]),
        "token_seconds": np.stack([streamed[name] / config.tokens for name in subjects]),
    }


def timed(config: Config, subjects: Mapping[str, Callable[[], Any]]) -> dict[str, np.ndarray]:
    """Seconds of each, one a round, by the clock of the options."""
    clock = time.perf_counter if config.clock == "wall" else time.process_time
    return interleaved_seconds(subjects, config.rounds, clock=clock)


def as_measured(config: Config, num_steps: int, arrays: Mapping[str, np.ndarray]) -> list[Measured]:
    """What `measure_length` returned, a record for each model."""
    return [
        Measured(
            name,
            num_steps,
            Counted(*map(float, arrays["counted"][place])),
            arrays["training_seconds"][place],
            arrays["token_seconds"][place],
        )
        for place, name in enumerate(config.models)
    ]


def make_subject(config: Config, name: str, num_steps: int, steps: Steps) -> Subject:
    """Compiles a model for one length; its gradient may run if it keeps to the bound."""
    width = width_of(name, config.num_features, config.num_params)
    layer = model(name, width, num_steps)
    features = features_of(name, config.num_features)
    params = layer.init(jax.random.key(0), features)
    xs = jax.random.normal(jax.random.key(1), (1, num_steps, features))

    def loss_fn(params, xs):
        rollout = jr.unroll(layer, params, xs)
        return ((rollout.carry.h if judged_at_end(name) else rollout.outputs) ** 2).mean()

    compiled = jax.jit(jax.value_and_grad(loss_fn)).lower(params, xs).compile()
    analysis = compiled.memory_analysis()
    temporary = math.nan if analysis is None else float(analysis.temp_size_in_bytes)
    carry = layer.initial_carry(params, (1,))
    step = _step(name, layer, params, carry, xs, steps)
    predicted, predicted_step = (
        jr.count_cost(layer, params, xs),
        jr.count_cost(layer, params, xs[:, :1]),
    )
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
    return Subject(counted, train, _reader(step, params, carry, (config.tokens, 1, features)))


def _step(name, layer, params, carry, xs, steps):
    key = name, str(jax.tree.map(jnp.shape, carry))
    if key not in steps:

        def step(params, carry, x):
            return jr.step(layer, params, carry, x)

        lowered = jax.jit(step, donate_argnums=1).lower(params, carry, xs[:, 0])
        steps[key] = lowered.compile()
    return steps[key]


def _reader(step, params, carry, shape):
    """Hands the carry from token to token; it stays where the last round left it."""
    tokens = [jnp.asarray(x) for x in np.random.default_rng(0).standard_normal(shape, np.float32)]

    def read():
        nonlocal carry
        y = None
        for token in tokens:
            carry, y = step(params, carry, token)
        return y

    return read
