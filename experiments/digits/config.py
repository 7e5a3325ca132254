import dataclasses
from typing import Annotated

from experiments.digits.task import NUM_TRAINING
from experiments.frame.models import MIXERS
from experiments.frame.options import (
    Count,
    NonNegative,
    Positive,
    Requirement,
    Seed,
    TrainingOptions,
    among,
    at_least,
    rising,
    within,
)

LONGEST_CONTEXT = 16384
MODELS = (*MIXERS, "s4d")
DIVISOR = Requirement(lambda n: n >= 1 and NUM_TRAINING % n == 0, f"a divisor of {NUM_TRAINING}")
TWO = Requirement(lambda lengths: len(lengths) > 1, "two or more")
Lengths = Annotated[tuple[int, ...], TWO, rising(within(1, LONGEST_CONTEXT))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """RNNs, state-space models and attention at one size, on digits read pixel by pixel.

    A digit is a sequence of 64 numbers, in the order of the page or in one fixed random order, and
    its label is read from the output of the last step. Every model is in the same block, with
    as nearly as possible the same number of parameters, the same optimizer and the same epochs.
    What is said of the three families is compared with what is measured: accuracy, time and memory
    of an update, sequential depth, carry, time a token in streaming, reach of the first pixels, and
    how time and memory grow with length.
    """

    QUICK = {
        "models": ("gru", "s5", "attention"),
        "num_params": 3000,
        "seeds": 1,
        "epochs": 2,
        "rounds": 2,
        "lengths": (64, 256),
    }

    models: Annotated[tuple[str, ...], among(MODELS)] = MODELS
    """Which models."""
    num_params: Annotated[int, at_least(1000)] = 8000
    """Parameters of each model, as nearly as its width allows."""
    num_blocks: Count = 1
    """Blocks of mixer and perceptron."""
    seeds: Count = 2
    """Trainings of each model and order; they differ in initial parameters and minibatches."""
    permutation_seed: Seed = 92916
    """Seed of the order of the pixels in the permuted digits; the same for all models and seeds."""
    split_seed: Seed = 0
    """Seed of what is trained on, validated on and tested on."""
    epochs: Count = 25
    """Passes through the training digits. The last one counts, whatever came before."""
    batch_size: Annotated[int, DIVISOR] = 50
    """Digits in a minibatch; must divide 1100."""
    learning_rate: Positive = 6e-3
    """Learning rate of AdamW at its peak, after one epoch; falls to zero along a cosine."""
    ssm_rate: Positive = 0.25
    """The learning rate of eigenvalues and steps of linear recurrences, relative to the others."""
    weight_decay: NonNegative = 1e-2
    """Weight decay of AdamW; there is none on eigenvalues and steps."""
    rounds: Count = 7
    """Rounds in which every model is timed, in processor time."""
    lengths: Lengths = (128, 512, 2048)
    """Steps of the sequences on which growth is measured, with one model of each family."""
