import dataclasses
from typing import Annotated, Literal

from experiments.frame.options import (
    POSITIVE,
    Count,
    EachOnce,
    NonNegative,
    Positive,
    TrainingOptions,
    at_least,
    each,
    multiple_of,
)

UPDATES_PER_EPOCH = 50

Cell = Literal["elman", "gru"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """Fixed points of networks that were trained to remember, and what they say of the task.

    An Elman network and a GRU learn to hold three bits, to add up evidence, and to add it up with a
    leak of a known time constant. Then the input is held at zero: the fixed points are found, and
    the eigenvalues of their Jacobians compared with what the task asks for. What is expected is
    written in the code before the run.
    """

    QUICK = {
        "cells": ("gru",),
        "time_constants": (10.0,),
        "seeds": 1,
        "updates": 400,
        "num_starts": 128,
    }

    cells: EachOnce[Cell] = ("elman", "gru")
    """Which recurrences."""
    time_constants: Annotated[tuple[float, ...], each(POSITIVE)] = (10.0, 30.0)
    """Steps in which the leaky sums fall by a factor of e."""
    seeds: Count = 3
    """Trainings of each network, which differ in initial parameters and minibatches."""
    num_units: Count = 24
    """Units of the recurrence."""
    num_steps: Annotated[int, at_least(20)] = 60
    """Steps of a sequence."""
    updates: Annotated[int, multiple_of(UPDATES_PER_EPOCH)] = 800
    """Updates of a training; a multiple of 50."""
    batch_size: Count = 32
    """Sequences in a minibatch."""
    learning_rate: Positive = 1e-2
    """Learning rate of AdamW at the start; falls to zero along a cosine."""
    weight_decay: NonNegative = 0.3
    """Weight decay of AdamW; it stills what the task has no use for."""
    num_starts: Count = 512
    """Mixtures of two states of trajectories, from which fixed points are looked for."""
    noise: Positive = 0.2
    """Deviation of the noise added to these states, in units of a coordinate."""
