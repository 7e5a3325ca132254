"""What the notes lead one to expect, as criteria that stand here before the run."""

from collections.abc import Callable, Sequence
from typing import Any

from experiments.frame.verdicts import Expectation, Verdict
from experiments.gradients import judges
from experiments.gradients.config import Config
from experiments.gradients.gates import CELLS, Gated
from experiments.gradients.judges import LEARNED, NOT_LEARNED
from experiments.gradients.precision import RATES, Grown, Saturated
from experiments.gradients.recall import (
    NUM_SYMBOLS,
    Clipped,
    Recalled,
    num_clipped,
    num_truncated,
)
from experiments.gradients.sweep import ACTIVATIONS, Swept
from experiments.gradients.warning import NETS, Warned
from experiments.gradients.worked import Worked

ORDER = Expectation(
    "the product is ordered",
    "∂h(T)/∂h(0) = J(T) ... J(1) to 1e-5; with the factors reversed it is off by more than 10 %",
)
AVERAGE = Expectation(
    "worked example",
    "α = 1/2 and inputs 2, 0, 4 give 1, 0.5, 2.25 and ∂h(3)/∂h(0) = 1/8; detaching behind step 2 "
    "keeps the states and leaves 0",
)
LINEAR = Expectation(
    "linear: log ρ",
    "the largest exponent is log ρ at every radius: to 0.001 (orthogonal), to 0.1 (Gaussian)",
)
BELOW = Expectation("ρ below 1 contracts", "tanh and relu have exponents below 0 for all ρ < 1")
ABOVE = Expectation("ρ above 1 explodes", "tanh and relu have exponents above 0 for all ρ > 1")
LINEAR_PART = Expectation(
    "orthogonal keeps the norm in the linear part",
    "at ρ = 1 the exponent is 0 (to 0.001) without an activation, below -0.01 with tanh",
)
DRIFT = Expectation(
    "relu drifts upwards",
    "at the largest ρ its norm ends beyond 100 √H and its mean above 0 for every orthogonal kernel,"
    " at the smallest below 10 √H; tanh stays below √H",
)
GATES = Expectation(
    "gates remember",
    "steps until a thousandth of the sensitivity is left: LSTM with forget bias 1 beyond bias 0, "
    "chrono beyond both and five times those of Elman",
)
FLAT = Expectation(
    "float32 tanh is 1 beyond 9", "slope above 0 at 7; at 9 exactly 0, and tanh exactly 1"
)
OVERFLOW = Expectation(
    "float16 overflows, float32 carries",
    "1 to 5 % a step pass 65504 within 3000 steps, where predicted to 5 %; the library's carry is "
    "finite there",
)
NORMS = Expectation(
    "warning 1: norm of the carry",
    "behind one input: exploding grows a thousandfold, vanishing falls below a thousandth, healthy "
    "within a factor of 10",
)
RATIO = Expectation(
    "warning 2: recurrent against input gradient",
    "vanishing: the recurrent norm is below 1/100 of the input norm; healthy: it is not",
)
REACH = Expectation(
    "warning 3: last output, first input",
    "sensitivity relative to that of the last input: vanishing below 1e-6, healthy above 0.01, "
    "exploding above 1000",
)
SHORTENS = Expectation(
    "clipping shortens",
    "direction kept to 1e-6, norm at most 1; after an update at the rate 0.01 the carry still "
    "grows a thousandfold",
)
RESTORES_NOTHING = Expectation(
    "clipping restores nothing",
    "vanishing: steps more than 10 back have below 1e-3 of the gradient, the same after clipping; "
    "trained, both ways stay below 50 % accuracy",
)
HELPS = Expectation(
    "clipping helps against explosion",
    "exploding start: accuracy at least 10 points above that without clipping, or those seeds fail",
)
TEACHES = Expectation(
    "a gradient that reaches teaches",
    f"accuracy at least {LEARNED:.0%} wherever the truncation is longer than the delay",
)
CUT_TANH = Expectation(
    "truncation limits credit, tanh",
    f"at the longest delay at most {NOT_LEARNED:.0%} wherever the gradient does not reach the "
    f"symbol (chance is {1 / NUM_SYMBOLS:.0%})",
)
CUT_LSTM = Expectation("truncation limits credit, LSTM", CUT_TANH.criterion)


def verdicts(config: Config, results: Sequence[Any]) -> list[Verdict]:
    """Every line, as far as the results go."""
    judged: Sequence[tuple[Expectation, type[Any], int, Callable[..., Verdict]]] = (
        (ORDER, Worked, 1, judges.order),
        (AVERAGE, Worked, 1, judges.average),
        (LINEAR, Swept, len(ACTIVATIONS), judges.linear),
        (BELOW, Swept, len(ACTIVATIONS), judges.below),
        (ABOVE, Swept, len(ACTIVATIONS), judges.above),
        (LINEAR_PART, Swept, len(ACTIVATIONS), judges.linear_part),
        (DRIFT, Swept, len(ACTIVATIONS), judges.drift),
        (GATES, Gated, len(CELLS), judges.gates),
        (FLAT, Saturated, 1, judges.flat),
        (OVERFLOW, Grown, len(RATES), judges.overflow),
        (NORMS, Warned, len(NETS), judges.norms),
        (RATIO, Warned, len(NETS), judges.ratio),
        (REACH, Warned, len(NETS), judges.reach),
        (SHORTENS, Warned, len(NETS), judges.shortens),
        (RESTORES_NOTHING, Clipped, num_clipped(config), judges.restores_nothing),
        (HELPS, Clipped, num_clipped(config), judges.helps),
        (TEACHES, Recalled, num_truncated(config), judges.teaches),
        (CUT_TANH, Recalled, num_truncated(config), judges.cut_tanh),
        (CUT_LSTM, Recalled, num_truncated(config), judges.cut_lstm),
    )
    lines = []
    for line, kind, needed, judge in judged:
        have: list[Any] = [one for one in results if isinstance(one, kind)]
        if judge is judges.restores_nothing:
            have += [one for one in results if isinstance(one, Warned)]
            needed += len(NETS)
        lines.append(judge(line, config, have) if len(have) == needed else line.not_run())
    return lines
