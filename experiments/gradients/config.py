import dataclasses
import math
from typing import Annotated

from experiments.frame.options import (
    POSITIVE,
    Count,
    Counts,
    Positive,
    TrainingOptions,
    at_least,
    each,
    multiple_of,
    require,
    rising,
)

UPDATES_PER_EPOCH = 50
GAINS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0)
JUDGED = 100  # the last updates of a training, by which it is judged


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """Vanishing and exploding gradients, on the product of Jacobians itself.

    The product J(t) ... J(k+1) is held against derivatives, its growth is swept over the spectral
    radius for three activations and two kinds of kernels, gates are put beside the plain cell, and
    float16, bfloat16 and float32 are run until they saturate or overflow. Then trainings: a symbol
    is recalled after a delay, with gradients that are cut off, clipped, or neither. What is
    expected is written in the code before the run.
    """

    QUICK = {
        "gains": (0.5, 0.8, 1.0, 1.4, 2.0),
        "seeds": 1,
        "delays": (4, 12),
        "truncations": (2, 16),
        "updates": 400,
    }

    num_units: Annotated[int, at_least(2)] = 24
    """Units of every cell."""
    num_steps: Annotated[int, at_least(20)] = 100
    """Steps of the sequences that are looked at without training."""
    gains: Annotated[tuple[float, ...], rising(POSITIVE)] = GAINS
    """Spectral radii of the recurrent kernel, below 1, at 1 and above."""
    seeds: Count = 3
    """Draws of parameters and inputs."""
    delays: Counts = (4, 8, 16)
    """Steps from a symbol to its recall."""
    truncations: Counts = (2, 6, 12, 24)
    """Steps a gradient goes back through."""
    clips: Annotated[tuple[float, ...], each(POSITIVE)] = (1.0,)
    """Largest norms of a gradient in gradient descent; each beside no clipping."""
    updates: Annotated[int, multiple_of(JUDGED)] = 800
    """Updates of a training."""
    learning_rate: Positive = 5e-3
    """Learning rate of Adam, where gradients are cut off."""
    sgd_learning_rate: Positive = 0.2
    """That of plain gradient descent, where they are clipped: Adam would rescale them."""

    def check(self) -> None:
        """Also checks that the radii surround 1, and that no linear carry overflows float32."""
        super().check()
        surrounded = 1.0 in self.gains[1:-1]
        require(surrounded, "gains", self, "from below 1 to above 1, with 1 among them")
        most = min(200, 80 / math.log(self.gains[-1]))
        expected = f"at most {most:.0f} for a radius of {self.gains[-1]:g}"
        require(self.num_steps <= most, "num_steps", self, expected)
