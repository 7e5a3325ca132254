"""Speed and memory beside other packages, as ratios of runs in one process."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from experiments.benchmark import (
    checkpoints,
    epochs,
    layers,
    lengths,
    linear,
    saved,
    streaming,
)
from experiments.benchmark.measured import Measured, Timing
from experiments.benchmark.report import report as report
from experiments.benchmark.subjects import MODELS
from experiments.frame.errors import ExperimentError
from experiments.frame.progress import progress_bar

Part = Literal["forward", "training", "linear", "streaming", "lengths", "epochs", "checkpoints"]
ModelName = Literal["lstm", "gru", "elman", "gru before", "elman relu"]
PARTS = ("forward", "training", "linear", "streaming", "lengths", "epochs", "checkpoints")
OTHERS = {
    "linear": linear,
    "streaming": streaming,
    "lengths": lengths,
    "epochs": epochs,
    "checkpoints": checkpoints,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Layers, training steps, linear recurrences, streams, packed rows, epochs and long gradients.

    Every subject runs in every round of one process; the tables hold medians of the ratios of
    rounds. Peers that are not installed are left out with a line that says so. On a machine
    that others use, `taskset -c 0 python -m experiments benchmark --clock cpu` compares
    subjects on one core by the time they had of it.
    """

    only: tuple[Part, ...] = PARTS
    """The parts to run."""
    models: tuple[ModelName, ...] = MODELS
    """Which models run in forward and training."""
    sizes: Literal["all", "narrow", "wide", "quick"] = "all"
    """Of which sizes: narrow has fewer than 256 units."""
    seconds: float = 4.0
    """How long a case is repeated, compilation left out."""
    rounds: int = 7
    """The least number of rounds of a case."""
    clock: Literal["wall", "cpu"] = "wall"
    """Seconds that passed, or that all threads of the process ran."""
    merge: tuple[Path, ...] = ()
    """Folders of earlier runs: measures nothing, and reports them together."""
    out: Path | None = None
    """A new folder to write to; runs/benchmark/TIME when left out."""
    quick: bool = False
    """A short form: small sizes, few rounds."""

    @classmethod
    def quick_form(cls) -> "Config":
        """What `--quick` makes the defaults."""
        return cls(models=("lstm",), sizes="quick", seconds=0.0, rounds=3, quick=True)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        for name, values in (("--only", self.only), ("--models", self.models)):
            if not values or len(set(values)) < len(values):
                shown = " ".join(values) or "nothing"
                raise ExperimentError(f"{name} must name at least one, each once, got {shown}")
        if not 0 <= self.seconds < float("inf"):
            raise ExperimentError(f"--seconds must be finite and not negative, got {self.seconds}")
        if self.rounds < 1:
            raise ExperimentError(f"--rounds must be at least 1, got {self.rounds}")


def measure(config: Config) -> Iterator[Measured]:
    """One part after the other, or what earlier runs measured."""
    if config.merge:
        yield from saved.read(config.merge)
        return
    timing = Timing(config.seconds, config.rounds, config.clock)
    grid = layers.GRIDS[config.sizes]
    with progress_bar(sum(_cases(config, part, grid) for part in config.only)) as bar:
        for part in config.only:
            if part in OTHERS:
                yield from OTHERS[part].measure(config.quick, timing, bar)
            else:
                yield from layers.measure(part, config.models, grid, timing, bar)


def _cases(config, part, grid):
    if part in OTHERS:
        return OTHERS[part].num_cases(config.quick)
    return len(config.models) * len(grid)
