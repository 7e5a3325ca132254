import dataclasses
from typing import Annotated, Literal

from experiments.cost.model import MODELS
from experiments.frame.options import (
    Count,
    Positive,
    Requirement,
    ResumableOptions,
    among,
    at_least,
    rising,
)

LENGTHS = tuple(2**power for power in range(6, 15))
TWO_OR_MORE = Requirement(lambda lengths: len(lengths) >= 2, "two or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ResumableOptions):
    """Time and memory of RNN, state space and attention against T, beside what is predicted.

    Models of one size read one sequence, and put something out at every step; an Elman network
    that is judged at its end alone shows what checkpoints at √T steps save. Measured are the time
    of the loss with its gradient, the temporary memory that XLA plans for it, the bytes of the
    carry, and the time of one streamed token. Predicted curves come from shapes alone; times and
    XLA's memory get one constant each, fitted on the upper half of the lengths. What would need
    more than the bound is not run, and the table says how much it would have needed.
    """

    QUICK = {
        "models": ("elman", "lru", "attention", "elman_end", "elman_sqrt"),
        "lengths": LENGTHS[:4],
        "rounds": 3,
        "tokens": 20,
    }

    models: Annotated[tuple[str, ...], among(MODELS)] = MODELS
    """Names of models."""
    lengths: Annotated[tuple[int, ...], rising(at_least(2)), TWO_OR_MORE] = LENGTHS
    """Steps T, rising; attention sees all of them."""
    num_features: Count = 16
    """Input features; the two models that are judged at their end read one."""
    num_params: Count = 10000
    """Parameters of each model, readout included; the nearest width is taken."""
    rounds: Count = 5
    """How often each time is measured; the median counts."""
    clock: Literal["wall", "processor"] = "wall"
    """Seconds that passed, or seconds of all cores together: those to take on a busy machine."""
    tokens: Count = 50
    """Streamed tokens of a round."""
    memory_bound: Positive = 4.0
    """GiB of temporary memory beyond which a gradient is compiled, but not run."""
