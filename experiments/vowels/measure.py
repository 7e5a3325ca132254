"""Trains every model with every readout, and scores what padding does to it."""

import itertools
from collections.abc import Iterator

from experiments.data import vowels
from experiments.data.vowels import Recordings
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.vowels.config import NUM_HELD_OUT, Config
from experiments.vowels.train import Trained, train


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[list[Trained]]:
    """One model and readout after the other."""
    recordings = prepare(config)
    results: list[Trained] = []
    with progress_bar(config.epochs * len(config.models) * len(config.readouts)) as bar:
        for model, readout in itertools.product(config.models, config.readouts):
            bar.stage(f"{model}, {readout}")
            trained = train(config, model, readout, recordings, checkpoints, bar.advance)
            bar.finish_stage(f"{model}, {readout}: {trained.summary}")
            yield (results := [*results, trained])


def prepare(config: Config) -> tuple[Recordings, Recordings]:
    """What to learn from and what to score, both in units of what is learned from."""
    training, scored = vowels.load_vowels()
    if config.evaluate_on == "validation":
        training, scored = vowels.held_out(training, NUM_HELD_OUT)
    by = vowels.statistics(training)
    return vowels.normalized(training, by), vowels.normalized(scored, by)
