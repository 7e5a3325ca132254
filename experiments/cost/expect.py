"""How everything should grow with T, written down before the run, and what came of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.cost.config import Config
from experiments.cost.measure import Measured, Results
from experiments.cost.model import AT_END, ATTENTION, SHOWN, SQRT, Simple
from experiments.frame.verdicts import Expectation, Verdict

LONG = 4096

FORMULAS = Expectation(
    "formulas of a simple cell",
    "HD + H² + H + CH + C parameters and T (HD + H² + CH) multiply-adds, exactly as counted in "
    "arrays and in the traced program; half of XLA's operations within 5 %",
)
STREAMING_MEMORY = Expectation(
    "streaming memory",
    "the carry has the bytes of its formula, and the same at every T for all but attention",
)
TRAINING_MEMORY = Expectation(
    "training memory",
    "exponents within 0.15 of the predicted ones: about 1, for attention 2 (√T checkpoints apart)",
)
COUNTED = Expectation(
    "training memory: counted and planned",
    "after one constant the count is within a factor of 2 of XLA's plan on the upper half",
)
CHECKPOINTS = Expectation(
    "√T checkpoints",
    "exponent of training memory at most 0.7; at the longest T less than a quarter of the memory "
    "without them, in less than three times the time",
)
NOT_CONSTANT = Expectation(
    "constant streaming is not constant training",
    "where the carry stays the same, training memory grows at least half as much as T",
)
TRAINING_TIME = Expectation(
    "training time", "exponents within 0.25 of the predicted ones: about 1, for attention 2"
)
TOKEN_TIME = Expectation(
    "time of a streamed token", "exponents within 0.15 of 0, for attention above 0.5"
)


class Quantity(NamedTuple):
    """One thing that is measured, and what is predicted of it: fields of `Measured.numbers`."""

    name: str
    unit: str
    per_unit: float
    measured: str
    predicted: str
    fitted: bool = True  # whether the prediction has a free constant


QUANTITIES = {
    "training_time": Quantity("training time", "s", 1, "training_seconds", "predicted_work"),
    "training_memory": Quantity(
        "training memory", "MiB", 2**20, "training_bytes", "predicted_training"
    ),
    "streaming_memory": Quantity(
        "streaming memory", "KiB", 2**10, "carry_bytes", "predicted_carry", fitted=False
    ),
    "token_time": Quantity(
        "time of a streamed token", "µs", 1e-6, "token_seconds", "predicted_step"
    ),
}


class Curve(NamedTuple):
    """One quantity of one model; exponents are slopes of logarithms on the upper half of T."""

    lengths: np.ndarray  # T, where it was measured
    measured: np.ndarray
    all_lengths: np.ndarray  # T, where it is predicted
    predicted: np.ndarray  # with the constant
    constant: float  # of the prediction; 1 where none is fitted
    exponent: float  # NaN for fewer than two points
    predicted_exponent: float  # at the same lengths
    deviation: float  # the largest factor between both on the upper half


Curves = Mapping[str, Mapping[str, Curve]]  # by quantity and model


def curves(results: Results) -> Curves:
    return {
        key: {name: curve(rows, quantity) for name, rows in results.models.items()}
        for key, quantity in QUANTITIES.items()
    }


def curve(rows: Sequence[Measured], quantity: Quantity) -> Curve:
    """Fits the constant and the exponents; `rows` are one model's, T rising."""
    lengths = np.array([one.num_steps for one in rows], np.float64)
    measured, predicted = (
        np.array([one.numbers()[field] for one in rows]) / quantity.per_unit
        for field in (quantity.measured, quantity.predicted)
    )
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


def judged(config: Config, results: Results) -> list[Verdict]:
    """Every verdict; what needs all lengths, or long ones, is not run without them."""
    lengths = {len(rows) for rows in results.models.values()}
    found = curves(results) if lengths == {len(config.lengths)} else None
    long = found if config.lengths[-1] >= LONG else None
    both = found if {AT_END, SQRT} <= set(config.models) else None
    return [
        FORMULAS.judge(_formulas, results.simple),
        STREAMING_MEMORY.judge(_streaming_memory, found),
        TRAINING_MEMORY.judge(_training_memory, found),
        COUNTED.judge(_counted, found),
        CHECKPOINTS.judge(_checkpoints, both),
        NOT_CONSTANT.judge(_not_constant, found),
        TRAINING_TIME.judge(_training_time, long),
        TOKEN_TIME.judge(_token_time, long),
    ]


def _formulas(one: Simple) -> tuple[str, bool]:
    share = one.compiled_work / one.work
    measured = (
        f"{one.counted_params:,} of {one.params:,} parameters; {one.counted_work:,} of "
        f"{one.work:,} multiply-adds; XLA {share:.3f} times as many"
    )
    exact = (one.counted_params, one.counted_work) == (one.params, one.work)
    return measured, exact and abs(share - 1) <= 0.05


def _streaming_memory(found: Curves) -> tuple[str, bool]:
    of_models = found["streaming_memory"].items()
    wrong = [name for name, one in of_models if list(one.measured) != list(one.predicted)]
    moving = [n for n, one in of_models if (len(set(one.measured)) > 1) != (n == ATTENTION)]
    measured = f"formula wrong for {_names(wrong)}; growth wrong for {_names(moving)}"
    return measured, not wrong and not moving


def _training_memory(found: Curves) -> tuple[str, bool]:
    return _exponents({n: one for n, one in found["training_memory"].items() if n != SQRT}, 0.15)


def _training_time(found: Curves) -> tuple[str, bool]:
    return _exponents(found["training_time"], 0.25)


def _exponents(chosen, tolerance):
    good = [abs(one.exponent - one.predicted_exponent) <= tolerance for one in chosen.values()]
    return _each({name: one.exponent for name, one in chosen.items()}), all(good)


def _counted(found: Curves) -> tuple[str, bool]:
    deviations = {name: one.deviation for name, one in found["training_memory"].items()}
    return _each(deviations), all(value <= 2 for value in deviations.values())


def _checkpoints(found: Curves) -> tuple[str, bool]:
    memory, seconds = (
        found[key][SQRT].measured[-1] / found[key][AT_END].measured[-1]
        for key in ("training_memory", "training_time")
    )
    power = found["training_memory"][SQRT].exponent
    measured = f"{power:.2f}; {memory:.2f} of the memory, {seconds:.2f} times the time"
    return measured, power <= 0.7 and memory < 0.25 and seconds < 3


def _not_constant(found: Curves) -> tuple[str, bool]:
    shares = {
        name: one.measured[-1] / one.measured[0] / (one.lengths[-1] / one.lengths[0])
        for name, one in found["training_memory"].items()
        if name not in (ATTENTION, SQRT)
    }
    good = all(value >= 0.5 for value in shares.values())
    return f"growth over that of T: {_each(shares)}", good


def _token_time(found: Curves) -> tuple[str, bool]:
    exponents = {name: one.exponent for name, one in found["token_time"].items()}
    good = all(
        power > 0.5 if n == ATTENTION else abs(power) <= 0.15 for n, power in exponents.items()
    )
    return _each(exponents, "+.2f"), good


def _each(values: Mapping[str, float], form: str = ".2f") -> str:
    return ", ".join(f"{SHOWN[name]} {value:{form}}" for name, value in values.items())


def _names(names: Iterable[str]) -> str:
    return ", ".join(SHOWN[name] for name in names) or "none"
