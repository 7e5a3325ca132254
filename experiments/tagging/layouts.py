"""The same paragraphs packed and padded: the same numbers, another speed."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.frame.timing import interleaved_seconds
from experiments.tagging.config import Config
from experiments.tagging.model import initial_params, make_loss, make_model
from experiments.tagging.results import Layouts
from experiments.tagging.task import (
    Paragraph,
    Rows,
    Task,
    bucketed_rows,
    minibatches,
    packed_rows,
    padded_rows,
)

PACKED, PADDED, BUCKETED = "packed", "padded", "padded in buckets"
NUM_BUCKETS = 4
LEARNING_RATE = 1e-2
CLOCK = time.process_time  # what else runs on the machine does not count


class Gradient(NamedTuple):
    """A loss with its gradient, compiled for every shape it meets.

    Attributes:
        call: `(params, rows) -> (loss, gradient)`.
        temporary_bytes: The most that XLA plans for one of the shapes.
    """

    call: Callable[[Any, Rows], Any]
    temporary_bytes: int


def compare(
    config: Config, direction: str, task: Task, advance: Callable[[], Any], with_buckets: bool
) -> Layouts:
    """Some updates both ways from the same start, then the time of the same minibatches.

    The padded training goes its own way: nothing is handed over from the packed one.
    """
    model = make_model(direction, config)
    params = initial_params(model, config.first_seed)
    batches = same_minibatches(config, task.training.paragraphs)
    loss = jax.value_and_grad(make_loss(model))
    layouts = {name: list(rows) for name, rows in _layouts(config, batches, with_buckets).items()}
    gradients = {}
    for name, rows in layouts.items():
        gradients[name] = _compiled(loss, params, rows)
        advance()
    losses, differences = descend(gradients, layouts, params)
    calls = {
        name: lambda name=name: [gradients[name].call(params, rows) for rows in layouts[name]]
        for name in layouts
    }
    return Layouts(
        direction,
        losses,
        differences,
        {name: sum(rows.mask.size for rows in each) for name, each in layouts.items()},
        {name: sum(int(rows.mask.sum()) for rows in each) for name, each in layouts.items()},
        interleaved_seconds(calls, config.rounds, advance, CLOCK),
        {name: gradients[name].temporary_bytes for name in layouts},
    )


def same_minibatches(config: Config, paragraphs: Sequence[Paragraph]) -> list[list[Paragraph]]:
    """The first minibatches of the first epoch of the first seed."""
    generator = np.random.default_rng((config.first_seed, 0))
    drawn = minibatches(paragraphs, config.rows, config.row_length, generator)
    pairs = zip(range(config.padded_updates), drawn, strict=False)
    return [[paragraphs[index] for index in batch] for _, batch in pairs]


def descend(
    gradients: dict[str, Gradient], layouts: dict[str, list[Rows]], start: Any
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Losses of both trainings, and how far the gradients differ along the packed one."""
    optimizer = optax.adam(LEARNING_RATE)
    update = jax.jit(lambda gradient, state: optimizer.update(gradient, state))
    losses: dict[str, list[float]] = {PACKED: [], PADDED: []}
    differences = []
    for name in losses:
        params, state = start, optimizer.init(start)
        for packed, rows in zip(layouts[PACKED], layouts[name], strict=True):
            value, gradient = gradients[name].call(params, rows)
            losses[name].append(float(value))
            if name == PADDED:
                differences.append(_difference(gradient, gradients[PACKED].call(params, packed)[1]))
            updates, state = update(gradient, state)
            params = optax.apply_updates(params, updates)
    return {name: np.array(values) for name, values in losses.items()}, np.array(differences)


def _layouts(config, batches, with_buckets):
    """Padded rows: as many as the largest minibatch needs. Buckets: whatever comes, by length."""
    size, length = max(map(len, batches)), config.row_length
    layouts = {
        PACKED: [packed_rows(batch, config.rows, length) for batch in batches],
        PADDED: [padded_rows(batch, size, length) for batch in batches],
    }
    if with_buckets:
        every = [paragraph for batch in batches for paragraph in batch]
        edges = [length * (number + 1) // NUM_BUCKETS for number in range(NUM_BUCKETS)]
        layouts[BUCKETED] = list(bucketed_rows(every, config.rows * length, edges))
    return layouts


def _compiled(loss, params, batches):
    by_shape = {}
    for rows in batches:
        if rows.mask.shape not in by_shape:
            by_shape[rows.mask.shape] = jax.jit(loss).lower(params, rows).compile()
    sizes = [one.memory_analysis().temp_size_in_bytes for one in by_shape.values()]
    return Gradient(lambda params, rows: by_shape[rows.mask.shape](params, rows), max(sizes))


def _difference(one, other):
    """The largest difference, relative to the largest number of the other."""
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    largest = max(float(jnp.abs(b).max()) for _, b in pairs)
    return max(float(jnp.abs(a - b).max()) for a, b in pairs) / largest
