"""A scan over blocks of steps."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

# Rows of one weight-gradient product: enough for its full speed, and few enough for a block of
# steps to stay in the cache of a core.
_NUM_ROWS = 512


def block_size(num_steps: int, batch_shape: tuple[int, ...]) -> int:
    """Number of steps in a block: about 512 rows, and a divisor of T if there is one near that."""
    # A size that does not divide T leaves a shorter block, which is a second program to compile, so
    # a divisor within a factor of two of the wanted size is preferred.
    wanted = max(1, min(_NUM_ROWS // max(1, math.prod(batch_shape)), num_steps))
    near = range((wanted + 1) // 2, min(2 * wanted, num_steps) + 1)
    divisors = [size for size in near if num_steps % size == 0]
    return min(divisors, key=lambda size: abs(size - wanted), default=wanted)


def scan_blocks(
    through: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    steps: Any,
    starts: Any,
    size: int,
) -> tuple[Any, Any]:
    """Runs `through` over blocks of steps, of which the last one may be shorter.

    Args:
        through: `(state, (start, block)) -> (state, results)`, leaves of both `[size, ...]`.
        state: the value that is carried from block to block.
        steps: a tree of arrays `[T, ...]`.
        starts: a tree of arrays `[⌈T / size⌉, ...]`, one start for each block.
        size: number of steps in a block.

    Returns:
        `(state, results)`, leaves of the results `[T, ...]`.
    """
    num_steps = jax.tree.leaves(steps)[0].shape[0]
    count, rest = divmod(num_steps, size)
    whole = num_steps - rest

    def cut(leaf):
        return leaf[:whole].reshape(count, size, *leaf.shape[1:])

    def joined(leaf):
        return leaf.reshape(whole, *leaf.shape[2:])

    # A single block needs no loop around it.
    if num_steps == size:
        return through(state, (jax.tree.map(lambda leaf: leaf[0], starts), steps))
    blocks = jax.tree.map(lambda leaf: leaf[:count], starts), jax.tree.map(cut, steps)
    state, results = lax.scan(through, state, blocks)
    results = jax.tree.map(joined, results)
    if rest:
        start = jax.tree.map(lambda leaf: leaf[-1], starts)
        last = jax.tree.map(lambda leaf: leaf[whole:], steps)
        state, of_last = through(state, (start, last))
        results = jax.tree.map(lambda *parts: jnp.concatenate(parts), results, of_last)
    return state, results
