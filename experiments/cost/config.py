"""The options of the experiment."""

import dataclasses
from pathlib import Path
from typing import Literal

from experiments.cost.models import MODELS
from experiments.frame.options import require, require_counts, require_each_once, require_positive

LENGTHS = tuple(2**power for power in range(6, 15))
QUICK_MODELS = ("elman", "lru", "attention", "elman_end", "elman_sqrt")


@dataclasses.dataclass(frozen=True)
class Config:
    """Time and memory of RNN, state space and attention against T, beside what is predicted.

    Models of one size read one sequence, and put something out at every step; an Elman network
    that is judged at its end alone shows what checkpoints at √T steps save. Measured are the time
    of the loss with its gradient, the temporary memory that XLA plans for it, the bytes of the
    carry, and the time of one streamed token. Predicted curves come from shapes alone; times and
    XLA's memory get one constant each, fitted on the upper half of the lengths. What would need
    more than the bound is not run, and the table says how much it would have needed.
    """

    models: tuple[str, ...] = tuple(MODELS)
    """Names of models."""
    lengths: tuple[int, ...] = LENGTHS
    """Steps T, rising; attention sees all of them."""
    num_features: int = 16
    """Input features; the two models that are judged at their end read one."""
    num_params: int = 10000
    """Parameters of each model, readout included; the nearest width is taken."""
    rounds: int = 5
    """How often each time is measured; the median counts."""
    clock: Literal["wall", "processor"] = "wall"
    """Seconds that passed, or seconds of all cores together: those to take on a busy machine."""
    tokens: int = 50
    """Streamed tokens of a round."""
    memory_bound: float = 4.0
    """GiB of temporary memory beyond which a gradient is compiled, but not run."""
    out: Path | None = None
    """A new folder to write to; runs/cost/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: five models, up to 512 steps."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(models=QUICK_MODELS, lengths=LENGTHS[:4], rounds=3, tokens=20, quick=True)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        require_each_once(self, "models")
        require(set(self.models) <= set(MODELS), "models", self, f"among {' '.join(MODELS)}")
        rising = all(a < b for a, b in zip(self.lengths, self.lengths[1:], strict=False))
        good = rising and len(self.lengths) >= 2 and self.lengths[0] >= 2
        require(good, "lengths", self, "two or more, rising, from 2 on")
        require_counts(self, "num_features", "num_params", "rounds", "tokens")
        require_positive(self, "memory_bound")
