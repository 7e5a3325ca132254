"""Files, split before anything else, and the paragraphs that are cut from them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import jaxrnn as jr
from experiments.data.source import Source, load_sources

TRAINING = (
    *("bisect", "calendar", "codecs", "contextlib", "copy", "csv", "dataclasses", "functools"),
    *("heapq", "numbers", "operator", "random", "selectors", "textwrap", "traceback"),
)
VALIDATION = ("gzip", "pprint", "shlex")
TEST = ("getopt", "graphlib", "plistlib", "queue", "tempfile", "weakref")
QUICK_TRAINING = ("bisect", "copy", "csv", "operator", "selectors", "textwrap")
QUICK_VALIDATION, QUICK_TEST = ("shlex",), ("getopt", "graphlib", "queue")
FILLED = 0.97  # of the steps of packed rows, that first-fit is trusted to fill


class Paragraph(NamedTuple):
    """What is between two blank lines; every array is `[T]`, as in `Source`."""

    characters: np.ndarray
    labels: np.ndarray
    position: np.ndarray
    length: np.ndarray
    file: np.ndarray


class Corpus(NamedTuple):
    """Files of one part of the split, and what was cut from them, in order.

    `dropped` counts the characters of lines that are longer than a row.
    """

    sources: list[Source]
    paragraphs: list[Paragraph]
    dropped: int

    @property
    def num_characters(self) -> int:
        """In all paragraphs."""
        return int(self.lengths.sum())

    @property
    def lengths(self) -> np.ndarray:
        """Of the paragraphs."""
        return np.array([len(one.labels) for one in self.paragraphs])


class Task(NamedTuple):
    """Three parts that share no file."""

    training: Corpus
    validation: Corpus
    test: Corpus


def make_task(quick: bool, row_length: int) -> Task:
    """Loads the files and cuts them."""
    full = (TRAINING, VALIDATION, TEST)
    names = (QUICK_TRAINING, QUICK_VALIDATION, QUICK_TEST) if quick else full
    return Task(*(make_corpus(load_sources(part), row_length) for part in names))


def make_corpus(sources: Sequence[Source], row_length: int) -> Corpus:
    """Cuts files after blank lines, and what is too long then between lines."""
    paragraphs, dropped = [], 0
    for file, source in enumerate(sources):
        for first, last in pieces(source, row_length):
            if last - first > row_length:
                dropped += last - first
                continue
            part = slice(first, last)
            arrays = (source.characters, source.labels, source.position, source.length)
            files = np.full(last - first, file, np.int32)
            paragraphs.append(Paragraph._make([*(array[part] for array in arrays), files]))
    return Corpus(list(sources), paragraphs, dropped)


def pieces(source: Source, row_length: int) -> Iterator[tuple[int, int]]:
    """Where a file is cut; a piece is longer than a row only if it is a single logical line."""
    num_characters = len(source.labels)
    blank, ends = (
        np.unique(np.append(ends, num_characters)).tolist() for ends in (source.blank, source.ends)
    )
    first = 0
    for last in blank:
        inside = [end for end in ends if first < end <= last]
        while inside:
            fitting = [end for end in inside if end - first <= row_length]
            end = fitting[-1] if fitting else inside[0]
            yield first, end
            first, inside = end, [other for other in inside if other > end]


class Rows(NamedTuple):
    """A minibatch, packed or padded alike; every array is `[R, L]`."""

    characters: Any
    labels: Any
    mask: Any
    reset: Any


def minibatches(
    paragraphs: Sequence[Paragraph], rows: int, row_length: int, generator: np.random.Generator
) -> Iterator[list[Paragraph]]:
    """Paragraphs in random order, as many at a time as fit into so many packed rows."""
    left = [paragraphs[index] for index in generator.permutation(len(paragraphs))]
    while left:
        ends = np.cumsum([len(one.labels) for one in left])
        number = max(1, int(np.searchsorted(ends, FILLED * rows * row_length)))
        while len(jr.pack([one.labels for one in left[:number]], row_length).mask) > rows:
            number -= 1
        yield left[:number]
        left = left[number:]


def packed_rows(paragraphs: Sequence[Paragraph], rows: int, row_length: int) -> Rows:
    """Several paragraphs a row, a reset at the start of each; empty rows fill up."""
    packed = jr.pack([(one.characters, one.labels) for one in paragraphs], row_length)
    widths = ((0, rows - len(packed.mask)), (0, 0))
    return Rows(*(np.pad(array, widths) for array in (*packed.xs, packed.mask, packed.reset)))


def padded_rows(paragraphs: Sequence[Paragraph], rows: int, row_length: int) -> Iterator[Rows]:
    """A paragraph a row, in order, padded to the length of a row; empty rows fill up."""
    pairs = [(one.characters, one.labels) for one in paragraphs]
    for batch in jr.bucket_batches(pairs, rows, boundaries=(row_length,)):
        characters, labels = batch.xs
        yield Rows(characters, labels, batch.mask, np.zeros_like(batch.mask))


def bucketed_rows(
    paragraphs: Sequence[Paragraph], num_steps: int, boundaries: Sequence[int]
) -> Iterator[Rows]:
    """Paragraphs of like length together, `num_steps` in each minibatch, padding included."""
    for low, high in zip((0, *boundaries[:-1]), boundaries, strict=True):
        if members := [one for one in paragraphs if low < len(one.labels) <= high]:
            yield from padded_rows(members, num_steps // high, high)
