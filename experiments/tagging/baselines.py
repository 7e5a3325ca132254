"""What can be said without a recurrence, counted on the training files."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from experiments.tagging.task import Paragraph

CONTEXT = 5


def majority(training: Sequence[Paragraph], asked: Sequence[Paragraph]) -> np.ndarray:
    """The most frequent class, for every character asked about."""
    return last_characters(training, asked, 0)


def character_only(training: Sequence[Paragraph], asked: Sequence[Paragraph]) -> np.ndarray:
    """The most frequent class of the character: all that a model without memory can know."""
    return last_characters(training, asked, 1)


def last_characters(
    training: Sequence[Paragraph], asked: Sequence[Paragraph], size: int = CONTEXT
) -> np.ndarray:
    """The most frequent class behind the last `size` characters, the character itself the last.

    What was never seen in training is asked again with one character less.
    """
    counts: list[dict[bytes, Counter]] = [defaultdict(Counter) for _ in range(size + 1)]
    for paragraph in training:
        text = _text(paragraph)
        for end, label in enumerate(paragraph.labels.tolist(), 1):
            for length, table in enumerate(counts):
                if length <= end:
                    table[text[end - length : end]][label] += 1
    best = [
        {context: max(seen.items(), key=lambda item: (item[1], -item[0]))[0]
         for context, seen in table.items()}
        for table in counts
    ]  # fmt: skip
    return np.concatenate([_told(best, _text(paragraph)) for paragraph in asked])


def _told(best, text):
    told = []
    for end in range(1, len(text) + 1):
        lengths = range(min(end, len(best) - 1), -1, -1)
        contexts = ((length, text[end - length : end]) for length in lengths)
        told.append(next(best[n][context] for n, context in contexts if context in best[n]))
    return np.array(told, np.int32)


def _text(paragraph):
    return paragraph.characters.astype(np.uint8).tobytes()
