import dataclasses
from typing import Annotated

from experiments.frame.options import (
    Count,
    Counts,
    NonNegative,
    Positive,
    TrainingOptions,
    multiple_of,
    within,
)

UPDATES_PER_EPOCH = 25


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """Six checks that every recurrent network should pass, on employment in 15 industries.

    The network is exponential smoothing and a GRU that corrects it. It overfits a short sequence,
    changes padding, mixes sequences on purpose, runs on its own forecasts, compares with baselines
    after a split by time and by industry, and records what a reader needs to judge the training.
    Each check has a criterion that is in the code before the run. All that is open is chosen on the
    two years before the test years.
    """

    QUICK = {
        "seeds": 2,
        "widths": (8,),
        "truncations": (6, 120),
        "aheads": (1,),
        "updates": 150,
    }

    seeds: Count = 5
    """Trainings of each setting, which differ in initial parameters and noise."""
    widths: Counts = (4, 8, 16)
    """Units of the GRU to choose from, with the longest truncation."""
    truncations: Counts = (1, 6, 120)
    """Months a gradient goes back through, to choose from, with the middle width."""
    aheads: Counts = (1, 3)
    """Following months that every output is trained to forecast, to choose from."""
    updates: Annotated[int, multiple_of(UPDATES_PER_EPOCH)] = 300
    """Updates of a training; a multiple of 25. The last one counts."""
    overfit_updates: Annotated[int, multiple_of(UPDATES_PER_EPOCH)] = 1000
    """Updates on the short sequence; a multiple of 25."""
    learning_rate: Positive = 1e-3
    """Learning rate of AdamW."""
    weight_decay: NonNegative = 1e-2
    """Weight decay of AdamW."""
    input_noise: NonNegative = 0.5
    """Deviation of the noise added in training, in mean absolute changes."""
    horizon: Annotated[int, within(2, 12)] = 12
    """Months to forecast without the truth."""
    test_from: Annotated[int, within(2012, 2014)] = 2013
    """The first test year."""
