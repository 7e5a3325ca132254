"""How everything should grow, as criteria that stand here before the run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.cost.config import Config
from experiments.cost.formulas import Simple
from experiments.cost.growth import QUANTITIES, Curve, by_model, curve
from experiments.cost.measuring import Measured
from experiments.cost.models import AT_END, ATTENTION, SHOWN, SQRT
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
    "time of a streamed token",
    "exponents within 0.15 of 0, for attention above 0.5",
)


def curves(results: Sequence[Any]) -> dict[str, dict[str, Curve]]:
    """Quantity to model to curve."""
    rows = by_model([one for one in results if isinstance(one, Measured)])
    return {
        key: {model: curve(one, quantity) for model, one in rows.items()}
        for key, quantity in QUANTITIES.items()
    }


def verdicts(config: Config, results: Sequence[Any]) -> list[Verdict]:
    """Every line; what needs all lengths, or long ones, is not run without them."""
    counts = [one for one in results if isinstance(one, Simple)]
    lines = [_formulas(counts[0]) if counts else FORMULAS.not_run()]
    rows = [one for one in results if isinstance(one, Measured)]
    complete = len(rows) == len(config.models) * len(config.lengths)
    found = curves(results)
    judges: Sequence[tuple[Expectation, Callable[..., Verdict], bool]] = (
        (STREAMING_MEMORY, _streaming_memory, complete),
        (TRAINING_MEMORY, _training_memory, complete),
        (COUNTED, _counted, complete),
        (CHECKPOINTS, _checkpoints, complete and {AT_END, SQRT} <= set(config.models)),
        (NOT_CONSTANT, _not_constant, complete),
        (TRAINING_TIME, _training_time, complete and config.lengths[-1] >= LONG),
        (TOKEN_TIME, _token_time, complete and config.lengths[-1] >= LONG),
    )
    return lines + [judge(line, found) if can else line.not_run() for line, judge, can in judges]


def _formulas(one: Simple) -> Verdict:
    share = one.compiled_work / one.work
    measured = (
        f"{one.counted_params:,} of {one.params:,} parameters; {one.counted_work:,} of "
        f"{one.work:,} multiply-adds; XLA {share:.3f} times as many"
    )
    exact = (one.counted_params, one.counted_work) == (one.params, one.work)
    return FORMULAS.verdict(measured, exact and abs(share - 1) <= 0.05)


def _streaming_memory(line, found) -> Verdict:
    wrong, moving = [], []
    for name, one in found["streaming_memory"].items():
        if list(one.measured) != list(one.predicted):
            wrong.append(name)
        if (len(set(one.measured)) > 1) != (name == ATTENTION):
            moving.append(name)
    measured = f"formula wrong for {_names(wrong)}; growth wrong for {_names(moving)}"
    return line.verdict(measured, not wrong and not moving)


def _training_memory(line, found) -> Verdict:
    chosen = {name: one for name, one in found["training_memory"].items() if name != SQRT}
    return line.verdict(*_exponents(chosen, 0.15))


def _training_time(line, found) -> Verdict:
    return line.verdict(*_exponents(found["training_time"], 0.25))


def _exponents(chosen: Mapping[str, Curve], tolerance: float) -> tuple[str, bool]:
    off = {name: abs(one.exponent - one.predicted_exponent) for name, one in chosen.items()}
    measured = ", ".join(f"{SHOWN[name]} {one.exponent:.2f}" for name, one in chosen.items())
    return measured, all(value <= tolerance for value in off.values())


def _counted(line, found) -> Verdict:
    deviations = {name: one.deviation for name, one in found["training_memory"].items()}
    measured = ", ".join(f"{SHOWN[name]} {value:.2f}" for name, value in deviations.items())
    return line.verdict(measured, all(value <= 2 for value in deviations.values()))


def _checkpoints(line, found) -> Verdict:
    memory, seconds = (
        found[key][SQRT].measured[-1] / found[key][AT_END].measured[-1]
        for key in ("training_memory", "training_time")
    )
    exponent = found["training_memory"][SQRT].exponent
    measured = f"{exponent:.2f}; {memory:.2f} of the memory, {seconds:.2f} times the time"
    return line.verdict(measured, exponent <= 0.7 and memory < 0.25 and seconds < 3)


def _not_constant(line, found) -> Verdict:
    shares = {}
    for name, one in found["training_memory"].items():
        if name not in (ATTENTION, SQRT):
            times = one.lengths[-1] / one.lengths[0]
            shares[name] = one.measured[-1] / one.measured[0] / times
    measured = "growth over that of T: " + ", ".join(
        f"{SHOWN[name]} {value:.2f}" for name, value in shares.items()
    )
    return line.verdict(measured, all(value >= 0.5 for value in shares.values()))


def _token_time(line, found) -> Verdict:
    exponents = {name: one.exponent for name, one in found["token_time"].items()}
    measured = ", ".join(f"{SHOWN[name]} {value:+.2f}" for name, value in exponents.items())
    good = all(
        value > 0.5 if name == ATTENTION else abs(value) <= 0.15
        for name, value in exponents.items()
    )
    return line.verdict(measured, good)


def _names(names: Sequence[str]) -> str:
    return ", ".join(SHOWN[name] for name in names) or "none"
