"""Held-out bits per character, and what is made of the texts that the models write."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.characters.config import Config
from experiments.characters.model import Scores, Sized, score, sized
from experiments.characters.train import train
from experiments.characters.writing import (
    COMPRESSORS,
    GREEDY,
    SAMPLED,
    Judge,
    Judged,
    NGram,
    Passage,
    compressed_bits,
    passages,
    write,
)
from experiments.data.topics import Corpus, load_topics, make_corpus
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitted
from experiments.frame.progress import progress_bar
from experiments.frame.stats import Interval, bootstrap

ORDERS = (1, 2, 5)
WRITING = 2  # the time it takes to write, in epochs


class Scored(NamedTuple):
    """A model, trained with the carry handed on or reset, on the held-out topics."""

    model: Sized
    mode: str
    fitted: Fitted
    bits: list[np.ndarray]  # of every topic, read with the carry handed on from chunk to chunk
    right: float  # share of its characters that were thought the likeliest
    cold_bits: float  # bits per character when the carry is reset at every chunk
    by_position: Mapping[str, np.ndarray]  # bits by the place in the chunk, [K], carried and reset

    @property
    def name(self) -> str:
        return f"{self.model.label}, {self.mode}"

    @property
    def mean_bits(self) -> float:
        """Bits per character with a carry that is handed on."""
        return float(np.concatenate(self.bits).mean())


class Written(NamedTuple):
    """What a model writes after the prompts, by decoding.

    `forced` is how it predicts the truth, and `free_right` says whether the greedy text has the
    character of the truth; all `[R, N]`.
    """

    model: Sized
    by_decoding: Mapping[str, Judged]
    forced: Scores
    free_right: np.ndarray


class Results(NamedTuple):
    corpus: Corpus
    baselines: Mapping[str, float]  # bits per character of the held-out text, without training
    judge: Judge  # what written texts are shown to
    passages: Sequence[Passage]  # where the models write on
    truth: Judged  # how the passages go on
    scored: tuple[Scored, ...] = ()  # every model in every mode
    written: tuple[Written, ...] = ()  # what the models of the first mode write
    cross: Mapping[str, Mapping[str, float]] = {}  # bits of sampled texts, by writer and reader

    def of_mode(self, mode: str) -> list[Scored]:
        return [one for one in self.scored if one.mode == mode]


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    """Baselines; then every model in every mode, and what it writes; then all read each other."""
    corpus = make_corpus(load_topics(), config.held_out, config.seed)
    total = len(config.models) * (len(config.modes) * config.epochs + WRITING) + 1
    with progress_bar(total) as bar:
        bar.stage("counts and compressors")
        results = before_training(config, corpus)
        yield results
        bar.advance()
        for mixer in config.models:
            model = sized(mixer, config.parameters, config.blocks)
            for mode in config.modes:
                bar.stage(f"{model.label}, {mode}")
                texts = corpus.training.values()
                fitted = train(config, model, mode, texts, checkpoints, bar.advance)
                one = score_held_out(model, mode, fitted, corpus, config.chunk)
                results = results._replace(scored=(*results.scored, one))
                bar.finish_stage(f"{one.name}: {one.mean_bits:.3f} bits per character")
                yield results
            bar.stage(f"{model.label} writes")
            written = write_on(config, results, results.of_mode(config.modes[0])[-1])
            yield (results := results._replace(written=(*results.written, written)))
            bar.advance(WRITING)
        yield results._replace(cross=read_each_other(config, results))


def before_training(config: Config, corpus: Corpus) -> Results:
    lengths = config.prompt_length, config.written_length
    found = passages(corpus.held_out, config.prompts, *lengths, config.seed, "--prompts")
    training, held_out = list(corpus.training.values()), list(corpus.held_out.values())
    counted = {order: NGram(training, order) for order in ORDERS}
    bits = {
        f"{order}-gram": float(np.concatenate([model.bits(text) for text in held_out]).mean())
        for order, model in counted.items()
    }
    bits |= {name: compressed_bits(training, held_out, name) for name in COMPRESSORS}
    judge = Judge(training, counted[max(ORDERS)])
    truth = judge.judge(found, [passage.truth for passage in found])
    return Results(corpus, bits, judge, found, truth)


def score_held_out(model: Sized, mode: str, fitted: Fitted, corpus: Corpus, chunk: int) -> Scored:
    """Both ways to read the held-out topics."""
    texts, params = list(corpus.held_out.values()), fitted.params_of(0)
    places = np.concatenate([np.arange(len(text)) % chunk for text in texts])
    warm, cold = (score(model, params, texts, chunk, cold) for cold in (False, True))
    warm_bits, cold_bits = (np.concatenate([one.bits for one in made]) for made in (warm, cold))
    by_position = {
        name: np.bincount(places, bits) / np.bincount(places)
        for name, bits in (("carried", warm_bits), ("reset", cold_bits))
    }
    right = float(np.concatenate([one.right for one in warm]).mean())
    bits = [one.bits for one in warm]
    return Scored(model, mode, fitted, bits, right, float(cold_bits.mean()), by_position)


def write_on(config: Config, results: Results, one: Scored) -> Written:
    """Texts of all kinds, shown to the judge, and the truth read with teacher forcing."""
    found, truths, params = results.passages, results.truth.texts, one.fitted.params_of(0)
    texts = write(one.model, params, found, config.written_length, config.seed)
    greedy, truth = (np.array([list(text) for text in own]) for own in (texts[GREEDY], truths))
    return Written(
        one.model,
        {name: results.judge.judge(found, own) for name, own in texts.items()},
        score_after(one.model, params, found, truths, config.chunk),
        greedy == truth,
    )


def read_each_other(config: Config, results: Results) -> dict[str, dict[str, float]]:
    readers = results.of_mode(config.modes[0])
    texts = {own.model.label: own.by_decoding[SAMPLED].texts for own in results.written}

    def bits(reader, own):
        params, found = reader.fitted.params_of(0), results.passages
        return float(score_after(reader.model, params, found, own, config.chunk).bits.mean())

    return {
        writer: {reader.model.label: bits(reader, own) for reader in readers}
        for writer, own in {**texts, "truth": results.truth.texts}.items()
    }


def score_after(
    model: Sized, params: Any, found: Sequence[Passage], texts: Sequence[str], num_steps: int
) -> Scores:
    """What a model makes of texts after the prompts, `[R, N]`."""
    whole = [passage.prompt + text for passage, text in zip(found, texts, strict=True)]
    rows = zip(*score(model, params, whole, num_steps), strict=True)
    return Scores(*(np.stack(row)[:, len(found[0].prompt) :] for row in rows))


def over_topics(bits: Sequence[np.ndarray]) -> Interval:
    return bootstrap([own.sum() for own in bits], [len(own) for own in bits])


def carried_less_reset(scored: Sequence[Scored]) -> dict[str, Interval]:
    """For every mixer trained in both modes, the difference of bits on the same topics."""
    by = {(one.model.label, one.mode): one.bits for one in scored}
    return {
        label: over_topics([a - b for a, b in zip(bits, by[label, "reset"], strict=True)])
        for (label, mode), bits in by.items()
        if mode == "carried" and (label, "reset") in by
    }
