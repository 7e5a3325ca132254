import dataclasses
from typing import Annotated, Literal

from experiments.data.vowels import LENGTHS, NUM_SPEAKERS, NUM_TRAINING
from experiments.frame.options import (
    EACH_ONCE,
    Count,
    EachOnce,
    NonNegative,
    Positive,
    Requirement,
    TrainingOptions,
    require,
)

Model = Literal["elman", "gru", "lstm", "bilstm"]
Readout = Literal["final", "mean"]

NUM_HELD_OUT = 6  # of each speaker, for --evaluate-on validation
LONG_ENOUGH = Requirement(lambda lengths: min(lengths) >= LENGTHS[1], f"at least {LENGTHS[1]}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """Who is speaking? Nine men, 7 to 29 steps of speech, 270 recordings to learn from.

    Trains every model with every readout and every seed, shows accuracy, curves and gradient
    norms, and scores the models that read the final carry once more on recordings with more and
    more padding: with a mask, and without.
    """

    QUICK = {
        "models": ("lstm", "bilstm"),
        "readouts": ("final",),
        "seeds": 1,
        "epochs": 8,
        "padded_lengths": (29, 60),
    }

    models: EachOnce[Model] = ("elman", "gru", "lstm", "bilstm")
    """Which recurrences; bilstm reads in both directions."""
    readouts: EachOnce[Readout] = ("final", "mean")
    """What is classified: the final carry, or the mean of the outputs over the real steps."""
    seeds: Count = 3
    """Trainings of each model, which differ in their initial parameters and their minibatches."""
    epochs: Count = 40
    """Passes through the training recordings. The last epoch counts, whatever came before."""
    num_units: Count = 64
    """Units of each recurrence and direction."""
    batch_size: Count = 27
    """Recordings in a minibatch; must divide the number of training recordings."""
    learning_rate: Positive = 1e-2
    """Learning rate of AdamW at the start; falls to zero along a cosine."""
    weight_decay: NonNegative = 1e-2
    """Weight decay of AdamW."""
    input_noise: NonNegative = 0.3
    """Deviation of the noise added in training, in deviations of the coefficients."""
    padded_lengths: Annotated[tuple[int, ...], EACH_ONCE, LONG_ENOUGH] = (29, 40, 60, 100)
    """Steps to pad to when padding is scored; the longest recording has 29."""
    evaluate_on: Literal["test", "validation"] = "test"
    """The official test split, or 6 training recordings of each speaker held out, to choose by."""

    @property
    def num_training(self) -> int:
        held_out = NUM_HELD_OUT * NUM_SPEAKERS if self.evaluate_on == "validation" else 0
        return NUM_TRAINING - held_out

    def check(self) -> None:
        super().check()
        divides = self.num_training % self.batch_size == 0
        require(divides, "batch_size", self, f"a divisor of {self.num_training}")
