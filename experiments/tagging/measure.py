"""Counts, trains every model, and sets packed rows beside padded ones."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.frame.stats import mean_and_spread
from experiments.tagging.config import Config
from experiments.tagging.layouts import Comparison, compare
from experiments.tagging.task import CLASSES, Paragraph, Task, make_task
from experiments.tagging.train import MODELS, Tagged, train

NUM_LAYOUTS = 7  # of all models
# Names, and how many characters are looked at, the character itself the last of them.
CONTEXTS = {"majority": 0, "character alone": 1, "last 5 characters": 5}


class Results(NamedTuple):
    task: Task
    truth: Paragraph  # all test paragraphs as one
    counted: Mapping[str, np.ndarray]  # classes [N] of its characters without a recurrence
    tagged: tuple[Tagged, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    @property
    def good(self) -> dict[str, np.ndarray]:
        """What the seeds that did not fail say, `[S, N]`, of every model that has one."""
        return {one.model: one.good for one in self.tagged if len(one.good)}


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    """The counts, then one model after the other trained, and then compared."""
    task = make_task(config.quick, config.row_length)
    total = len(MODELS) * (config.seeds * config.epochs + config.rounds) + NUM_LAYOUTS
    with progress_bar(total) as bar:
        bar.stage("counting")
        results = count(task)
        yield results

        def advance(epochs):
            bar.advance(config.seeds * epochs)

        for name in MODELS:
            bar.stage(name)
            tagged = train(config, name, task, checkpoints, advance)
            percent = 100 * accuracy(results.truth.labels, tagged.good)
            bar.finish_stage(f"{name}: {mean_and_spread(percent, 2)} %")
            yield (results := results._replace(tagged=(*results.tagged, tagged)))
        for name in MODELS:
            bar.stage(f"{name}: packed and padded")
            compared = compare(config, name, task.training.paragraphs, bar.advance)
            yield (results := results._replace(comparisons=(*results.comparisons, compared)))


def count(task: Task) -> Results:
    known, asked = task.training.paragraphs, task.test.paragraphs
    truth = Paragraph._make(map(np.concatenate, zip(*asked, strict=True)))
    counted = {name: most_frequent(known, asked, size) for name, size in CONTEXTS.items()}
    return Results(task, truth, counted)


def most_frequent(known: Sequence[Paragraph], asked: Sequence[Paragraph], size: int) -> np.ndarray:
    """The most frequent class after `size` characters, or fewer where those were never seen."""
    counts: list[dict[bytes, Counter]] = [defaultdict(Counter) for _ in range(size + 1)]
    for paragraph in known:
        text = _text(paragraph)
        for end, label in enumerate(paragraph.labels.tolist(), 1):
            for length, table in enumerate(counts[: end + 1]):
                table[text[end - length : end]][label] += 1
    best = {
        context: max(seen.items(), key=lambda item: (item[1], -item[0]))[0]
        for table in counts
        for context, seen in table.items()
    }
    told = []
    for text in map(_text, asked):
        for end in range(1, len(text) + 1):
            contexts = (text[start:end] for start in range(max(0, end - size), end + 1))
            told.append(next(best[context] for context in contexts if context in best))
    return np.array(told, np.int32)


def _text(paragraph):
    return paragraph.characters.astype(np.uint8).tobytes()


def accuracy(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """The share of characters, `[..., N] -> [...]`."""
    return (labels == predicted).mean(axis=-1)


def recall(truth: Paragraph, predicted: np.ndarray, chosen: np.ndarray) -> float:
    """The share of chosen characters that seeds `[S, N]` tell right, in %, their mean."""
    return 100 * float(accuracy(truth.labels[chosen], predicted[:, chosen]).mean())


def whole_tokens(truth: Paragraph, predicted: np.ndarray) -> np.ndarray:
    """The share of tokens of two characters or more that are right throughout, `[S, N] -> [S]`."""
    inside = truth.length >= 2
    right = (predicted == truth.labels)[..., inside]
    starts = np.flatnonzero(truth.position[inside] == 0)
    return np.logical_and.reduceat(right, starts, axis=-1).mean(axis=-1)


def confusion_counts(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """How often the class of the row was called that of the column, `[classes, classes]`."""
    size = len(CLASSES)
    return np.bincount(labels * size + predicted, minlength=size**2).reshape(size, size)


def f1_scores(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """2 TP / (2 TP + FP + FN) of every class; NaN for one that is neither there nor told."""
    counts = confusion_counts(labels, predicted)
    both = counts.sum(axis=0) + counts.sum(axis=1)
    return 2 * np.diag(counts) / np.where(both > 0, both, np.nan)
