"""The options of the experiment."""

import dataclasses
import math
from pathlib import Path

from experiments.frame.options import (
    require,
    require_counts,
    require_each_once,
    require_positive,
    require_seed,
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Vanishing and exploding gradients, on the product of Jacobians itself.

    The product J(t) ... J(k+1) is held against derivatives, its growth is swept over the spectral
    radius for three activations and two kinds of kernels, gates are put beside the plain cell, and
    float16, bfloat16 and float32 are run until they saturate or overflow. Then trainings: a symbol
    is recalled after a delay, with gradients that are cut off, clipped, or neither. What is
    expected stands in the code before the run.
    """

    num_units: int = 24
    """Units of every cell."""
    num_steps: int = 100
    """Steps of the sequences that are looked at without training."""
    gains: tuple[float, ...] = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0)
    """Spectral radii of the recurrent kernel, rising, among them 1."""
    seeds: int = 3
    """Draws of parameters and inputs."""
    first_seed: int = 0
    """The smallest seed; the others follow it."""
    delays: tuple[int, ...] = (4, 8, 16)
    """Steps from a symbol to its recall."""
    truncations: tuple[int, ...] = (2, 6, 12, 24)
    """Steps a gradient goes back through."""
    clips: tuple[float, ...] = (1.0,)
    """Largest norms of a gradient; each beside no clipping."""
    updates: int = 800
    """Updates of a training; a multiple of 100."""
    learning_rate: float = 5e-3
    """Of Adam, where gradients are cut off."""
    sgd_learning_rate: float = 0.2
    """Of plain gradient descent, where they are clipped: Adam would rescale them."""
    out: Path | None = None
    """A new folder to write to; runs/gradients/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: fewer radii, seeds, delays, truncations and updates."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(
            gains=(0.5, 0.8, 1.0, 1.4, 2.0),
            seeds=1,
            delays=(4, 12),
            truncations=(2, 16),
            updates=400,
            quick=True,
        )

    @property
    def all_seeds(self) -> range:
        """Every seed."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        require_counts(self, "seeds")
        require(self.num_units >= 2, "num_units", self, "at least 2")
        require(self.num_steps >= 20, "num_steps", self, "at least 20")
        require_seed(self)
        rising = all(a < b for a, b in zip(self.gains, self.gains[1:], strict=False))
        good = rising and 1.0 in self.gains and 0 < self.gains[0] and self.gains[-1] < math.inf
        require(good, "gains", self, "rising, finite, above 0, with 1 among them")
        # No linear carry may overflow float32.
        most = min(200, 80 / max(math.log(self.gains[-1]), 1e-3))
        expected = f"at most {most:.0f} for a radius of {self.gains[-1]:g}"
        require(self.num_steps <= most, "num_steps", self, expected)
        for name in ("delays", "truncations"):
            require_each_once(self, name)
            require(min(getattr(self, name)) >= 1, name, self, "from 1 on")
        require_each_once(self, "clips")
        good = all(0 < clip < math.inf for clip in self.clips)
        require(good, "clips", self, "finite and above 0")
        require(self.updates >= 100 and self.updates % 100 == 0, "updates", self, "100, 200, ...")
        require_positive(self, "learning_rate", "sgd_learning_rate")
