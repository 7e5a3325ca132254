"""The options of the experiment."""

import dataclasses
from pathlib import Path

from experiments.frame.options import (
    require,
    require_counts,
    require_each_once,
    require_positive,
    require_seed,
)
from experiments.memory.networks import MIXERS
from experiments.memory.tasks import NUM_KEPT, TASKS

UPDATES_PER_CALL = 25


@dataclasses.dataclass(frozen=True)
class Config:
    """What a state of fixed width can carry, by counting and by learning.

    First by counting: a state of H numbers with p bits each has 2^(p H) values, so of the 2^n
    binary histories of n > p H steps some end in the same state. All histories are run through
    cells whose carry is rounded to p bits, and the states are counted; one bit is enough for
    parity. Then by learning: parity, copying, selective copy, induction and adding, by ten models
    and two twins in the same two blocks with as many parameters, on short rows; all are asked on
    rows up to eight times as long. What is known to be learnt, and to hold on longer rows, stands
    in the code before the run.
    """

    tasks: tuple[str, ...] = tuple(TASKS)
    """Names of tasks."""
    models: tuple[str, ...] = tuple(MIXERS)
    """Names of models."""
    parity_seeds: int = 6
    """Trainings of every model on parity, which differ in initial parameters and rows."""
    seeds: int = 1
    """Trainings of every model on every other task."""
    first_seed: int = 0
    """The smallest seed; the others follow it."""
    num_params: int = 8000
    """Parameters of a model, to be met as near as its width allows."""
    num_blocks: int = 2
    """Blocks on each other."""
    train_steps: int = 16
    """Steps of the longest rows to learn from; the shorter ones come first."""
    longer: tuple[int, ...] = (1, 2, 4, 8)
    """How many times as long as these the rows to be asked on are."""
    updates: int = 800
    """Updates of a training; a multiple of 25."""
    batch_size: int = 32
    """Rows an update."""
    test_rows: int = 64
    """Rows of each length to be asked on."""
    learning_rate: float = 5e-3
    """Of Adam at its highest; it falls to zero along a cosine."""
    gradient_clip: float = 1.0
    """Largest global norm of a gradient."""
    state_bits: tuple[int, ...] = (1, 2, 3)
    """Bits a number of the carry is rounded to."""
    state_units: tuple[int, ...] = (2, 4)
    """Numbers in the carry that is rounded."""
    history_bits: int = 16
    """Bits of the longest histories, all of which are run through these cells."""
    state_updates: int = 1500
    """Updates of the cells with a rounded carry; a multiple of 25."""
    out: Path | None = None
    """A new folder to write to; runs/memory/TIME when left out."""
    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""
    quick: bool = False
    """A short form: three models of one block on parity, two seeds, fewer updates."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(
            tasks=("parity",),
            models=("gru", "positive", "signed"),
            parity_seeds=2,
            num_blocks=1,
            history_bits=10,
            updates=300,
            state_bits=(1, 2),
            state_updates=250,
            quick=True,
        )

    @property
    def replicas(self) -> list[tuple[str, int]]:
        """Task and seed of the trainings of a model, which run side by side."""
        return [
            (task, self.first_seed + number)
            for task in self.tasks
            for number in range(self.parity_seeds if task == "parity" else self.seeds)
        ]

    def places(self, task: str) -> list[int]:
        """Where the trainings of a task are among all."""
        return [place for place, (other, _) in enumerate(self.replicas) if other == task]

    @property
    def test_lengths(self) -> list[int]:
        """Steps of the rows to be asked on."""
        return [self.train_steps * times for times in sorted(self.longer)]

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        for name in ("updates", "state_updates"):
            value = getattr(self, name)
            expected = f"a positive multiple of {UPDATES_PER_CALL}"
            require(value >= 1 and value % UPDATES_PER_CALL == 0, name, self, expected)
        for name, known in (("tasks", TASKS), ("models", MIXERS)):
            require_each_once(self, name)
            names = getattr(self, name)
            require(set(names) <= set(known), name, self, f"of {', '.join(known)}")
        for name in ("longer", "state_bits", "state_units"):
            require_each_once(self, name)
            require(min(getattr(self, name)) >= 1, name, self, "from 1 on")
        require(1 in self.longer, "longer", self, "with a 1 among them")
        require_counts(
            self, "parity_seeds", "seeds", "num_params", "num_blocks", "batch_size", "test_rows"
        )
        require_seed(self)
        require_positive(self, "learning_rate", "gradient_clip")
        require(self.train_steps >= 2 * NUM_KEPT, "train_steps", self, f"at least {2 * NUM_KEPT}")
        most = max(self.state_bits) * max(self.state_units)
        require(1 <= self.history_bits <= 20, "history_bits", self, "from 1 to 20")
        require(most < self.history_bits, "state_bits", self, "below --history-bits, times units")
