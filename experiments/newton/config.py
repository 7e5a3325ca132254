import dataclasses
from typing import Annotated, Literal

from experiments.frame.options import (
    POSITIVE,
    Count,
    EachOnce,
    Options,
    RisingCounts,
    at_least,
    each,
)

Cell = Literal["para_gru", "para_lstm", "gru", "lstm"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Iterations of `newton()` against T and against the largest Lyapunov exponent.

    The recurrent kernel of a fresh GRU is multiplied by a scale; the inputs are white noise. Each
    run is one sequence, with the exponent of the same parameters over the longest sequence beside
    it. Wall time is that of this machine, next to the sequential evaluation of the same sequence.
    Then cells that learn to predict text are solved on texts that they have not read, before and
    after their training.
    """

    QUICK = {
        "lengths": (64, 256, 1024),
        "scales": (0.5, 2.0, 8.0),
        "seeds": 2,
        "rounds": 1,
        "updates": 50,
        "text_steps": 256,
    }

    lengths: RisingCounts = (64, 512, 4096)
    """Steps of the sequences."""
    scales: Annotated[tuple[float, ...], each(POSITIVE)] = (0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 8.0)
    """Factors of the recurrent kernel."""
    num_units: Count = 8
    """Units of the GRU."""
    num_features: Count = 4
    """Input features."""
    seeds: Count = 3
    """Draws of parameters and inputs."""
    max_iterations: Count = 100
    """Where the method gives up."""
    rounds: Count = 2
    """How often each run is timed."""
    cells: EachOnce[Cell] = ("para_gru", "para_lstm", "gru")
    """Which cells learn to predict the next character of Python's reference texts."""
    updates: Count = 400
    """Updates of that training, on 16 pieces of 64 characters each."""
    text_units: Count = 32
    """Units of these cells."""
    text_steps: Annotated[int, at_least(2)] = 1024
    """Characters of each of the 8 texts that the fresh and the trained cells read."""
