"""The options of the experiment."""

import dataclasses
import math
from pathlib import Path

from experiments.frame.options import require, require_counts, require_positive, require_seed

FIRST_TEST_YEARS = (2012, 2014)


@dataclasses.dataclass(frozen=True)
class Config:
    """Six checks that every recurrent network should pass, on employment in 15 industries.

    It overfits a short sequence, changes padding, mixes sequences on purpose, runs on its own
    forecasts, compares with baselines behind a split by time and by industry, and records what a
    reader needs to judge the training. Each check has a criterion that stands in the code before
    the run. Width and truncation are chosen on the two years in front of the test years.
    """

    seeds: int = 5
    """Trainings of each setting, which differ in initial parameters and noise."""
    first_seed: int = 0
    """The smallest seed; the others follow it."""
    widths: tuple[int, ...] = (8, 16, 32)
    """Units of the GRU to choose from, with the longest truncation."""
    truncations: tuple[int, ...] = (1, 6, 120)
    """Months a gradient goes back through, to choose from, with the middle width."""
    updates: int = 300
    """Updates of a training; a multiple of 25. The last one counts."""
    overfit_updates: int = 1000
    """Updates on the short sequence; a multiple of 25."""
    learning_rate: float = 3e-3
    """Of AdamW."""
    weight_decay: float = 1e-2
    """Of AdamW."""
    input_noise: float = 0.5
    """Deviation of the noise added in training, in mean absolute changes."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    horizon: int = 12
    """Months to forecast without the truth."""
    test_from: int = 2013
    """The first test year."""
    out: Path | None = None
    """A new folder to write to; runs/minimal/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: fewer seeds, settings and updates."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(seeds=2, widths=(16,), truncations=(6, 120), updates=150, quick=True)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        for name in ("updates", "overfit_updates"):
            value = getattr(self, name)
            require(value >= 25 and value % 25 == 0, name, self, "a positive multiple of 25")
        require_counts(self, "seeds")
        require_seed(self)
        for name in ("widths", "truncations"):
            values = getattr(self, name)
            good = 0 < len(values) == len(set(values)) and min(values) >= 1
            require(good, name, self, "one or more from 1 on, each once")
        require_positive(self, "learning_rate", "gradient_clip")
        for name in ("weight_decay", "input_noise"):
            require(0 <= getattr(self, name) < math.inf, name, self, "finite and at least 0")
        require(2 <= self.horizon <= 12, "horizon", self, "from 2 to 12")
        low, high = FIRST_TEST_YEARS
        require(low <= self.test_from <= high, "test_from", self, f"from {low} to {high}")
