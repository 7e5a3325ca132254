"""The options of the experiment."""

import dataclasses
from pathlib import Path

from experiments.data.spelled import LANGUAGES
from experiments.frame.options import (
    require,
    require_counts,
    require_each_once,
    require_positive,
    require_seed,
)

FIXED, REVERSED, DOT, ADDITIVE = KINDS = ("fixed", "reversed", "dot", "additive")
UPDATES_PER_EPOCH = 50


@dataclasses.dataclass(frozen=True)
class Config:
    """Reads a number in words of several languages, a letter a step, and writes its digits.

    A fixed vector between encoder and decoder has to hold the whole source; attention looks back
    at every letter. Four models of the same size are compared: the fixed vector, the same with
    the source reversed, and attention with a dot product and with an additive score. They are
    tested on numbers that no language of the training holds, by length of the source, and on
    sources longer than any in training. Beside it the fixed vector is narrowed.
    """

    languages: tuple[str, ...] = tuple(LANGUAGES)
    """Codes of what to read: en, de, fr, es, it."""
    models: tuple[str, ...] = KINDS
    """What to train: fixed, reversed, dot, additive."""
    num_digits: int = 6
    """Digits of the largest numbers."""
    numbers: int = 2500
    """Numbers to train on for each number of digits, as far as there are; each in all languages."""
    held_out: int = 100
    """Numbers to test on for each number of digits, a tenth of those that are few."""
    longest: int = 48
    """Letters of the longest source in training; longer ones are test alone."""
    width: int = 80
    """Units of encoder and decoder of the fixed vector; the others get as many parameters."""
    kept: tuple[int, ...] = (4, 16)
    """Units of the fixed vector that reach the decoder, for the probe of the bottleneck; it
    needs the model fixed."""
    seeds: int = 2
    """Trainings of each model, which differ in initial parameters and minibatches."""
    first_seed: int = 0
    """The smallest seed; the others follow it. It also draws the numbers."""
    updates: int = 1500
    """Updates of a training; a multiple of 50. The last one counts."""
    batch_size: int = 64
    """Written numbers of an update."""
    learning_rate: float = 3e-3
    """Of Adam at the start; half a cosine takes it to 0."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    out: Path | None = None
    """A new folder to write to; runs/translate/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: two languages, two models, smaller numbers, fewer updates, no probe."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(
            languages=("en", "de"),
            models=(FIXED, DOT),
            num_digits=4,
            numbers=900,
            longest=30,
            width=48,
            kept=(),
            seeds=1,
            updates=500,
            quick=True,
        )

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        require_each_once(self, "languages")
        known = set(self.languages) <= set(LANGUAGES)
        require(known, "languages", self, f"some of {' '.join(LANGUAGES)}")
        require_each_once(self, "models")
        known = set(self.models) <= set(KINDS)
        require(known, "models", self, f"some of {' '.join(KINDS)}")
        require(2 <= self.num_digits <= 6, "num_digits", self, "from 2 to 6")
        require_counts(self, "numbers", "held_out", "seeds", "batch_size")
        require(self.longest >= 12, "longest", self, "at least 12")
        require(self.width >= 8, "width", self, "at least 8")
        good = len(set(self.kept)) == len(self.kept) and all(
            1 <= kept < self.width for kept in self.kept
        )
        require(good, "kept", self, f"from 1 to {self.width - 1}, each once")
        require_seed(self)
        good = self.updates >= UPDATES_PER_EPOCH and self.updates % UPDATES_PER_EPOCH == 0
        require(good, "updates", self, f"a positive multiple of {UPDATES_PER_EPOCH}")
        require_positive(self, "learning_rate", "gradient_clip")
