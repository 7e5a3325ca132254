"""The state of a layer that reads a window of past steps (convolution, attention).

The real steps are moved together after those of the carry, and each gets the number of its
sequence. A layer then needs neither mask nor resets: a step may read the earlier steps that have
its number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine.masking import taken, zero_masked
from jaxrnn.engine.starts import Started, first_carry
from jaxrnn.types import Steps


class Window(NamedTuple):
    """The last real steps of the sequence, the newest one last.

    `steps` is a tree of `[..., W, *features]`, with zeros first when there are fewer than W;
    `count`, int32 `[...]`, says how many there are.
    """

    steps: Any
    count: Any


def empty_window(steps: Any, size: int, batch_shape: tuple[int, ...]) -> Window:
    """A window with room for `size` steps that holds none.

    Args:
        steps: a tree of `jax.ShapeDtypeStruct` that describes one step.
        size: W.
        batch_shape: the batch axes, which come first.

    Returns:
        The window.
    """

    def zeros(leaf):
        return jnp.zeros((*batch_shape, size, *leaf.shape), leaf.dtype)

    return Window(jax.tree.map(zeros, steps), jnp.zeros(batch_shape, jnp.int32))


def through_window(
    read: Callable[[Any, Any, Any], Any],
    window: Window,
    steps: Steps,
    current: Any = None,
) -> tuple[Window, Any]:
    """Runs a layer whose step reads itself and the W steps before it.

    `read(steps, sequence, current) -> ys` gets leaves `[W + T, *batch, ...]`, the carried steps
    first, and int32 `[W + T, *batch]`: the number of the sequence in this call that a step belongs
    to, or -1 where there is no step. It returns `[T, *batch, ...]`; step t is at W + t and may read
    steps of its own number. Each row holds its real steps first, then one of number -1 for every
    masked step.

    Args:
        read: the layer's function, as above.
        window: the carry.
        steps: what is read; xs is a tree like `window.steps`, `[T, *batch, ...]`.
        current: a tree `[T, *batch, ...]` of what only the step itself reads.

    Returns:
        The window after the last step, and ys `[T, *batch, ...]` with zeros on masked steps.
    """
    if isinstance(window, Started):
        size = _positions(first_carry(window)).shape[0]
        if size and steps.reset is not None and steps.reset.shape[0] != 0:
            return _through_starts(read, window, steps, current)
        # No step reads a start: nothing is remembered, or no sequence begins.
        window = first_carry(window)
    xs, mask, reset = steps
    num_steps = jax.tree.leaves(xs)[0].shape[0]
    shape = (num_steps, *window.count.shape)
    sequence = jnp.zeros(shape, jnp.int32) if reset is None else jnp.cumsum(reset, 0, jnp.int32)
    # Counted over masked steps too: a reset on padding empties the window.
    last_sequence = 0 if reset is None else reset.sum(0, dtype=jnp.int32)
    if mask is not None:
        # Stable, so that real steps (False) come first and keep their order.
        order = jnp.argsort(~mask, axis=0, stable=True)
        xs, current, sequence = taken((xs, current, jnp.where(mask, sequence, -1)), order)
    xs, sequence = jax.tree.map(
        lambda carried, new: jnp.concatenate([carried, new]), _time_first(window), (xs, sequence)
    )
    ys = read(xs, sequence, current)
    if mask is None:
        xs, sequence = jax.tree.map(lambda leaf: leaf[num_steps:], (xs, sequence))
    else:
        # With R real steps in a row, the last W real ones are at R ... R + W - 1.
        xs, sequence = taken((xs, sequence), _positions(window) + mask.sum(0))
        # The output of a real step is where the sort moved it; masked ones are zeroed anyway.
        rank = jnp.maximum(jnp.cumsum(mask, axis=0) - 1, 0)
        ys = zero_masked(mask, taken(ys, rank))
    return _window(xs, sequence, last_sequence), ys


def _through_starts(
    read: Callable[[Any, Any, Any], Any], window: Started, steps: Steps, current: Any
) -> tuple[Window, Any]:
    """Runs the layer on rows into which the windows of the starts are laid.

    Each comes before the steps of its sequence and is read as if it were part of it, so a row has
    S W more steps, whose outputs are dropped.
    """
    number = jnp.cumsum(steps.reset, axis=0, dtype=jnp.int32)
    # Entry 0 is what the steps before the first reset begin with, and that is the window itself.
    starts = jax.tree.map(lambda leaf: leaf[1:], window.starts)
    past, sequence = jax.vmap(_time_first)(starts)
    num_starts, size = sequence.shape[:2]
    entry = jnp.arange(1, num_starts + 1).reshape(-1, *[1] * (sequence.ndim - 1))
    entry = jnp.broadcast_to(entry, sequence.shape)
    is_taken = entry <= number[-1]
    is_first = jnp.arange(size).reshape(-1, *[1] * (number.ndim - 1)) == 0
    laid_in = Steps(past, (sequence == 0) & is_taken, is_first & is_taken)
    mask = jnp.ones(number.shape, bool) if steps.mask is None else steps.mask
    nothing = jax.tree.map(
        lambda leaf: jnp.zeros((num_starts, size, *leaf.shape[1:]), leaf.dtype), current
    )
    rows = jax.tree.map(
        lambda new, old: jnp.concatenate([new.reshape(-1, *old.shape[1:]), old]),
        (laid_in, nothing, 2 * entry),
        (Steps(steps.xs, mask, jnp.zeros(number.shape, bool)), current, 2 * number + 1),
    )
    # Stable, so that both kinds of steps keep their order within a sequence.
    laid, current = taken(rows[:2], jnp.argsort(rows[2], axis=0, stable=True))
    last, ys = through_window(read, first_carry(window), laid, current)
    times = jnp.arange(number.shape[0]).reshape(-1, *[1] * (number.ndim - 1))
    return last, taken(ys, times + size * jnp.minimum(number, num_starts))


def _positions(window: Window) -> Any:
    """The positions 0 ... W-1, `[W, 1, ...]` with an axis of 1 for each batch axis."""
    num_batch_axes = window.count.ndim
    size = jax.tree.leaves(window.steps)[0].shape[num_batch_axes]
    return jnp.arange(size).reshape(-1, *[1] * num_batch_axes)


def _time_first(window: Window) -> tuple[Any, Any]:
    """The carried steps, and their sequence: number 0, since they precede every reset."""
    positions = _positions(window)
    sequence = jnp.where(positions >= len(positions) - window.count, 0, -1)
    steps = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, window.count.ndim, 0), window.steps)
    return steps, sequence


def _window(steps: Any, sequence: Any, last_sequence: Any) -> Window:
    """The window that keeps, of W steps, those of the last sequence."""
    valid = sequence == last_sequence
    num_batch_axes = valid.ndim - 1
    steps = jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf, 0, num_batch_axes), zero_masked(valid, steps)
    )
    return Window(steps, valid.sum(0, dtype=jnp.int32))
