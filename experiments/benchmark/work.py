"""What is run: cases, the subjects of a case, and how a model on JAX becomes a subject."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.frame.timing import temporary_mib

LEARNING_RATE = 1e-3
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
OURS = "jaxrnn"


class Shape(NamedTuple):
    """Rows, steps, input features and units."""

    batch: int
    steps: int
    features: int
    units: int

    def __str__(self) -> str:
        return ", ".join(map(str, self))


class Work(NamedTuple):
    """A model of one layer, its size, and "forward" or "training".

    A training step is the mean of all squared outputs, its gradient in the parameters and an update
    of Adam, all in one call that owns the state.
    """

    model: str
    shape: Shape
    quantity: str


class Subject(NamedTuple):
    """What runs in every round."""

    call: Callable[[], Any]  # does the work once and returns what must be ready
    compilation: float = math.nan  # processor seconds of tracing and compiling, where there is any
    temporary_mib: float = math.nan  # as XLA plans it; NaN where XLA does not run


class Case(NamedTuple):
    """A row of a table: all subjects do the same, and are compared with the first."""

    group: str  # what is in one table, a model or a question
    name: str
    prepare: Callable[[], Mapping[str, Subject]]
    amount: float = 1  # how much a call does, in the unit of the part: tokens, steps; else 1
    rounds: int | None = None  # where the options do not say it
    clock: Callable[[], float] | None = None  # where it is not the clock of the options


class Model(NamedTuple):
    """A model on JAX; every package gets the order of axes that it likes."""

    params: Any
    forward: Callable[[Any, Any], Any]  # (params, xs) -> outputs [T, B, H], or [B, T, H]
    time_major: bool = True  # whether xs is [T, B, D], and not [B, T, D]


def inputs(shape: Shape, time_major: bool = True) -> jax.Array:
    """The same normal numbers for every subject, `[T, B, D]` or `[B, T, D]`."""
    xs = jax.random.normal(jax.random.key(1), (shape.steps, shape.batch, shape.features))
    return xs if time_major else jnp.swapaxes(xs, 0, 1)


def compiled(function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = ()) -> Any:
    """`(compiled, seconds, temporary MiB)` of a function that was not traced before."""
    start = time.process_time()
    ready = jax.jit(function, donate_argnums=donate).lower(*args).compile()
    return ready, time.process_time() - start, temporary_mib(ready)


def prepared(function: Callable[..., Any], *args: Any) -> Subject:
    """A subject that calls a function on the same arguments every time."""
    ready, *costs = compiled(function, *args)
    return Subject(lambda: ready(*args), *costs)


def prepared_in_place(function: Callable[..., Any], state: Any, *args: Any) -> Subject:
    """A subject that hands its state on, `(state, ...) -> (state, more)`, and owns it."""
    ready, *costs = compiled(function, state, *args, donate=(0,))
    return handing_on(lambda state: ready(state, *args), state, *costs)


def handing_on(step: Callable[[Any], Any], state: Any, *costs: float) -> Subject:
    """A subject that begins, `state -> (state, more)`, where its last call ended."""

    def call():
        nonlocal state
        state, more = step(state)
        return state, more

    return Subject(call, *costs)


def prepare_model(model: Model, work: Work) -> Subject:
    xs = inputs(work.shape, model.time_major)
    if work.quantity == "forward":
        return prepared(model.forward, model.params, xs)
    optimizer = optax.adam(LEARNING_RATE)

    def loss_fn(params, xs):
        return (model.forward(params, xs) ** 2).mean()

    def step(state, xs):
        params, opt_state = state
        loss, gradients = jax.value_and_grad(loss_fn)(params, xs)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    params = jax.tree.map(jnp.array, model.params)  # a copy, because the step owns its state
    return prepared_in_place(step, (params, optimizer.init(params)), xs)
