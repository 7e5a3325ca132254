import dataclasses
from typing import Annotated

from experiments.data.spelled import LANGUAGES
from experiments.frame.options import (
    Count,
    Positive,
    TrainingOptions,
    among,
    at_least,
    multiple_of,
    require,
    within,
)

FIXED, REVERSED, DOT, ADDITIVE = KINDS = ("fixed", "reversed", "dot", "additive")
UPDATES_PER_EPOCH = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """Reads a number in words of several languages, a letter a step, and writes its digits.

    A fixed vector between encoder and decoder has to hold the whole source; attention looks back
    at every letter. Four models of the same size are compared: the fixed vector, the same with
    the source reversed, and attention with a dot product and with an additive score. They are
    tested on numbers that no language of the training holds, by length of the source, and on
    sources longer than any in training. Beside it the fixed vector is narrowed.
    """

    QUICK = {
        "languages": ("en", "de"),
        "models": (FIXED, DOT),
        "num_digits": 4,
        "numbers": 900,
        "longest": 30,
        "width": 48,
        "kept": (),
        "seeds": 1,
        "updates": 500,
    }

    languages: Annotated[tuple[str, ...], among(LANGUAGES)] = tuple(LANGUAGES)
    """Codes of what to read: en, de, fr, es, it."""
    models: Annotated[tuple[str, ...], among(KINDS)] = KINDS
    """What to train: fixed, reversed, dot, additive."""
    num_digits: Annotated[int, within(2, 6)] = 6
    """Digits of the largest numbers."""
    numbers: Count = 2500
    """Numbers to train on for each number of digits, as far as there are; each in all languages."""
    held_out: Count = 100
    """Numbers to test on for each number of digits, a tenth of those that are few."""
    longest: Annotated[int, at_least(12)] = 48
    """Letters of the longest source in training; longer ones are test alone."""
    width: Annotated[int, at_least(8)] = 80
    """Units of encoder and decoder of the fixed vector; the others get as many parameters."""
    kept: tuple[int, ...] = (4, 16)
    """Units of the fixed vector that reach the decoder, for the probe of the bottleneck; it
    needs the model fixed."""
    seeds: Count = 2
    """Trainings of each model, which differ in initial parameters and minibatches."""
    updates: Annotated[int, multiple_of(UPDATES_PER_EPOCH)] = 1500
    """Updates of a training; a multiple of 50. The last one counts."""
    batch_size: Count = 64
    """Written numbers of an update."""
    learning_rate: Positive = 3e-3
    """Of Adam at the start; half a cosine takes it to 0."""

    def check(self) -> None:
        super().check()
        good = len(set(self.kept)) == len(self.kept)
        good = good and all(1 <= kept < self.width for kept in self.kept)
        require(good, "kept", self, f"from 1 to {self.width - 1}, each once")
