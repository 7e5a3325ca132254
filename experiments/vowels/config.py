"""The options of the experiment."""

import dataclasses
import math
from pathlib import Path
from typing import Literal

from experiments.data.vowels import LENGTHS, NUM_SPEAKERS, NUM_TRAINING
from experiments.frame.options import (
    require,
    require_counts,
    require_each_once,
    require_positive,
    require_seed,
)

Model = Literal["elman", "gru", "lstm", "bilstm"]
Readout = Literal["final", "mean"]

NUM_HELD_OUT = 6  # of each speaker, for --evaluate-on validation


@dataclasses.dataclass(frozen=True)
class Config:
    """Who is speaking? Nine men, 7 to 29 steps of speech, 270 recordings to learn from.

    Trains every model with every readout and every seed, shows accuracy, curves and gradient
    norms, and scores the models that read the final carry once more on recordings with more and
    more padding: with a mask, and without.
    """

    models: tuple[Model, ...] = ("elman", "gru", "lstm", "bilstm")
    """Which recurrences; bilstm reads in both directions."""
    readouts: tuple[Readout, ...] = ("final", "mean")
    """What is classified: the final carry, or the mean of the outputs over the real steps."""
    seeds: int = 3
    """Trainings of each model, which differ in their initial parameters and their minibatches."""
    first_seed: int = 0
    """The smallest seed; the others follow it."""
    epochs: int = 40
    """Passes through the training recordings. The last epoch counts, whatever came before."""
    num_units: int = 64
    """Units of each recurrence and direction."""
    batch_size: int = 27
    """Recordings a minibatch; must divide the number of training recordings."""
    learning_rate: float = 1e-2
    """Of AdamW at the start; falls to zero along a cosine."""
    weight_decay: float = 1e-2
    """Of AdamW."""
    input_noise: float = 0.3
    """Deviation of the noise added in training, in deviations of the coefficients."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    padded_lengths: tuple[int, ...] = (29, 40, 60, 100)
    """Steps to pad to when padding is scored; the longest recording has 29."""
    evaluate_on: Literal["test", "validation"] = "test"
    """The official test split, or 6 training recordings of each speaker held out, to choose by."""
    out: Path | None = None
    """A new folder to write to; runs/vowels/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: two models, the final carry, one seed, few epochs."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(
            models=("lstm", "bilstm"),
            readouts=("final",),
            seeds=1,
            epochs=8,
            padded_lengths=(29, 60),
            quick=True,
        )

    @property
    def num_training(self) -> int:
        """Recordings to learn from."""
        held_out = NUM_HELD_OUT * NUM_SPEAKERS if self.evaluate_on == "validation" else 0
        return NUM_TRAINING - held_out

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        require_counts(self, "seeds", "epochs", "num_units", "batch_size")
        require_each_once(self, "models", "readouts", "padded_lengths")
        require_positive(self, "learning_rate", "gradient_clip")
        for name in ("weight_decay", "input_noise"):
            require(0 <= getattr(self, name) < math.inf, name, self, "finite and at least 0")
        require_seed(self)
        lengths = self.padded_lengths
        require(LENGTHS[1] <= min(lengths), "padded_lengths", self, f"at least {LENGTHS[1]}")
        divides = self.num_training % self.batch_size == 0
        require(divides, "batch_size", self, f"a divisor of {self.num_training}")
