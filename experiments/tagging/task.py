"""Files, split before anything else, and the paragraphs that are cut from them."""

import hashlib
import io
import keyword
import sysconfig
import token
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jaxrnn as jr
from experiments.frame.errors import ExperimentError

CLASSES = (
    *("name", "keyword", "number", "string", "comment", "operator"),
    *("space", "newline", "indentation"),
)
NAME, KEYWORD, NUMBER, STRING, COMMENT, OPERATOR, SPACE, NEWLINE, INDENTATION = range(len(CLASSES))
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
UNKNOWN = len(CHARACTERS)
NUM_CHARACTERS = len(CHARACTERS) + 1
NO_TOKEN = -1
TRAINING = (
    *("bisect", "calendar", "codecs", "contextlib", "copy", "csv", "dataclasses", "functools"),
    *("heapq", "numbers", "operator", "random", "selectors", "textwrap", "traceback"),
)
VALIDATION = ("gzip", "pprint", "shlex")
TEST = ("getopt", "graphlib", "plistlib", "queue", "tempfile", "weakref")
QUICK_TRAINING = ("bisect", "copy", "csv", "operator", "selectors", "textwrap")
QUICK_VALIDATION, QUICK_TEST = ("shlex",), ("getopt", "graphlib", "queue")
FILLED = 0.97  # of the steps of packed rows, that first-fit is trusted to fill


class Source(NamedTuple):
    """One file, an entry for each of its N characters."""

    name: str  # of the file
    characters: np.ndarray  # [N], the place in `CHARACTERS`, or `UNKNOWN`
    labels: np.ndarray  # [N], the place in `CLASSES`
    position: np.ndarray  # [N], characters of its token before it; `NO_TOKEN` in between
    length: np.ndarray  # [N], how many characters its token has; `NO_TOKEN` in between
    ends: np.ndarray  # of logical, blank and comment lines: where the text may be cut
    blank: np.ndarray  # those of `ends` behind a blank line, the last of several


def load_sources(names: Sequence[str], folder: Path | None = None) -> list[Source]:
    """The files `NAME.py`; an ExperimentError if one is missing, or no Python."""
    folder = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    return [_load(folder / f"{name}.py") for name in names]


def digest(sources: Sequence[Source]) -> str:
    content = hashlib.sha256()
    for source in sources:
        content.update(source.name.encode() + source.characters.astype(np.uint8).tobytes())
    return content.hexdigest()[:16]


def label_text(name: str, text: str) -> Source:
    """Labels every character by what `tokenize` says of the whole text.

    Everything inside a formatted string is string, whichever tokens a version of Python makes of
    it. White space in front of a line's first token is indentation, the end of a line newline, and
    what else stands between tokens space; inside a string all of these are string.

    Raises:
        ExperimentError: The text is no Python.
    """
    starts = np.cumsum([0, *(len(line) + 1 for line in text.split("\n"))])
    labels = _between_tokens(text)
    position, length = (np.full(len(text), NO_TOKEN) for _ in range(2))
    ends, blank, depth = [], [], 0
    for kind, first, last, label in _tokens(name, text, starts):
        if label is not None:
            labels[first:last] = label
            position[first:last], length[first:last] = np.arange(last - first), last - first
        if label == OPERATOR:
            depth += (text[first:last] in "([{") - (text[first:last] in ")]}")
        if kind in (token.NEWLINE, tokenize.NL) and depth == 0 and last > first:
            ends.append(last)
            blank.append(not text[text.rfind("\n", 0, first) + 1 : first].strip())
    places = {character: place for place, character in enumerate(CHARACTERS)}
    characters = np.array([places.get(character, UNKNOWN) for character in text], np.int32)
    ends, blank = np.array(ends, int), np.array(blank, bool)
    last_blank = ends[blank & ~np.append(blank[1:], False)]
    return Source(name, characters, labels, position, length, ends, last_blank)


def _load(path):
    try:
        with tokenize.open(path) as file:
            return label_text(path.stem, file.read())
    except FileNotFoundError:
        raise ExperimentError(f"{path} is missing: this Python came without its source") from None
    except (OSError, UnicodeError) as error:
        raise ExperimentError(f"{path} cannot be read: {error}") from error


def _between_tokens(text):
    """Labels as if there were no tokens."""
    labels = np.full(len(text), SPACE, np.int32)
    at_start = True
    for index, character in enumerate(text):
        if character == "\n":
            labels[index], at_start = NEWLINE, True
        elif not character.isspace():
            at_start = False
        elif at_start:
            labels[index] = INDENTATION
    return labels


def _generate(name, text) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(text).readline)
    except (tokenize.TokenError, SyntaxError) as error:
        raise ExperimentError(f"{name} is no Python: {error}") from error


def _tokens(name, text, starts) -> Iterator[tuple[int, int, int, int | None]]:
    """Kind, first character, end and label; a formatted string is one token."""
    opened = []
    for one in _generate(name, text):
        first, last = (int(starts[row - 1]) + column for row, column in (one.start, one.end))
        kind = token.tok_name[one.type]
        if kind.endswith("STRING_START"):
            opened.append(first)
        elif kind.endswith("STRING_END"):
            first = opened.pop()
            if not opened:
                yield token.STRING, first, last, STRING
        elif not opened:
            yield one.type, first, last, _label(one)


def _label(one) -> int | None:
    if one.type == token.NAME:
        return KEYWORD if keyword.iskeyword(one.string) else NAME
    labels = {token.NUMBER: NUMBER, token.STRING: STRING, tokenize.COMMENT: COMMENT}
    return labels.get(one.type, OPERATOR if one.type == token.OP else None)


class Paragraph(NamedTuple):
    """What is between two blank lines; every array is `[T]`, as in `Source`."""

    characters: np.ndarray
    labels: np.ndarray
    position: np.ndarray
    length: np.ndarray
    file: np.ndarray


class Corpus(NamedTuple):
    """Files of one part of the split, and what was cut from them, in order."""

    sources: list[Source]
    paragraphs: list[Paragraph]
    dropped: int  # characters of lines that are longer than a row

    @property
    def num_characters(self) -> int:
        return int(self.lengths.sum())

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(one.labels) for one in self.paragraphs])


class Task(NamedTuple):
    """Three parts that share no file."""

    training: Corpus
    validation: Corpus
    test: Corpus


def make_task(quick: bool, row_length: int) -> Task:
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
