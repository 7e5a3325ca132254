"""One piece of work and how a model on JAX is made to do it."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

MIB = 2**20
LEARNING_RATE = 1e-3
QUANTITIES = ("forward", "training")


class Shape(NamedTuple):
    """Rows, steps, input features and units."""

    batch: int
    steps: int
    features: int
    units: int


class Work(NamedTuple):
    """A model of one layer, its size, and "forward" or "training".

    A training step is the mean of all squared outputs, its gradient in the parameters, an update
    of Adam, all in one call that owns the state.
    """

    model: str
    shape: Shape
    quantity: str


class Subject(NamedTuple):
    """What runs in every round.

    Attributes:
        call: Does the work once and returns what must be ready.
        compilation: Processor seconds of tracing and compiling; NaN where there is neither.
        temporary_mib: Temporary memory as XLA plans it; NaN where XLA does not run.
    """

    call: Callable[[], Any]
    compilation: float = float("nan")
    temporary_mib: float = float("nan")


class Model(NamedTuple):
    """A model on JAX.

    Attributes:
        params: A tree of arrays.
        forward: `(params, xs) -> outputs [T, B, H]`, or `[B, T, H]` where `time_major` is False.
        time_major: Whether xs is `[T, B, D]`; every package gets the order it likes.
    """

    params: Any
    forward: Callable[[Any, Any], Any]
    time_major: bool = True


def inputs(shape: Shape, time_major: bool = True) -> jax.Array:
    """The same normal numbers for every subject, `[T, B, D]` or `[B, T, D]`."""
    xs = jax.random.normal(jax.random.key(1), (shape.steps, shape.batch, shape.features))
    return xs if time_major else jnp.swapaxes(xs, 0, 1)


def compiled(function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = ()) -> Any:
    """`(compiled, seconds, temporary MiB)` of a function that was not traced before."""
    jitted = jax.jit(function, donate_argnums=donate)
    start = time.process_time()
    ready = jitted.lower(*args).compile()
    seconds = time.process_time() - start
    analysis = ready.memory_analysis()
    return ready, seconds, float("nan") if analysis is None else analysis.temp_size_in_bytes / MIB


def prepared(function: Callable[..., Any], *args: Any) -> Subject:
    """A subject that calls a function on the same arguments every time."""
    ready, seconds, temporary = compiled(function, *args)
    return Subject(lambda: ready(*args), seconds, temporary)


def prepared_in_place(function: Callable[..., Any], state: Any, *args: Any) -> Subject:
    """A subject that hands its state on, `(state, ...) -> (state, more)`, and owns it."""
    ready, seconds, temporary = compiled(function, state, *args, donate=(0,))

    def call():
        nonlocal state
        state, more = ready(state, *args)
        return state, more

    return Subject(call, seconds, temporary)


def prepare_model(model: Model, work: Work) -> Subject:
    """A subject of a model on JAX."""
    xs = inputs(work.shape, model.time_major)
    if work.quantity == "forward":
        return prepared(model.forward, model.params, xs)
    return prepared_in_place(train_step(model.forward), start_state(model.params), xs)


def start_state(params: Any) -> Any:
    """The state of a training step, in arrays of its own."""
    params = jax.tree.map(jnp.array, params)
    return params, optax.adam(LEARNING_RATE).init(params)


def train_step(forward: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A training step `(state, xs) -> (state, loss)`."""
    optimizer = optax.adam(LEARNING_RATE)

    def loss_fn(params, xs):
        return (forward(params, xs) ** 2).mean()

    def step(state, xs):
        params, opt_state = state
        loss, gradients = jax.value_and_grad(loss_fn)(params, xs)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    return step
