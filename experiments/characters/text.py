"""From topics to the chunks of streams, and back from numbers to the characters of topics."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

import jaxrnn as jr
from experiments.data.topics import encode
from jaxrnn.sequences import StreamBatch

FIRST = 0  # the line break that stands in front of every topic


class Chunks(NamedTuple):
    """Chunks of streams, with a leading axis of chunks in front of `[B, K]`.

    Attributes:
        xs: The characters read, int32.
        ys: The characters to predict, each the next one.
        mask: True where there is one.
        reset: True where a topic starts.
    """

    xs: np.ndarray
    ys: np.ndarray
    mask: np.ndarray
    reset: np.ndarray


class Stream(NamedTuple):
    """A text to read: `xs`, `ys` and `reset`, all `[T]`."""

    xs: np.ndarray
    ys: np.ndarray
    reset: np.ndarray


def stream_of(texts: Sequence[str]) -> Stream:
    """Texts one behind another; every one starts anew, behind a line break."""
    ys = [encode(text) for text in texts]
    xs = [np.concatenate([[FIRST], tokens[:-1]]).astype(np.int32) for tokens in ys]
    starts = [np.arange(len(tokens)) == 0 for tokens in ys]
    return Stream(*map(np.concatenate, (xs, ys, starts)))


def training_chunks(texts: Sequence[str], batch_size: int, num_steps: int, seed) -> Chunks:
    """One pass over all texts in an order of its own: streams of one length, so one shape.

    What is left behind the last whole chunk of the streams is not read in this pass.
    """
    order = np.random.default_rng(seed).permutation(len(texts))
    whole = stream_of([texts[int(index)] for index in order])
    num_chunks = len(whole.xs) // (batch_size * num_steps)
    length = num_chunks * num_steps
    rows = [
        Stream(*(leaf[b * length : (b + 1) * length] for leaf in whole)) for b in range(batch_size)
    ]
    return stacked(list(jr.stream_batches(rows, batch_size, num_steps)))


def text_chunks(texts: Sequence[str], batch_size: int, num_steps: int) -> tuple[Chunks, np.ndarray]:
    """All of every text, the longest first, and whose each row of each chunk is, `[N, B]`."""
    streams = [stream_of([text]) for text in texts]
    order = np.argsort([-len(text) for text in texts], kind="stable")
    batches = list(jr.stream_batches([streams[i] for i in order], batch_size, num_steps))
    indices = np.stack([batch.indices for batch in batches])
    return stacked(batches), np.where(indices >= 0, order[indices], -1)


def stacked(batches: Sequence[StreamBatch]) -> Chunks:
    """The batches of streams as one tree."""
    xs, ys, starts = (np.stack(leaves) for leaves in zip(*(b.xs for b in batches), strict=True))
    mask, reset = (np.stack([getattr(b, name) for b in batches]) for name in ("mask", "reset"))
    return Chunks(xs, ys, mask, reset | starts)


def reset_every_chunk(chunks: Chunks) -> Chunks:
    """The same chunks, each of which is read as if nothing had come before."""
    reset = chunks.reset.copy()
    reset[..., 0] = True
    return chunks._replace(reset=reset)


def pieces(chunks: Chunks, size: int) -> Iterator[Chunks]:
    """`size` chunks at a time; the last ones are filled with chunks that are masked."""
    missing = -len(chunks.xs) % size
    filled = [
        np.concatenate([leaf, np.zeros((missing, *leaf.shape[1:]), leaf.dtype)]) for leaf in chunks
    ]
    for start in range(0, len(filled[0]), size):
        yield Chunks(*(leaf[start : start + size] for leaf in filled))


def by_text(values: np.ndarray, mask: np.ndarray, indices: np.ndarray, number: int) -> list:
    """Values `[N, B, K]` of chunks as one array a text, in the order of its characters."""
    owner = np.where(mask, indices[..., None], -1).transpose(1, 0, 2).ravel()
    flat = values.transpose(1, 0, 2).ravel()
    return [flat[owner == index] for index in range(number)]
