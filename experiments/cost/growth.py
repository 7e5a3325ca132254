"""How something grows with T: exponents of power laws, and curves with one constant."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.cost.measuring import Measured

Values = Callable[[Measured], float]


class Quantity(NamedTuple):
    """One thing that is measured, what is predicted of it, and whether that has a free constant."""

    name: str
    unit: str
    measured: Values
    predicted: Values
    fitted: bool


QUANTITIES: Mapping[str, Quantity] = {
    "training_time": Quantity(
        "training time",
        "s",
        lambda one: float(np.median(one.training_seconds)),
        lambda one: one.counted.predicted_work,
        True,
    ),
    "training_memory": Quantity(
        "training memory",
        "MiB",
        lambda one: one.counted.training_bytes / 2**20,
        lambda one: one.counted.predicted_training / 2**20,
        True,
    ),
    "streaming_memory": Quantity(
        "streaming memory",
        "KiB",
        lambda one: one.counted.carry_bytes / 2**10,
        lambda one: one.counted.predicted_carry / 2**10,
        False,
    ),
    "token_time": Quantity(
        "time of a streamed token",
        "µs",
        lambda one: 1e6 * float(np.median(one.token_seconds)),
        lambda one: one.counted.predicted_step,
        True,
    ),
}


class Curve(NamedTuple):
    """One quantity of one model.

    Attributes:
        lengths: T, where it was measured.
        measured: Values there.
        all_lengths: T, where it is predicted.
        predicted: Values there, the constant included.
        constant: The factor of the prediction; 1 where none is fitted.
        exponent: Slope of log measured by log T on the upper half of `all_lengths`; NaN for fewer
            than two points there.
        predicted_exponent: The same of the prediction, at the same lengths.
        deviation: The largest factor between both on the upper half.
    """

    lengths: np.ndarray
    measured: np.ndarray
    all_lengths: np.ndarray
    predicted: np.ndarray
    constant: float
    exponent: float
    predicted_exponent: float
    deviation: float


def curve(rows: Sequence[Measured], quantity: Quantity) -> Curve:
    """Fits the constant and the exponents; `rows` are one model's, T rising."""
    lengths = np.array([one.num_steps for one in rows], np.float64)
    measured = np.array([quantity.measured(one) for one in rows])
    predicted = np.array([quantity.predicted(one) for one in rows], np.float64)
    good = np.isfinite(measured) & (measured > 0) & (predicted > 0)
    upper = good & (np.arange(len(rows)) >= len(rows) // 2)
    chosen = upper if upper.any() else good
    ratios = measured[chosen] / predicted[chosen]
    constant = float(np.median(ratios)) if quantity.fitted and chosen.any() else 1.0
    predicted = constant * predicted
    factors = np.abs(np.log(measured[upper] / predicted[upper]))
    return Curve(
        lengths[good],
        measured[good],
        lengths,
        predicted,
        constant,
        exponent(lengths[upper], measured[upper]),
        exponent(lengths[upper], predicted[upper]),
        float(np.exp(factors.max())) if len(factors) else float("nan"),
    )


def exponent(lengths: np.ndarray, values: np.ndarray) -> float:
    """The slope of log values by log lengths, by least squares; NaN for fewer than two."""
    if len(lengths) < 2:
        return float("nan")
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def by_model(results: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The rows of each model."""
    groups: dict[str, list[Measured]] = {}
    for one in results:
        groups.setdefault(one.model, []).append(one)
    return groups
