"""What the options of an experiment must keep to."""

import math
from typing import Any

from experiments.errors import ExperimentError


def require(holds: bool, name: str, config: Any, expected: str) -> None:
    """Raises ExperimentError, naming the option and what it was, unless it `holds`."""
    if not holds:
        option = "--" + name.replace("_", "-")
        value = getattr(config, name)
        shown = " ".join(map(str, value)) or "nothing" if isinstance(value, tuple) else value
        raise ExperimentError(f"{option} must be {expected}, got {shown}")


def require_positive(config: Any, *names: str) -> None:
    """All of them are finite and above 0."""
    for name in names:
        value = getattr(config, name)
        require(value > 0 and math.isfinite(value), name, config, "finite and above 0")


def require_counts(config: Any, *names: str) -> None:
    """All of them are at least 1."""
    for name in names:
        require(getattr(config, name) >= 1, name, config, "at least 1")


def require_each_once(config: Any, *names: str) -> None:
    """All of them are tuples with one or more values, each once."""
    for name in names:
        values = getattr(config, name)
        require(0 < len(values) == len(set(values)), name, config, "one or more, each once")


def require_seed(config: Any, name: str = "first_seed") -> None:
    """It is a seed that numpy and jax take."""
    require(0 <= getattr(config, name) < 2**31, name, config, "from 0 to 2147483647")
