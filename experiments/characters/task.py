"""From topics to streams of characters, and the chunks of them that are learned from."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.data.topics import encode

FIRST = 0  # the line break before every topic


class Stream(NamedTuple):
    """Characters to read, int32, each next one to predict, and where a topic starts; all `[T]`.

    Of chunks of several streams side by side they are `[N, B, K]`.
    """

    xs: np.ndarray
    ys: np.ndarray
    reset: np.ndarray


def stream_of(texts: Sequence[str]) -> Stream:
    """Texts one after another; every one starts anew, after a line break."""
    ys = [encode(text) for text in texts]
    xs = [np.concatenate([[FIRST], tokens[:-1]]).astype(np.int32) for tokens in ys]
    starts = [np.arange(len(tokens)) == 0 for tokens in ys]
    return Stream(*map(np.concatenate, (xs, ys, starts)))


def training_chunks(
    texts: Sequence[str], batch_size: int, num_steps: int, seed, reset_each: bool
) -> Stream:
    """One pass over all texts in an order of its own: streams of one length, so one shape.

    What is left after the last whole chunk of the streams is not read in this pass. With
    `reset_each` every chunk is read as if nothing had come before.
    """
    order = np.random.default_rng(seed).permutation(len(texts))
    whole = stream_of([texts[int(index)] for index in order])
    num_chunks = len(whole.xs) // (batch_size * num_steps)
    shape = batch_size, num_chunks, num_steps
    chunks = Stream(*(leaf[: np.prod(shape)].reshape(shape).swapaxes(0, 1) for leaf in whole))
    chunks.reset[..., 0] |= reset_each
    return chunks
