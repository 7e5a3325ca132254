import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from experiments.benchmark.subjects import MODELS
from experiments.benchmark.work import Shape
from experiments.frame.options import Count, NonNegative, Options, among, require

PARTS = ("forward", "training", "linear", "streaming", "lengths", "epochs", "checkpoints")
BASELINE = "baseline"
NARROW = (
    Shape(1, 256, 32, 64),
    Shape(64, 128, 64, 64),
    Shape(8, 1000, 16, 32),
    Shape(32, 100, 64, 128),
    Shape(256, 32, 64, 64),
    Shape(4, 512, 64, 128),
)
WIDE = (
    Shape(16, 256, 128, 256),
    Shape(32, 128, 128, 256),
    Shape(64, 64, 256, 512),
    Shape(128, 64, 128, 512),
)
QUICK = (Shape(1, 64, 8, 16), Shape(8, 32, 16, 32))
GRIDS = {"all": NARROW + WIDE, "narrow": NARROW, "wide": WIDE, "quick": QUICK}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Layers, training steps, linear recurrences, streams, packed rows, epochs and long gradients.

    Every subject runs in every round of one process; the tables hold medians of the ratios of
    rounds. Peers that are not installed are left out with a line that says so. On a machine
    that others use, `taskset -c 0 python -m experiments benchmark --clock cpu` compares
    subjects on one core by the time they had of it.
    """

    QUICK = {"models": ("lstm",), "sizes": "quick", "seconds": 0.0, "rounds": 3}

    only: Annotated[tuple[str, ...], among((*PARTS, BASELINE))] = (*PARTS, BASELINE)
    """The parts to run; baseline only with --baseline."""
    models: Annotated[tuple[str, ...], among(MODELS)] = MODELS
    """Which models run in forward, training and baseline."""
    sizes: Literal["all", "narrow", "wide", "quick"] = "all"
    """Of which sizes: narrow has fewer than 256 units."""
    seconds: NonNegative = 4.0
    """How long a case is repeated, compilation left out."""
    rounds: Count = 7
    """The least number of rounds of a case."""
    clock: Literal["wall", "cpu"] = "wall"
    """Seconds that passed, or that all threads of the process ran."""
    baseline: Path | None = None
    """The folder of another checkout of jaxrnn, which is compared with this one."""
    merge: tuple[Path, ...] = ()
    """Folders of earlier runs: measures nothing, and reports them together."""

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(part for part in self.only if part != BASELINE or self.baseline)

    @property
    def grid(self) -> tuple[Shape, ...]:
        return GRIDS[self.sizes]

    def check(self) -> None:
        super().check()
        found = self.baseline is not None and (self.baseline / "jaxrnn/__init__.py").is_file()
        wanted = self.baseline is not None or not self.parts
        require(found or not wanted, "baseline", self, "a folder with the package jaxrnn")
