import dataclasses
from typing import Annotated

from experiments.frame.options import (
    Count,
    NonNegative,
    Positive,
    TrainingOptions,
    among,
    at_least,
    multiple_of,
    require,
    rising,
    within,
)
from experiments.recurrent_policy.model import MEMORIES
from experiments.recurrent_policy.task import TASKS

UPDATES_PER_EPOCH = 10  # of one call of the compiled program; the last ones are those judged


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingOptions):
    """Recurrent PPO inside one jit, on tasks in which the present observation is not enough.

    Every model learns every task from several seeds, side by side in one compiled program: rollout,
    advantages, and passes through minibatches of environments. The T-maze shows its cue once, at
    the start of a corridor of each of the lengths. What is expected is written in the code before
    the run.
    """

    QUICK = {
        "tasks": ("t_maze",),
        "models": ("gru", "stateless"),
        "lengths": (5,),
        "seeds": 2,
        "updates": 30,
        "num_units": 16,
    }

    tasks: Annotated[tuple[str, ...], among(TASKS)] = tuple(TASKS)
    """Which tasks."""
    models: Annotated[tuple[str, ...], among(MEMORIES)] = tuple(MEMORIES)
    """What remembers; stateless is the control that cannot."""
    lengths: Annotated[tuple[int, ...], rising(at_least(2))] = (10, 50, 100, 200)
    """Steps of the corridors of the T-maze."""
    seeds: Count = 3
    """Trainings of each model on each task; they differ in initial parameters and episodes."""
    num_units: Annotated[int, multiple_of(4)] = 32
    """Units of the memory and of the dense layers around it."""
    updates: Annotated[int, multiple_of(UPDATES_PER_EPOCH)] = 50
    """Windows to learn from."""
    num_environments: Count = 32
    """Environments side by side."""
    shortest_window: Count = 64
    """Steps of a window; more where the longest episode of the task has more."""
    burn_in: Annotated[int, at_least(0)] = 0
    """First steps of a window that refresh the carry and are not learnt from."""
    num_passes: Count = 4
    """Passes through a window."""
    num_minibatches: Count = 2
    """Minibatches of a pass, each of whole rows; must divide the number of environments."""
    learning_rate: Positive = 1e-2
    """Of Adam at the start; it falls to zero along a cosine."""
    discount: Annotated[float, within(0, 1)] = 0.99
    """What a reward is worth a step earlier."""
    trace_decay: Annotated[float, within(0, 1)] = 0.95
    """The λ of generalised advantages."""
    clip: Positive = 0.2
    """How far from 1 the ratio of new to old probabilities has a gradient."""
    entropy_weight: NonNegative = 0.003
    """The weight of the entropy in the loss."""

    def check(self) -> None:
        super().check()
        divides = self.num_environments % self.num_minibatches == 0
        expected = f"a divisor of {self.num_environments}"
        require(divides, "num_minibatches", self, expected)
        expected = f"below --shortest-window, {self.shortest_window}"
        require(self.burn_in < self.shortest_window, "burn_in", self, expected)
