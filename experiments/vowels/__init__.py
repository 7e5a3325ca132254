"""Who is speaking? Recurrent classifiers on JapaneseVowels, and what padding does to them."""

from collections.abc import Iterator

from experiments.data import vowels
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.progress import progress_bar
from experiments.vowels.config import NUM_HELD_OUT, Config, Model, Readout
from experiments.vowels.report import report
from experiments.vowels.training import Trained, train

__all__ = ["Config", "measure", "report"]


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Trained]:
    """Trains one model and readout after the other and yields each when it is done."""
    recordings = prepare(config)
    kinds: list[tuple[Model, Readout]] = [
        (model, readout) for model in config.models for readout in config.readouts
    ]
    with progress_bar(config.epochs * len(kinds)) as bar:
        for model, readout in kinds:
            bar.stage(f"{model}, {readout}")
            trained = train(config, model, readout, recordings, checkpoints, bar.advance)
            bar.finish_stage(f"{model}, {readout}: {trained.summary}")
            yield trained


def prepare(config: Config) -> tuple[vowels.Recordings, vowels.Recordings]:
    """What to learn from and what to score, both in units of what is learned from."""
    training, scored = vowels.load_vowels()
    if config.evaluate_on == "validation":
        training, scored = vowels.held_out(training, NUM_HELD_OUT)
    by = vowels.statistics(training)
    return vowels.normalized(training, by), vowels.normalized(scored, by)
