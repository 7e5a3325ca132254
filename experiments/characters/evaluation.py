"""Held-out bits per character, and what is made of the texts that the models write."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.characters.config import Config
from experiments.characters.model import Scores, Sized, score
from experiments.characters.ngrams import NGram, compressed_bits
from experiments.characters.text import by_text, reset_every_chunk, text_chunks
from experiments.characters.training import Trained
from experiments.characters.writing import (
    NUCLEUS,
    Passage,
    Reference,
    Traits,
    passages,
    write,
)
from experiments.data.topics import Corpus
from experiments.frame.errors import ExperimentError

ROWS = 8  # texts scored side by side
ORDERS = (1, 2, 5)
RESAMPLES, LEVEL = 2000, 95
CROSS = f"nucleus {NUCLEUS:g}"


class Baselines(NamedTuple):
    """What needs no training.

    Attributes:
        corpus: The text.
        bits: By name, bits per character of the held-out text.
        judge: The n-gram model that written texts are shown to.
        passages: Where the models write on.
        real: The traits of how the passages go on in truth.
        real_bits: Bits of the truth for the judge, `[R, N]`.
    """

    corpus: Corpus
    bits: Mapping[str, float]
    judge: NGram
    reference: Reference
    passages: Sequence[Passage]
    real: Traits
    real_bits: np.ndarray


class Scored(NamedTuple):
    """A trained model on the held-out topics.

    Attributes:
        trained: What was trained.
        bits: Of every character of every topic, the carry handed on from chunk to chunk.
        right: The share of characters that were thought the likeliest.
        cold_bits: Bits per character when the carry is reset at every chunk.
        by_position: Bits by the place in the chunk, `[K]`, carried and reset.
    """

    trained: Trained
    bits: list[np.ndarray]
    right: float
    cold_bits: float
    by_position: Mapping[str, np.ndarray]

    @property
    def mean_bits(self) -> float:
        """Bits per character with a carry that is handed on."""
        return float(np.concatenate(self.bits).mean())


class Written(NamedTuple):
    """What a model writes behind the prompts.

    Attributes:
        model: Which.
        texts: By decoding, one a prompt.
        traits: Of these texts.
        judged: Their bits for the n-gram judge, `[R, N]`.
        forced: The model on the truth: bits and what was right, `[R, N]`.
        free_right: Whether the greedy text has the character of the truth, `[R, N]`.
    """

    model: Sized
    texts: Mapping[str, list[str]]
    traits: Mapping[str, Traits]
    judged: Mapping[str, np.ndarray]
    forced: Scores
    free_right: np.ndarray


class Cross(NamedTuple):
    """Bits per character of texts written with `CROSS` for every model, `[writers, readers]`."""

    writers: tuple[str, ...]
    readers: tuple[str, ...]
    bits: np.ndarray


class Interval(NamedTuple):
    """A mean in bits per character and its interval; a difference below 0: the first is better."""

    mean: float
    low: float
    high: float


def make_baselines(config: Config, corpus: Corpus) -> Baselines:
    """Counts and compressors, and the passages to write on from.

    Raises:
        ExperimentError: There are not so many passages of that length.
    """
    found = passages(
        corpus.held_out, config.prompts, config.prompt_length, config.written_length, config.seed
    )
    if len(found) < config.prompts:
        raise ExperimentError(
            f"--prompts must be at most {len(found)}, the held-out passages of that length, "
            f"got {config.prompts}"
        )
    training, held_out = list(corpus.training.values()), list(corpus.held_out.values())
    counted = {order: NGram(training, order) for order in ORDERS}
    bits = {
        f"{order}-gram": float(np.concatenate([model.bits(text) for text in held_out]).mean())
        for order, model in counted.items()
    }
    bits |= {name: compressed_bits(training, held_out, name) for name in ("bz2", "lzma")}
    judge, reference = counted[max(ORDERS)], Reference(training)
    truths = [passage.truth for passage in found]
    real_bits = judged(judge, found, truths)
    return Baselines(corpus, bits, judge, reference, found, reference.traits(truths), real_bits)


def score_held_out(trained: Trained, corpus: Corpus, num_steps: int) -> Scored:
    """Both ways to read the held-out topics."""
    texts = list(corpus.held_out.values())
    chunks, indices = text_chunks(texts, ROWS, num_steps)
    params = trained.fitted.params
    warm = score(trained.model, params, chunks)
    cold = score(trained.model, params, reset_every_chunk(chunks))
    count = chunks.mask.sum(axis=(0, 1))
    return Scored(
        trained,
        by_text(warm.bits, chunks.mask, indices, len(texts)),
        float(warm.right.sum() / chunks.mask.sum()),
        float(cold.bits.sum() / chunks.mask.sum()),
        {
            name: made.bits.sum(axis=(0, 1)) / count
            for name, made in (("carried", warm), ("reset", cold))
        },
    )


def write_on(config: Config, trained: Trained, baselines: Baselines) -> Written:
    """Texts of all kinds, shown to the judge, and the truth read with teacher forcing."""
    found = baselines.passages
    params = trained.fitted.params
    texts = write(trained.model, params, found, config.written_length, config.seed)
    truths = [passage.truth for passage in found]
    greedy = np.array([list(text) for text in texts["greedy"]])
    return Written(
        trained.model,
        texts,
        {name: baselines.reference.traits(own) for name, own in texts.items()},
        {name: judged(baselines.judge, found, own) for name, own in texts.items()},
        score_behind(trained.model, params, found, truths, config.chunk),
        greedy == np.array([list(text) for text in truths]),
    )


def read_each_other(
    config: Config, baselines: Baselines, scored: Sequence[Scored], written: Sequence[Written]
) -> Cross:
    """Every model reads what every model wrote, and the truth."""
    found = baselines.passages
    texts = {own.model.mixer: own.texts[CROSS] for own in written}
    texts["truth"] = [passage.truth for passage in found]

    def bits(reader, own):
        return score_behind(reader.model, reader.fitted.params, found, own, config.chunk).bits

    readers = [one.trained for one in scored]
    matrix = [[bits(reader, own).mean() for reader in readers] for own in texts.values()]
    return Cross(tuple(texts), tuple(one.model.mixer for one in readers), np.array(matrix))


def score_behind(
    model: Sized, params: Any, found: Sequence[Passage], texts: Sequence[str], num_steps: int
) -> Scores:
    """What a model makes of texts behind the prompts, `[R, N]`."""
    whole = [passage.prompt + text for passage, text in zip(found, texts, strict=True)]
    chunks, indices = text_chunks(whole, ROWS, num_steps)
    scores = score(model, params, chunks)
    rows = (by_text(leaf, chunks.mask, indices, len(whole)) for leaf in scores)
    return Scores(*(np.stack(row)[:, len(found[0].prompt) :] for row in rows))


def judged(judge: NGram, found: Sequence[Passage], texts: Sequence[str]) -> np.ndarray:
    """Bits of texts behind the prompts for the n-gram judge, `[R, N]`."""
    return np.stack(
        [
            judge.bits(passage.prompt + text)[len(passage.prompt) :]
            for passage, text in zip(found, texts, strict=True)
        ]
    )


def difference(one: Scored, other: Scored) -> Interval:
    """Of bits per character, both on the same topics."""
    return interval([a - b for a, b in zip(one.bits, other.bits, strict=True)])


def interval(values: Sequence[np.ndarray]) -> Interval:
    """The mean of values a character, with a bootstrap over the topics."""
    sums, sizes = (np.array(list(map(of, values))) for of in (np.sum, len))
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(float(sums.sum() / sizes.sum()), float(low), float(high))
