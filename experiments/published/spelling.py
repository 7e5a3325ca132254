"""g2p-en: from the letters of an English word to its phonemes, by two GRUs."""

import random
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.published.packages import folder

WIDTH, START, STOP, MOST = 256, 2, 3, 20
READER = jr.serial(jr.embed(WIDTH), jr.gru(WIDTH))
WRITER = jr.serial(jr.embed(WIDTH), jr.gru(WIDTH), jr.dense(74))
# Stubs for what its text normaliser imports, which downloads a corpus.
STUBS = ("nltk", "nltk.tokenize", "nltk.corpus", "inflect", "distance")


class Spelling(NamedTuple):
    """How words are read."""

    words: int
    identical: int  # whose phonemes are those of the package
    state_difference: float  # of the states after all letters
    error_rate: float  # phonemes to change, for each phoneme of cmudict
    exact: float  # share of words that cmudict pronounces so
    word: str  # an example
    phonemes: tuple[str, ...]
    sensitivity: np.ndarray  # of each phoneme to each letter, [P, L]


def spelling(num_words: int) -> Spelling:
    """The network and the package on the same words of the dictionary.

    Raises:
        Absent: A package is not installed.
    """
    weights = folder("g2p_en", "g2p-en") / "checkpoint20.npz"
    dictionary = pronunciations()
    words = random.Random(0).sample(sorted(dictionary), num_words)
    original = package().G2p()
    reader, writer = parameters(dict(np.load(weights)))
    letters, mask = read_words(words, original)
    states = jr.unroll(READER, reader, letters, mask=mask).carry
    written = jr.generate(
        WRITER, writer, jnp.full((len(words), 1), START), MOST, carry=(*states, ()), stop_token=STOP
    )
    ours = [phonemes(row, original) for row in np.asarray(written.tokens)]
    theirs = [original.predict(word) for word in words]
    wanted = [dictionary[word] for word in words]
    errors = [
        min(distance(one, right) for right in rights)
        for one, rights in zip(ours, wanted, strict=True)
    ]
    example = "knowledge"
    return Spelling(
        len(words),
        sum(one == other for one, other in zip(ours, theirs, strict=True)),
        _state_difference(states[1].h, words, original),
        sum(errors) / sum(len(rights[0]) for rights in wanted),
        float(np.mean([error == 0 for error in errors])),
        example,
        *_sensitivity(example, reader, writer, original),
    )


def package() -> ModuleType:
    """The module of the package, without the corpora that it would download."""
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in STUBS}):
        from g2p_en import g2p  # pyright: ignore[reportMissingImports]

    return g2p


def parameters(arrays: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """Those of the reader and of the writer; the names of torch stand behind a prefix."""
    names = {"w_ih": "weight_ih", "w_hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}
    state = {}
    for name, array in arrays.items():
        side, _, rest = name.partition("_")
        kind = {"emb": "emb.weight", "w": "weight", "b": "bias"}.get(rest, f"rnn.{names.get(rest)}")
        state[f"{side}.{kind}"] = array
    reading = {name: array for name, array in state.items() if name.startswith("enc.")}
    writing = {name: array for name, array in state.items() if name not in reading}
    read = jr.interop.from_torch(reading, READER, prefix=("enc.emb.", "enc.rnn."))
    write = jr.interop.from_torch(writing, WRITER, prefix=("dec.emb.", "dec.rnn.", "fc."))
    return read.params, write.params


def read_words(words: Sequence[str], original: Any) -> tuple[np.ndarray, np.ndarray]:
    """Letters with the end of each word, `[B, T]`, and their mask."""
    rows = [[original.g2idx.get(c, 1) for c in word] + [original.g2idx["</s>"]] for word in words]
    (batch,) = jr.bucket_batches([np.array(row) for row in rows], len(rows), num_buckets=1)
    order = np.argsort(batch.indices)
    return batch.xs[order], batch.mask[order]


def phonemes(tokens: np.ndarray, original: Any) -> list[str]:
    """The phonemes before the end."""
    stop = list(tokens).index(STOP) if STOP in tokens else len(tokens)
    return [original.idx2p[int(token)] for token in tokens[:stop]]


def pronunciations() -> dict[str, list[list[str]]]:
    """Words of plain letters with their pronunciations."""
    path = folder("cmudict", "cmudict") / "data" / "cmudict.dict"
    found: dict[str, list[list[str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        word, *sounds = line.split(" #")[0].split()
        word = word.split("(")[0]
        if word.isascii() and word.isalpha():
            found.setdefault(word, []).append(sounds)
    return found


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of phonemes to change, add or remove."""
    row = list(range(len(other) + 1))
    for index, sound in enumerate(one):
        before, row = row, [index + 1]
        for place, wanted in enumerate(other):
            change = before[place] + (sound != wanted)
            row.append(min(change, before[place + 1] + 1, row[-1] + 1))
    return row[-1]


def _state_difference(states: Any, words: Sequence[str], original: Any) -> float:
    worst = 0.0
    for state, word in zip(np.asarray(states), words, strict=True):
        arrays = [getattr(original, f"enc_{name}") for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
        theirs = original.gru(original.encode(word), len(word) + 1, *arrays)[0, -1]
        worst = max(worst, float(np.abs(state - theirs).max()))
    return worst


def _sensitivity(word: str, reader: Any, writer: Any, original: Any) -> Any:
    """The phonemes of a word, and how strongly the odds of each depend on each letter."""
    letters, _ = read_words([word], original)
    vectors = reader[0].table[letters[0]]
    carry = jr.unroll(READER, reader, letters[0]).carry
    written = jr.generate(
        WRITER, writer, jnp.array([START]), MOST, carry=(*carry, ()), stop_token=STOP
    )
    sounds = phonemes(np.asarray(written.tokens), original)
    tokens = np.array([START, *(original.p2idx[sound] for sound in sounds)])

    def logits(vectors):
        after = jr.unroll(jr.gru(WIDTH), reader[1], vectors).carry
        outputs = jr.unroll(WRITER, writer, tokens[:-1], carry=((), after, ())).outputs
        return jax.nn.log_softmax(outputs)[np.arange(len(sounds)), tokens[1:]]

    jacobian = jax.jit(jax.jacrev(logits))(vectors)
    return tuple(sounds), np.linalg.norm(np.asarray(jacobian), axis=-1)
