"""The English of `pydoc_data.topics`: the reference texts that every Python carries for `help()`.

They differ from version to version of Python, so a run records how much there was and a digest.
The texts are written in `ALPHABET`: typographic quotes and dashes as their ASCII forms, any other
character as a question mark. Many topics are cut from a longer one or say the same again; those
would put the text of the training part into the held-out part, so topics that share text are kept
together, and a topic that is for the most part in a longer one is left out.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np

from experiments.frame.errors import ExperimentError

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
SHINGLE = 60  # characters, all white space as one space
CONTAINED = 0.5  # of the shingles of a topic in a longer one: it is left out
RELATED = 0.02  # of the shingles of the shorter of two topics: both go into the same part
LONGEST_HELD_OUT = 0.3  # of the characters to hold out, in one family of topics

_ASCII = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "...", "\t": " "}
)


class Corpus(NamedTuple):
    """The texts by topic, in the order of their names."""

    training: Mapping[str, str]  # what is learned from
    held_out: Mapping[str, str]  # what is predicted; none of it, nor like it, is in `training`
    left_out: Mapping[str, str]  # topics that are mostly in a longer one, and that one
    num_characters: int  # of all topics, before any was left out
    digest: str  # the first 16 digits of the SHA-256 of all topics
    seen: float  # the share of the shingles of `held_out` that are in `training` as well


def load_topics() -> dict[str, str]:
    """All topics by name, as Python has them; an ExperimentError if this Python has none."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ExperimentError(f"this Python has no pydoc_data.topics: {error}") from error
    return dict(sorted(topics.items()))


def make_corpus(topics: Mapping[str, str], share: float, seed: int) -> Corpus:
    """Splits the topics.

    Families of related topics are held out one after the other in an order that depends on their
    names and the seed, as long as `share` of the characters is not exceeded; a family that would
    exceed it, or is by itself a large part of it, stays in training.
    """
    texts = {name: in_alphabet(text) for name, text in topics.items()}
    shingles = {name: shingles_of(text) for name, text in texts.items()}
    shared = _shared(shingles)
    left_out = _contained(texts, shingles, shared)
    families = _families([name for name in texts if name not in left_out], shingles, shared)
    sizes = [sum(len(texts[name]) for name in family) for family in families]
    wanted = share * sum(sizes)
    held_out, taken = [], 0
    for index in sorted(range(len(families)), key=lambda i: _place(families[i][0], seed)):
        if sizes[index] <= min(wanted - taken, LONGEST_HELD_OUT * wanted):
            held_out += families[index]
            taken += sizes[index]
    kept = [name for family in families for name in family]
    training = {name: texts[name] for name in sorted(set(kept) - set(held_out))}
    return Corpus(
        training,
        {name: texts[name] for name in sorted(held_out)},
        left_out,
        sum(map(len, topics.values())),
        _digest(topics),
        share_seen(held_out, training, shingles),
    )


def in_alphabet(text: str) -> str:
    text = text.translate(_ASCII)
    return "".join(c if c == "\n" or " " <= c <= "~" else "?" for c in text)


def encode(text: str) -> np.ndarray:
    codes = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int32)
    return np.where(codes == ord("\n"), 0, codes - 31)


def decode(tokens: np.ndarray) -> str:
    return "".join(ALPHABET[token] for token in tokens)


def shingles_of(text: str) -> set[str]:
    """All runs of `SHINGLE` characters; of a shorter text the whole."""
    text = " ".join(text.split())
    return {text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))}


def share_seen(held_out, training, shingles) -> float:
    """The share of the shingles of some topics that others have too."""
    known = set().union(*(shingles[name] for name in training))
    own = set().union(*(shingles[name] for name in held_out))
    return len(own & known) / max(1, len(own))


def _shared(shingles: Mapping[str, set[str]]) -> dict[tuple[str, str], int]:
    """How many shingles every two topics share that share any."""
    owners = defaultdict(list)
    for name, own in shingles.items():
        for shingle in own:
            owners[shingle].append(name)
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for names in owners.values():
        for pair in combinations(names, 2):
            counts[pair] += 1
    return counts


def _contained(texts, shingles, shared) -> dict[str, str]:
    found = {}
    for pair, count in sorted(shared.items()):
        shorter, longer = sorted(pair, key=lambda name: (len(texts[name]), name))
        if count >= CONTAINED * len(shingles[shorter]):
            found.setdefault(shorter, longer)
    return found


def _families(names, shingles, shared) -> list[list[str]]:
    """Topics that share text, directly or through others."""
    family = {name: [name] for name in names}
    for (one, other), count in shared.items():
        if one not in family or other not in family or family[one] is family[other]:
            continue
        if count >= RELATED * min(len(shingles[one]), len(shingles[other])):
            family[one] += family[other]
            for name in family[other]:
                family[name] = family[one]
    return sorted({id(members): sorted(members) for members in family.values()}.values())


def _place(name: str, seed: int) -> str:
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


def _digest(topics: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name, text in topics.items():
        digest.update(f"{name} {len(text)}\n{text}".encode())
    return digest.hexdigest()[:16]
