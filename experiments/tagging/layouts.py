"""The same paragraphs packed and padded: the same numbers, another speed."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.frame.timing import interleaved_seconds, temporary_bytes
from experiments.tagging.config import Config
from experiments.tagging.task import (
    Paragraph,
    Rows,
    bucketed_rows,
    minibatches,
    packed_rows,
    padded_rows,
)
from experiments.tagging.train import FORWARD, make_tagger

PACKED, PADDED, BUCKETED = "packed", "padded", "padded in buckets"
NUM_BUCKETS = 4
LEARNING_RATE = 1e-2
CLOCK = time.process_time  # what else runs on the machine does not count


class Layout(NamedTuple):
    """Minibatches in one layout."""

    steps: int  # steps computed in them, padding included
    characters: int  # real characters in them
    seconds: np.ndarray  # processor seconds of their losses and gradients, [rounds]
    temporary_bytes: float  # the most that XLA plans for one of them

    @property
    def rate(self) -> np.ndarray:
        """Real characters a processor second, `[rounds]`."""
        return self.characters / self.seconds


class Comparison(NamedTuple):
    """Packed against padded, for one model."""

    model: str
    losses: Mapping[str, np.ndarray]  # of the same updates, packed and padded, [updates]
    differences: np.ndarray  # [updates], of gradients at the same parameters
    layouts: Mapping[str, Layout]


def compare(
    config: Config, name: str, paragraphs: Sequence[Paragraph], advance: Callable[[], Any]
) -> Comparison:
    """Some updates both ways, each on its own from one start, then the time of the minibatches."""
    tagger = make_tagger(name, config)
    params = tagger.init(config.first_seed)
    loss = jax.value_and_grad(tagger.loss)
    laid_out = lay_out(config, name, paragraphs)
    gradients, memory = {}, {}
    for layout, rows in laid_out.items():
        gradients[layout], memory[layout] = _compiled(loss, params, rows)
        advance()
    losses, differences = descend(gradients, laid_out, params)
    calls = {
        layout: lambda layout=layout: [gradients[layout](params, rows) for rows in laid_out[layout]]
        for layout in laid_out
    }
    seconds = interleaved_seconds(calls, config.rounds, advance, CLOCK)
    layouts = {}
    for layout, each in laid_out.items():
        masks = [rows.mask for rows in each]
        steps, characters = sum(mask.size for mask in masks), sum(int(mask.sum()) for mask in masks)
        layouts[layout] = Layout(steps, characters, seconds[layout], memory[layout])
    return Comparison(name, losses, differences, layouts)


def lay_out(config: Config, model: str, paragraphs: Sequence[Paragraph]) -> dict[str, list[Rows]]:
    """The first minibatches of the first epoch of the first seed.

    There are as many padded rows as the largest minibatch needs. Buckets hold the same paragraphs
    by length; as every bucket compiles anew, one model has them.
    """
    generator, length = np.random.default_rng((config.first_seed, 0)), config.row_length
    drawn = minibatches(paragraphs, config.rows, length, generator)
    batches = [batch for _, batch in zip(range(config.padded_updates), drawn, strict=False)]
    most = max(map(len, batches))
    layouts = {
        PACKED: [packed_rows(batch, config.rows, length) for batch in batches],
        PADDED: [rows for batch in batches for rows in padded_rows(batch, most, length)],
    }
    if model == FORWARD:
        edges = [length * (number + 1) // NUM_BUCKETS for number in range(NUM_BUCKETS)]
        layouts[BUCKETED] = list(bucketed_rows(sum(batches, []), config.rows * length, edges))
    return layouts


def descend(
    gradients: Mapping[str, Callable[..., Any]], laid_out: Mapping[str, list[Rows]], start: Any
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Losses of both trainings, and how far the gradients differ along the padded one."""
    optimizer = optax.adam(LEARNING_RATE)
    update = jax.jit(lambda gradient, state: optimizer.update(gradient, state))
    losses, differences = {}, []
    for name in (PACKED, PADDED):
        params, state, values = start, optimizer.init(start), []
        for packed, rows in zip(laid_out[PACKED], laid_out[name], strict=True):
            value, gradient = gradients[name](params, rows)
            values.append(float(value))
            if name == PADDED:
                differences.append(difference(gradient, gradients[PACKED](params, packed)[1]))
            updates, state = update(gradient, state)
            params = optax.apply_updates(params, updates)
        losses[name] = np.array(values)
    return losses, np.array(differences)


def difference(one: Any, other: Any) -> float:
    """The largest difference, relative to the largest number of the other."""
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    largest = max(float(jnp.abs(b).max()) for _, b in pairs)
    return max(float(jnp.abs(a - b).max()) for a, b in pairs) / largest


def _compiled(loss, params, batches):
    """`(params, rows) -> (loss, gradient)` for all shapes of rows, and the most memory of one."""
    by_shape = {rows.mask.shape: rows for rows in batches}
    compiled = {s: jax.jit(loss).lower(params, rows).compile() for s, rows in by_shape.items()}
    most = max(map(temporary_bytes, compiled.values()))
    return lambda params, rows: compiled[rows.mask.shape](params, rows), most
