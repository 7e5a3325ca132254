"""Python's own source, every character labelled with the token it belongs to.

Read from the standard library of the Python that runs, so the text differs a little from version to
version: `digest` says which one it was. The files are in every Python from 3.11 to 3.13.
"""

import hashlib
import io
import keyword
import sysconfig
import token
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

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


class Source(NamedTuple):
    """One file, an entry for each of its N characters."""

    name: str  # of the file
    characters: np.ndarray  # [N], the place in `CHARACTERS`, or `UNKNOWN`
    labels: np.ndarray  # [N], the place in `CLASSES`
    # [N], how many characters of its token come before it; `NO_TOKEN` in between
    position: np.ndarray
    length: np.ndarray  # [N], how many characters its token has; `NO_TOKEN` in between
    # ends of logical lines and of blank or comment lines: where the text may be cut
    ends: np.ndarray
    blank: np.ndarray  # those of `ends` behind a blank line, the last of several


def load_sources(names: Sequence[str], folder: Path | None = None) -> list[Source]:
    """The files `NAME.py`.

    Raises:
        ExperimentError: One is missing, or no Python.
    """
    folder = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    return [_load(folder / f"{name}.py") for name in names]


def digest(sources: Sequence[Source]) -> str:
    """Of names and characters of all files."""
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
