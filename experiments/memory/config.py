import dataclasses
from typing import Annotated

from experiments.frame.options import (
    Count,
    Counts,
    Positive,
    Requirement,
    TrainingOptions,
    among,
    at_least,
    multiple_of,
    require,
    within,
)
from experiments.memory.task import MIXERS, NUM_KEPT, TASKS

UPDATES_PER_EPOCH = 25
Updates = Annotated[int, multiple_of(UPDATES_PER_EPOCH)]
WITH_ONE = Requirement(lambda values: 1 in values, "with a 1 among them")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """What a state of fixed width can carry, by counting and by learning.

    First by counting: a state of H numbers with p bits each has 2^(p H) values, so of the 2^n
    binary histories of n > p H steps some end in the same state. All histories are run through
    cells whose carry is rounded to p bits, and the states are counted; one bit is enough for
    parity. Then by learning: parity, copying, selective copy, induction and adding, by ten models
    and two twins in the same two blocks with as many parameters, on short rows; all are asked on
    rows up to eight times as long. What is known to be learnt, and to hold on longer rows, is in
    the code before the run.
    """

    QUICK = {
        "tasks": ("parity",),
        "models": ("gru", "positive", "signed"),
        "parity_seeds": 2,
        "num_blocks": 1,
        "history_bits": 10,
        "updates": 300,
        "state_bits": (1, 2),
        "state_updates": 250,
    }

    tasks: Annotated[tuple[str, ...], among(TASKS)] = tuple(TASKS)
    """Names of tasks."""
    models: Annotated[tuple[str, ...], among(MIXERS)] = tuple(MIXERS)
    """Names of models."""
    parity_seeds: Count = 6
    """Trainings of every model on parity, which differ in initial parameters and rows."""
    seeds: Count = 1
    """Trainings of every model on every other task."""
    num_params: Count = 8000
    """Parameters of a model, to be met as near as its width allows."""
    num_blocks: Count = 2
    """Blocks on each other."""
    train_steps: Annotated[int, at_least(2 * NUM_KEPT)] = 16
    """Steps of the longest rows to learn from; the shorter ones come first."""
    longer: Annotated[Counts, WITH_ONE] = (1, 2, 4, 8)
    """How many times as long as these the rows to be asked on are."""
    updates: Updates = 800
    """Updates of a training; a multiple of 25."""
    batch_size: Count = 32
    """Rows an update."""
    test_rows: Count = 64
    """Rows of each length to be asked on."""
    learning_rate: Positive = 5e-3
    """Of Adam at its highest; it falls to zero along a cosine."""
    state_bits: Counts = (1, 2, 3)
    """Bits a number of the carry is rounded to."""
    state_units: Counts = (2, 4)
    """Numbers in the carry that is rounded."""
    history_bits: Annotated[int, within(1, 20)] = 16
    """Bits of the longest histories, all of which are run through these cells."""
    state_updates: Updates = 1500
    """Updates of the cells with a rounded carry; a multiple of 25."""

    @property
    def test_lengths(self) -> list[int]:
        """Steps of the rows to be asked on; the first is that of the longest learnt from."""
        return [self.train_steps * times for times in sorted(self.longer)]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return [(units, bits) for units in self.state_units for bits in self.state_bits]

    def seeds_of(self, task: str) -> range:
        number = self.parity_seeds if task == "parity" else self.seeds
        return range(self.first_seed, self.first_seed + number)

    def check(self) -> None:
        """Also checks that histories are longer than what the largest carry can hold."""
        super().check()
        most = max(self.state_bits) * max(self.state_units)
        require(most < self.history_bits, "state_bits", self, "below --history-bits, times units")
