"""What a layer remembers that reads the last real steps: padding taken out, sequences kept apart.

Real steps are put in a row behind those of the carry, whatever stands between them, and every one
gets the number of its sequence. A layer then sees neither masks nor resets: a step reads those in
front of it that have its number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine.masking import expand_mask, zero_masked
from jaxrnn.types import Steps


class Window(NamedTuple):
    """The last real steps of the sequence, the newest one last.

    `steps`, a tree of `[..., W, *features]` with zeros in front when there are fewer, and `count`,
    int32 `[...]`: how many there are.
    """

    steps: Any
    count: Any


def empty_window(steps: Any, size: int, batch_shape: tuple[int, ...]) -> Window:
    """A window of `size` steps that has seen none.

    Args:
        steps: A tree of `jax.ShapeDtypeStruct`, what one step is.
        size: W.
        batch_shape: The batch axes to put in front.

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
    own: Any = None,
) -> tuple[Window, Any]:
    """Runs a layer that reads the last W steps, itself not counted.

    `read(steps, sequence, own) -> ys` gets leaves `[W + T, *batch, ...]`, the carried steps in
    front, and int32 `[W + T, *batch]`: which sequence of this call a step belongs to, and -1 where
    there is none. It returns `[T, *batch, ...]`; step t stands at W + t and may read those of its
    own number. Each row has its T steps: the real ones, then as many of number -1 as were masked.

    Args:
        read: The function.
        window: The carry.
        steps: what is read, its xs a tree like `window.steps`, `[T, *batch, ...]`.
        own: a tree `[T, *batch, ...]` of what no later step reads.

    Returns:
        The window behind the last step, and ys `[T, *batch, ...]` with zeros on masked steps.
    """
    xs, mask, reset = steps
    num_steps = jax.tree.leaves(xs)[0].shape[0]
    shape = (num_steps, *window.count.shape)
    sequence = jnp.zeros(shape, jnp.int32) if reset is None else jnp.cumsum(reset, 0, jnp.int32)
    last = 0 if reset is None else reset.sum(0, dtype=jnp.int32)
    if mask is not None:
        # A stable sort: False stands before True.
        order = jnp.argsort(~mask, axis=0, stable=True)
        xs, own, sequence = _take((xs, own, jnp.where(mask, sequence, -1)), order)
    seen, sequence = jax.tree.map(
        lambda *parts: jnp.concatenate(parts), _time_first(window), (xs, sequence)
    )
    ys = read(seen, sequence, own)
    if mask is None:
        seen, sequence = jax.tree.map(lambda leaf: leaf[num_steps:], (seen, sequence))
    else:
        seen, sequence = _take((seen, sequence), _places(window) + mask.sum(0))
        rank = jnp.maximum(jnp.cumsum(mask, axis=0) - 1, 0)
        ys = zero_masked(mask, _take(ys, rank))
    return _window(seen, sequence, last), ys


def _places(window: Window) -> Any:
    """The places 0 ... W-1, `[W, 1, ...]` with an axis of 1 for each batch axis."""
    num_batch_axes = window.count.ndim
    size = jax.tree.leaves(window.steps)[0].shape[num_batch_axes]
    return jnp.arange(size).reshape(-1, *[1] * num_batch_axes)


def _time_first(window: Window) -> tuple[Any, Any]:
    """The carried steps, and the number of their sequence: 0, as no reset of this call is older."""
    places = _places(window)
    sequence = jnp.where(places >= len(places) - window.count, 0, -1)
    steps = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, window.count.ndim, 0), window.steps)
    return steps, sequence


def _window(steps: Any, sequence: Any, last: Any) -> Window:
    """The window of W steps, of which those of the last sequence stay."""
    valid = sequence == last
    num_batch_axes = valid.ndim - 1
    steps = jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf, 0, num_batch_axes), zero_masked(valid, steps)
    )
    return Window(steps, valid.sum(0, dtype=jnp.int32))


def _take(tree: Any, index: Any) -> Any:
    """Steps by their place in time, other ones for every row."""

    def take(leaf):
        return jnp.take_along_axis(leaf, expand_mask(index, leaf), axis=0)

    return jax.tree.map(take, tree)
