"""What a model writes when it reads its own output, and what such a text is like."""

import bz2
import functools
import lzma
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrnn as jr
from experiments.characters.model import Sized, stream_of
from experiments.data.topics import ALPHABET, decode
from experiments.frame.errors import ExperimentError

START = "\n"
COMPRESSORS = {
    "bz2": functools.partial(bz2.compress, compresslevel=9),
    "lzma": functools.partial(lzma.compress, preset=9 | lzma.PRESET_EXTREME),
}


class NGram:
    """The next character from the last `order - 1`, with Witten-Bell interpolation.

        p(c | h) = (count(h c) + distinct(h) p(c | h'))  /  (count(h) + distinct(h))

    h' is h without its oldest character, and below the empty h all characters are alike; Witten
    and Bell 1991. A text starts after a line break, as it does for the networks.
    """

    def __init__(self, texts: Iterable[str], order: int):
        self.order = order
        self.counts = defaultdict(lambda: defaultdict(int))
        for text in texts:
            padded = START + text
            for end in range(1, len(padded)):
                for start in range(max(0, end - order + 1), end + 1):
                    self.counts[padded[start:end]][padded[end]] += 1
        self.totals = {history: sum(of.values()) for history, of in self.counts.items()}

    def bits(self, text: str) -> np.ndarray:
        """-log₂ p of every character, `[len(text)]`."""
        padded = START + text
        return -np.log2([self._probability(padded, end) for end in range(1, len(padded))])

    def _probability(self, padded, end):
        probability = 1 / len(ALPHABET)
        for start in range(end, max(0, end - self.order + 1) - 1, -1):
            history = padded[start:end]
            if history not in self.totals:
                break
            of = self.counts[history]
            count, distinct = of.get(padded[end], 0), len(of)
            probability = (count + distinct * probability) / (self.totals[history] + distinct)
        return probability


def compressed_bits(training: Iterable[str], held_out: Iterable[str], compressor: str) -> float:
    """Bits per character that the held-out text adds to the compressed training text."""
    compress = COMPRESSORS[compressor]
    known, new = ("".join(texts).encode("ascii") for texts in (training, held_out))
    return 8 * (len(compress(known + new)) - len(compress(known))) / len(new)


TOP_K = 10
NUCLEUS = 0.9
REPEATED = 12  # characters of a run that counts as said before
COPIED = 40  # characters of a run that counts as copied from the training text
LOOP, LONGEST_PERIOD = 96, 48
WORD = re.compile(r"[A-Za-z]{2,}")
GREEDY, SAMPLED = "greedy", f"nucleus {NUCLEUS:g}"

# temperature, top-k and nucleus; the temperature 0 is greedy.
DECODINGS: Mapping[str, tuple[float, int | None, float]] = {
    GREEDY: (0.0, None, 1.0),
    "temperature 0.7": (0.7, None, 1.0),
    "temperature 1": (1.0, None, 1.0),
    f"top-{TOP_K}": (1.0, TOP_K, 1.0),
    SAMPLED: (1.0, None, NUCLEUS),
}


class Passage(NamedTuple):
    """A place in a held-out topic: what comes before it, and how it goes on."""

    topic: str
    prompt: str
    truth: str


class Traits(NamedTuple):
    """What texts are like."""

    known_words: float  # the share of words that are in the training text
    distinct: float  # the share of runs of `REPEATED` characters that come first in their text
    copied: float  # the share of runs of `COPIED` characters that are in the training text
    loops: float  # the share of texts that end in a loop


class Judged(NamedTuple):
    """Texts after prompts, their bits `[R, N]` for an n-gram model, and what they are like."""

    texts: Sequence[str]
    bits: np.ndarray
    traits: Traits


class Judge:
    """What the training text holds, to compare others with; `ngram` counts it."""

    def __init__(self, texts: Sequence[str], ngram: NGram):
        self.words = {word for text in texts for word in WORD.findall(text)}
        self.runs = {run for text in texts for run in _runs(text, COPIED)}
        self.ngram = ngram

    def judge(self, found: Sequence[Passage], texts: Sequence[str]) -> Judged:
        prompts = [passage.prompt for passage in found]
        bits = [
            self.ngram.bits(prompt + text)[len(prompt) :]
            for prompt, text in zip(prompts, texts, strict=True)
        ]
        return Judged(texts, np.stack(bits), self.traits(texts))

    def traits(self, texts: Sequence[str]) -> Traits:
        """What texts are like; the first and the last word of one may be cut and do not count."""
        words = [word in self.words for text in texts for word in WORD.findall(text)[1:-1]]
        runs = [_runs(text, REPEATED) for text in texts]
        copied = [run in self.runs for text in texts for run in _runs(text, COPIED)]
        return Traits(
            _share(words),
            sum(len(set(own)) for own in runs) / max(1, sum(map(len, runs))),
            _share(copied),
            _share([ends_in_a_loop(text) for text in texts]),
        )


def passages(
    texts: Mapping[str, str], number: int, before: int, after: int, seed: int, option: str
) -> list[Passage]:
    """Places drawn from all texts, a longer text having more of them; none overlaps another."""
    length = before + after
    places = [
        Passage(name, text[start : start + before], text[start + before : start + length])
        for name, text in texts.items()
        for start in range(0, len(text) - length + 1, length)
    ]
    if len(places) < number:
        raise ExperimentError(
            f"{option} must be at most {len(places)}, the held-out passages of that length, "
            f"got {number}"
        )
    chosen = np.random.default_rng(seed).permutation(len(places))[:number]
    return [places[index] for index in sorted(chosen)]


def write(
    model: Sized, params: Any, found: Sequence[Passage], num_steps: int, seed: int
) -> dict[str, list[str]]:
    """What comes after each prompt, for every one of `DECODINGS`."""
    prompts = np.stack([stream_of([passage.prompt + passage.truth]).xs for passage in found])
    prompts = prompts[:, : len(found[0].prompt) + 1]
    written = {}
    for number, (name, (temperature, top_k, nucleus)) in enumerate(DECODINGS.items()):
        made = jr.generate(
            model.layer(),
            params,
            prompts,
            num_steps,
            temperature=temperature,
            top_k=top_k,
            top_p=nucleus,
            key=jax.random.fold_in(jax.random.key(seed), number),
        )
        written[name] = [decode(row) for row in np.asarray(made.tokens)]
    return written


def ends_in_a_loop(text: str) -> bool:
    """Whether the last `LOOP` characters repeat with a period of at most `LONGEST_PERIOD`."""
    end = text[-LOOP:]
    longest = min(LONGEST_PERIOD, len(end) // 2)
    return any(end[period:] == end[:-period] for period in range(1, longest + 1))


def _runs(text, length):
    return [text[i : i + length] for i in range(len(text) - length + 1)]


def _share(flags):
    return float(np.mean(flags)) if flags else float("nan")
