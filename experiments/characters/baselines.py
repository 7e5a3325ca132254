"""What needs no network: counts of characters with back-off, and two compressors."""

import bz2
import functools
import lzma
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from experiments.data.topics import ALPHABET

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
