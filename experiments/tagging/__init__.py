"""The class of every character of Python source: forwards or both ways, packed or padded."""

from collections.abc import Iterator
from typing import Any

from experiments.data.source import digest
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.tagging.baselines import CONTEXT, character_only, last_characters, majority
from experiments.tagging.config import Config
from experiments.tagging.layouts import compare
from experiments.tagging.model import DIRECTIONS
from experiments.tagging.report import report
from experiments.tagging.results import Baselines, accuracy, truth_of
from experiments.tagging.task import Task, make_task
from experiments.tagging.training import train

__all__ = ["Config", "measure", "report"]

NUM_LAYOUTS = 5  # of both directions


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Any]:
    """Counts, trains both directions, and sets packed rows beside padded ones."""
    task = make_task(config.quick, config.row_length)
    total = len(DIRECTIONS) * (config.seeds * config.epochs + config.rounds) + NUM_LAYOUTS
    with progress_bar(total) as bar:
        bar.stage("counting")
        yield (counted := count(task))
        for direction in DIRECTIONS:
            bar.stage(direction)
            for tagged in train(config, direction, task, checkpoints, bar.advance):
                share = 100 * accuracy(counted.truth.labels, tagged.predicted)
                bar.finish_stage(f"{direction}, seed {tagged.seed}: {share:.2f} %")
                yield tagged
        for direction in DIRECTIONS:
            bar.stage(f"{direction}: packed and padded")
            yield compare(config, direction, task, bar.advance, direction == DIRECTIONS[0])


def count(task: Task) -> Baselines:
    """What needs no recurrence, and what the data are."""
    known, asked = task.training.paragraphs, task.test.paragraphs
    parts = zip(("training", "validation", "test"), task, strict=True)
    about = {
        name: {
            "files": [source.name for source in part.sources],
            "digest": digest(part.sources),
            "characters": part.num_characters,
            "paragraphs": len(part.paragraphs),
            "dropped": part.dropped,
        }
        for name, part in parts
    }
    predicted = {
        "majority": majority(known, asked),
        "character alone": character_only(known, asked),
        f"last {CONTEXT} characters": last_characters(known, asked),
    }
    files = [source.name for source in task.test.sources]
    return Baselines(truth_of(asked), predicted, files, about, task.training.lengths)
