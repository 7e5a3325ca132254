"""Which entries of a vector a step couples, read off the program of its derivative.

Entries i and j are coupled where the Jacobian may have a nonzero entry Jᵢⱼ, or where a chain of
such pairs joins them. The derivative is a linear function of the tangent, and its program is walked
once. Each element of an array in it is labelled with one entry of the tangent that it depends on,
and where elements with two labels meet, the labels are paired. So the walk may couple too much and
never too little: what is outside the blocks is zero for all parameters, carries and inputs.
"""

import numpy as np
from jax.extend import core

from jaxrnn.engine.labels import NONE, Labels, carry_labels, unlabelled


def coupled_blocks(jaxpr: core.Jaxpr, num_entries: int) -> tuple[np.ndarray, ...]:
    """The entries of a vector in blocks such that no entry depends on one of another block.

    Args:
        jaxpr: a function that is linear in its first argument; that one and the only result are
            vectors of N entries.
        num_entries: N.

    Returns:
        For each size of blocks that occurs ints `[size, number of blocks]`, the entries of the
        blocks of this size. Every entry is in one block.

    Example:
        >>> import jax
        >>> function = lambda h, w: jax.numpy.concatenate([h[2:] + w * h[:2], w * h[2:]])
        >>> coupled_blocks(jax.make_jaxpr(function)(jax.numpy.ones(4), 2.0).jaxpr, 4)
        (array([[0, 1],
               [2, 3]]),)
    """
    pairs = _Pairs()
    entries = np.arange(num_entries)
    others = map(unlabelled, jaxpr.invars[1:])
    (labels,) = carry_labels(jaxpr, [entries, *others], pairs.meet)
    pairs.meet(entries, labels)
    smallest = _smallest_member(num_entries, pairs.all())
    _, block, sizes = np.unique(smallest, return_inverse=True, return_counts=True)
    # Stable, so that members are in the order of the vector, block by block.
    by_block = np.split(np.argsort(block, kind="stable"), np.cumsum(sizes)[:-1])
    return tuple(
        np.stack([members for members in by_block if len(members) == size], axis=1)
        for size in np.unique(sizes)
    )


class _Pairs:
    """The pairs of labels that have met."""

    def __init__(self):
        self._found = [np.zeros((0, 2), int)]

    def meet(self, labels: Labels, others: Labels) -> Labels:
        met = (labels != others) & (labels != NONE) & (others != NONE)
        self._found.append(np.unique(np.stack([labels[met], others[met]], axis=1), axis=0))
        return np.maximum(labels, others)

    def all(self) -> np.ndarray:
        return np.concatenate(self._found)


def _smallest_member(num_entries, pairs):
    """For each entry the smallest one that a chain of pairs joins it with."""
    smallest = np.arange(num_entries)
    while True:
        low = smallest.copy()
        for one, other in (pairs.T, pairs.T[::-1]):
            np.minimum.at(low, one, smallest[other])
        low = low[low]  # a shortcut, so that long chains take few rounds
        if (low == smallest).all():
            return low
        smallest = low
