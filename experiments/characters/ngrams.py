"""What needs no network: counts of characters with back-off, and two compressors."""

import bz2
import lzma
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from experiments.data.topics import ALPHABET

START = "\n"


class NGram:
    """The next character from the last `order - 1`, with Witten-Bell interpolation.

        p(c | h) = (count(h c) + distinct(h) p(c | h'))  /  (count(h) + distinct(h))

    h' is h without its oldest character, and below the empty h all characters are alike; Witten
    and Bell 1991. A text starts behind a line break, as it does for the networks.
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
    known = "".join(training).encode("ascii")
    new = "".join(held_out).encode("ascii")
    return 8 * (_size(known + new, compressor) - _size(known, compressor)) / len(new)


def _size(data: bytes, compressor: str) -> int:
    if compressor == "bz2":
        return len(bz2.compress(data, 9))
    return len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
