"""Batches of few shapes from sequences of many lengths, as numpy on the host."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxrnn.engine import checks
from jaxrnn.sequences._packing import Ragged, as_ragged, place_trees


class Batch(NamedTuple):
    """Independent sequences, right-padded.

    Attributes:
        xs: A tree of arrays `[B, T, ...]`, zeros on padding.
        mask: bool `[B, T]`, True where a step is real.
        indices: int32 `[B]`, the index of each row's sequence in the list, -1 for a row that only
            fills the batch. `indices >= 0` is the mask of a loss with one label a sequence.
    """

    xs: Any
    mask: np.ndarray
    indices: np.ndarray


class StreamBatch(NamedTuple):
    """One chunk of B streams; row b goes on where row b of the chunk before it ended.

    Attributes:
        xs: A tree of arrays `[B, K, ...]`, zeros on padding.
        mask: bool `[B, K]`, True where a step is real.
        reset: bool `[B, K]`, True at the first step of a stream.
        indices: int32 `[B]`, the index of each row's stream in the list, -1 when none was left.
    """

    xs: Any
    mask: np.ndarray
    reset: np.ndarray
    indices: np.ndarray


def bucket_batches(
    sequences: Sequence[Any],
    batch_size: int,
    *,
    boundaries: Sequence[int] | None = None,
    num_buckets: int | None = None,
    generator: np.random.Generator | int | None = None,
) -> Iterator[Batch]:
    """Batches sequences of similar length, so that little is padded and few shapes compile.

    A sequence goes into the first bucket whose boundary is not below its length and is padded up
    to that boundary. Every sequence comes exactly once; the last batch of a bucket is filled with
    masked rows, so a bucket has one shape.

    Args:
        sequences: Trees of arrays `[T_i, ...]`, alike but for T_i; T_i = 0 is allowed.
        batch_size: B.
        boundaries: The T of each bucket, rising; the last one not below the longest T_i.
        num_buckets: Instead of `boundaries`: this many buckets of about as many sequences each,
            fewer where lengths coincide.
        generator: Shuffles the sequences within their bucket and the order of the batches; an int
            is a seed. None: the order of the list, short buckets first.

    Returns:
        An iterator of `Batch(xs, mask, indices)`.

    Raises:
        TypeError: The trees or dtypes of two sequences differ, or a count is no int.
        ValueError: There is no sequence, one is longer than the last boundary, shapes differ, a
            count is below 1, boundaries are no ints or do not rise, or not exactly one of
            `boundaries` and `num_buckets` is given.

    Example:
        >>> sequences = [np.ones(length) for length in (2, 7, 3, 8, 1)]
        >>> for batch in bucket_batches(sequences, 2, boundaries=(4, 8)):
        ...     print(batch.xs.shape, batch.mask.sum(1), batch.indices)
        (2, 4) [2 3] [0 2]
        (2, 4) [1 0] [ 4 -1]
        (2, 8) [7 8] [1 3]
    """
    ragged = as_ragged(sequences, "sequences")
    checks.positive(batch_size, "batch_size")
    edges = _boundaries(ragged.lengths, boundaries, num_buckets)
    order, generator = _order(len(ragged.lengths), generator)
    bucket_of = np.searchsorted(edges, ragged.lengths[order])
    plan = [
        (int(edge), members[first : first + batch_size])
        for bucket, edge in enumerate(edges)
        for members in [order[bucket_of == bucket]]
        for first in range(0, len(members), batch_size)
    ]
    if generator is not None:
        plan = [plan[number] for number in generator.permutation(len(plan))]
    return (_batch(ragged, members, (batch_size, edge)) for edge, members in plan)


def stream_batches(
    streams: Sequence[Any],
    batch_size: int,
    num_steps: int,
    *,
    generator: np.random.Generator | int | None = None,
) -> Iterator[StreamBatch]:
    """Cuts long streams into chunks for truncated backpropagation through time.

    Row b of a chunk continues row b of the chunk before it, so the carry of one call is the carry
    of the next. Where a stream ends inside a chunk the rest is masked, and the row takes the next
    stream of the list with the next chunk, with `reset` at its first step. Every stream comes
    exactly once; a stream of length 0 takes one chunk, all masked. When no stream is left a row
    stays masked with the index -1 until the last stream ends.

    Args:
        streams: Trees of arrays `[T_i, ...]`, alike but for T_i. Targets belong in the tree:
            shifted before the cut, no chunk loses its last one.
        batch_size: B.
        num_steps: K, the steps of a chunk.
        generator: Shuffles the order of the streams; an int is a seed. None: that of the list.

    Returns:
        An iterator of `StreamBatch(xs, mask, reset, indices)`.

    Raises:
        TypeError: The trees or dtypes of two streams differ, or B or K is no int.
        ValueError: There is no stream, shapes differ, or B or K is below 1.

    Example:
        >>> streams = [np.array([1, 2, 3]), np.array([4, 5, 6, 7]), np.array([8])]
        >>> for batch in stream_batches(streams, 2, 2):
        ...     print(batch.xs.tolist(), batch.reset[:, 0], batch.indices)
        [[1, 2], [4, 5]] [ True  True] [0 1]
        [[3, 0], [6, 7]] [False False] [0 1]
        [[8, 0], [0, 0]] [ True False] [ 2 -1]
    """
    ragged = as_ragged(streams, "streams")
    checks.positive(batch_size, "batch_size")
    checks.positive(num_steps, "num_steps")
    order, _ = _order(len(ragged.lengths), generator)
    return _stream(ragged, order, (batch_size, num_steps))


def _batch(ragged: Ragged, members: np.ndarray, shape: tuple[int, int]) -> Batch:
    rows, leaves = np.arange(len(members)), [ragged.leaves[index] for index in members]
    xs = place_trees(leaves, ragged.structure, rows, np.zeros_like(rows), shape)
    indices = np.full(shape[0], -1, np.int32)
    indices[: len(members)] = members
    lengths = np.where(indices >= 0, ragged.lengths[indices], 0)
    return Batch(xs, np.arange(shape[1]) < lengths[:, None], indices)


def _stream(ragged, order, shape):
    """One chunk after the other; `begun` is how far each row is in its stream."""
    batch_size, num_steps = shape
    waiting = list(order[::-1])
    indices, begun = np.full(batch_size, -1, np.int32), np.zeros(batch_size, int)
    while True:
        ended = (indices < 0) | (begun >= ragged.lengths[indices])
        for row in np.flatnonzero(ended):
            indices[row], begun[row] = (waiting.pop() if waiting else -1), 0
        if (indices < 0).all():
            return
        yield _chunk(ragged, indices, begun, shape)
        begun += num_steps


def _chunk(ragged, indices, begun, shape):
    rows = np.flatnonzero(indices >= 0)
    leaves = [
        [leaf[begun[row] : begun[row] + shape[1]] for leaf in ragged.leaves[indices[row]]]
        for row in rows
    ]
    xs = place_trees(leaves, ragged.structure, rows, np.zeros_like(rows), shape)
    left = np.where(indices >= 0, ragged.lengths[indices] - begun, 0)
    reset = np.zeros(shape, bool)
    reset[rows, 0] = begun[rows] == 0
    return StreamBatch(xs, np.arange(shape[1]) < left[:, None], reset, indices.copy())


def _boundaries(lengths, boundaries, num_buckets):
    if (boundaries is None) == (num_buckets is None):
        raise ValueError(
            "exactly one of boundaries and num_buckets must be given, "
            f"got {boundaries!r} and {num_buckets!r}."
        )
    if num_buckets is not None:
        checks.positive(num_buckets, "num_buckets")
        last = -(-np.arange(1, num_buckets + 1) * len(lengths) // num_buckets) - 1
        return np.unique(np.sort(lengths)[last])
    edges = np.asarray(boundaries)
    if edges.ndim != 1 or edges.size == 0 or not np.issubdtype(edges.dtype, np.integer):
        raise ValueError(f"boundaries must be a list of ints, got {boundaries!r}.")
    if edges[0] < 0 or (np.diff(edges) <= 0).any():
        raise ValueError(f"boundaries must rise from at least 0, got {boundaries!r}.")
    if lengths.max() > edges[-1]:
        raise ValueError(
            f"the last of boundaries must not be below the longest sequence, {lengths.max()} "
            f"steps, got {edges[-1]}."
        )
    return edges


def _order(num_sequences, generator):
    """The order of the sequences, and the generator or None."""
    if generator is None:
        return np.arange(num_sequences), None
    generator = np.random.default_rng(generator)
    return generator.permutation(num_sequences), generator
