"""The options of the experiment."""

import dataclasses
import math
from pathlib import Path

from experiments.digits.task import NUM_TRAINING
from experiments.frame.models import MIXERS
from experiments.frame.options import (
    require,
    require_counts,
    require_each_once,
    require_positive,
    require_seed,
)

LONGEST_CONTEXT = 16384


@dataclasses.dataclass(frozen=True)
class Config:
    """RNNs, state-space models and attention at one size, on digits read pixel by pixel.

    A digit is a sequence of 64 numbers, in the order of the page or in one fixed random order, and
    its label is read from the output of the last step. Every model stands in the same block, with
    as nearly as possible the same number of parameters, the same optimizer and the same epochs.
    What is measured stands beside what is said of the three families: accuracy, time and memory of
    an update, sequential depth, carry, time a token in streaming, reach of the first pixels, and
    how time and memory grow with length.
    """

    models: tuple[str, ...] = (*MIXERS, "s4d")
    """Which models."""
    num_params: int = 8000
    """Parameters of each model, as nearly as its width allows."""
    num_blocks: int = 1
    """Blocks of mixer and perceptron."""
    seeds: int = 2
    """Trainings of each model and order; they differ in initial parameters and minibatches."""
    first_seed: int = 0
    """The smallest seed; the others follow it."""
    permutation_seed: int = 92916
    """Of the order of the pixels in the permuted digits; the same for all models and seeds."""
    split_seed: int = 0
    """Of what is trained on, validated on and tested on."""
    epochs: int = 25
    """Passes through the training digits. The last one counts, whatever came before."""
    batch_size: int = 50
    """Digits a minibatch; must divide 1100."""
    learning_rate: float = 6e-3
    """Of AdamW at its peak, after one epoch; falls to zero along a cosine."""
    ssm_rate: float = 0.25
    """The learning rate of eigenvalues and steps of linear recurrences, relative to the others."""
    weight_decay: float = 1e-2
    """Of AdamW; there is none on eigenvalues and steps."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    rounds: int = 7
    """Rounds in which every model is timed, in processor time."""
    lengths: tuple[int, ...] = (128, 512, 2048)
    """Steps of the sequences on which growth is measured, with one model of each family."""
    out: Path | None = None
    """A new folder to write to; runs/digits/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: one model of each family, one seed, few epochs."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(
            models=("gru", "s5", "attention"),
            num_params=3000,
            seeds=1,
            epochs=2,
            rounds=2,
            lengths=(64, 256),
            quick=True,
        )

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        require_each_once(self, "models", "lengths")
        known = (*MIXERS, "s4d")
        wanted = f"among {' '.join(known)}"
        require(set(self.models) <= set(known), "models", self, wanted)
        require_counts(self, "num_blocks", "seeds", "epochs", "batch_size", "rounds")
        require(self.num_params >= 1000, "num_params", self, "at least 1000")
        for name in ("first_seed", "permutation_seed", "split_seed"):
            require_seed(self, name)
        divides = NUM_TRAINING % self.batch_size == 0
        require(divides, "batch_size", self, f"a divisor of {NUM_TRAINING}")
        require_positive(self, "learning_rate", "ssm_rate", "gradient_clip")
        decay = 0 <= self.weight_decay < math.inf
        require(decay, "weight_decay", self, "finite and at least 0")
        rising = len(self.lengths) > 1 and list(self.lengths) == sorted(self.lengths)
        inside = 1 <= min(self.lengths) and max(self.lengths) <= LONGEST_CONTEXT
        expected = f"two or more, rising, from 1 to {LONGEST_CONTEXT}"
        require(rising and inside, "lengths", self, expected)
