"""The options that experiments share, and what the value of an option must keep to.

A requirement is written into the type of an option, where it is read beside its default:
`epochs: Count = 40`, `models: Annotated[tuple[str, ...], among(MIXERS)] = (...)`. Options that
depend on each other are checked in `check`, which begins with `super().check()`.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, get_type_hints

from experiments.frame.errors import ExperimentError

T = TypeVar("T")


class Requirement(NamedTuple):
    """`holds(value)`, and the words for what is expected."""

    holds: Callable[[Any], bool]
    expected: str


def at_least(least: float) -> Requirement:
    return Requirement(lambda value: least <= value < math.inf, f"at least {least}")


def within(low: float, high: float) -> Requirement:
    return Requirement(lambda value: low <= value <= high, f"from {low} to {high}")


def multiple_of(number: int) -> Requirement:
    """`number`, twice it, and so on."""
    return Requirement(
        lambda value: value >= number and value % number == 0, f"a positive multiple of {number}"
    )


def among(names: Collection[str]) -> Requirement:
    """One or more of `names`, each once."""
    expected = f"among {' '.join(names)}, each once"
    return Requirement(lambda values: _each_once(values) and set(values) <= set(names), expected)


def each(one: Requirement) -> Requirement:
    """One or more values that keep to `one`, each once."""
    return Requirement(
        lambda values: _each_once(values) and all(map(one.holds, values)),
        f"one or more, each once, {one.expected}",
    )


def rising(one: Requirement) -> Requirement:
    """One or more values that keep to `one`, each above the one before it."""
    return Requirement(
        lambda values: each(one).holds(values) and list(values) == sorted(values),
        f"one or more, rising, {one.expected}",
    )


def _each_once(values):
    return 0 < len(values) == len(set(values))


EACH_ONCE = Requirement(_each_once, "one or more, each once")
POSITIVE = Requirement(lambda value: 0 < value < math.inf, "finite and above 0")

Count = Annotated[int, at_least(1)]
Counts = Annotated[
    tuple[int, ...],
    Requirement(lambda v: _each_once(v) and min(v) >= 1, "one or more from 1 on, each once"),
]
RisingCounts = Annotated[tuple[int, ...], rising(at_least(1))]
EachOnce = Annotated[tuple[T, ...], EACH_ONCE]
Positive = Annotated[float, POSITIVE]
NonNegative = Annotated[float, Requirement(lambda v: 0 <= v < math.inf, "finite and at least 0")]
Seed = Annotated[int, within(0, 2**31 - 1)]


def require(holds: bool, name: str, config: Any, expected: str) -> None:
    """Raises ExperimentError, naming the option and what it was, unless it `holds`."""
    if not holds:
        option = "--" + name.replace("_", "-")
        value = getattr(config, name)
        shown = " ".join(map(str, value)) or "nothing" if isinstance(value, tuple) else value
        raise ExperimentError(f"{option} must be {expected}, got {shown}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of every experiment."""

    QUICK: ClassVar[Mapping[str, Any]] = {}
    """What `--quick` makes the defaults."""

    out: Path | None = None
    """A new folder to write to; runs/NAME/TIME when left out."""
    quick: bool = False
    """A short form: other defaults, which `--quick --help` shows."""

    @classmethod
    def quick_form(cls) -> Self:
        return cls(quick=True, **cls.QUICK)

    def check(self) -> None:
        """Raises ExperimentError for a value that cannot be run."""
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            for requirement in getattr(hint, "__metadata__", ()):
                if isinstance(requirement, Requirement):
                    holds = requirement.holds(getattr(self, name))
                    require(holds, name, self, requirement.expected)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumableOptions(Options):
    """The options of an experiment that writes checkpoints."""

    resume: Path | None = None
    """The folder of an interrupted or killed run with the same options, to go on from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(ResumableOptions):
    """The options of an experiment that trains models from several seeds."""

    seeds: Count = 1
    """Trainings of each model, which differ in initial parameters and minibatches."""
    first_seed: Seed = 0
    """The smallest seed; the others follow it."""
    learning_rate: Positive = 1e-2
    """The largest learning rate of a training."""
    gradient_clip: Positive = 1.0
    """Largest global norm of a gradient."""

    @property
    def all_seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)
