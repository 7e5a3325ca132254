"""What is known to be learnt and to hold on longer rows, and how it is judged, before the run.

Learnt: at least `LEARNT` of the answers right on new rows as long as the longest learnt from.
Holds: learnt, and at least `HOLDS` right on the longest rows. Both of the seed that is best on the
rows before the longest, because the claims are about what a model can do; every seed is in the
tables.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.frame.stats import share
from experiments.frame.verdicts import Expectation, Verdict
from experiments.memory.config import Config
from experiments.memory.counting import Counted
from experiments.memory.measure import Results, Trained
from experiments.memory.task import LABELS

LEARNT, HOLDS, HELP = 0.95, 0.9, 0.1
WORDS = {True: "yes", False: "no", None: "?"}


class Claim(NamedTuple):
    """Of a model and a task; None where no source says it."""

    learns: bool | None  # on the lengths of training
    holds: bool | None  # on rows eight times as long


YES, NO = Claim(True, True), Claim(None, False)
SHORT = Claim(True, False)
UNKNOWN = Claim(None, None)

# Parity: Grazzi et al. 2024 (arXiv:2411.12537) and Beck et al. 2024 (arXiv:2405.04517).
# Copying: Arjovsky et al. 2015 (arXiv:1511.06464) for unitary linear recurrences, Jelassi et al.
# 2024 (arXiv:2402.01032) for attention; the state is fixed and the row grows, so none holds.
# Selective copy and induction: Gu and Dao 2023 (arXiv:2312.00752) for Mamba and for what does not
# select, Feng et al. 2024 (arXiv:2410.01201) for minGRU. Adding: Hochreiter and Schmidhuber 1997,
# Arjovsky et al. 2015.
CLAIMS: Mapping[str, Mapping[Claim, str]] = {
    "parity": {
        YES: "elman gru lstm slstm signed",
        NO: "min_gru lru s5 mamba mlstm attention positive",
    },
    "copying": {
        SHORT: "lru s5 attention",
        NO: "elman gru lstm slstm min_gru mamba mlstm positive signed",
    },
    "selective_copy": {YES: "mamba min_gru", Claim(False, False): "lru s5"},
    "induction": {YES: "mamba", SHORT: "attention", NO: "lru s5"},
    "adding": {Claim(True, None): "gru lstm"},
}

NONLINEAR = ("gru", "lstm", "slstm")
POSITIVE = ("min_gru", "mamba", "mlstm", "positive")
TWINS = ("signed", "positive")

COUNTING = Expectation(
    "the counting bound",
    "no rounded cell has more than 2^(p H) states or gives back more bits than the bound allows",
)
REGISTER = Expectation(
    "the bound is reached", "a shift register of p H bits has 2^min(n, p H) states at every n"
)
PARITY_BIT = Expectation(
    "one bit is enough for parity", "a carry of one bool answers for all histories, with 2 states"
)
LEARN_PARITY = Expectation(
    "GRU, LSTM and sLSTM learn parity and extrapolate",
    f"at least {LEARNT:.0%} right where it was learnt, {HOLDS:.0%} on the longest rows",
)
POSITIVE_FAIL = Expectation(
    "linear models with positive eigenvalues do not extrapolate",
    f"minGRU, Mamba, mLSTM and eigenvalues in (0, 1): below {HOLDS:.0%} on the longest rows",
)
SIGNS_HELP = Expectation(
    "eigenvalues in (-1, 1) help",
    "on all rows longer than learnt from more right than with (0, 1), all else equal, and "
    f"{HELP:.0%} more on the longest",
)


def judged(config: Config, results: Results) -> list[Verdict]:
    parity = {one.model: one for one in results.trained if one.task == "parity"}
    if len(config.longer) == 1:
        parity = {}
    nonlinear, positive, twins = (map(parity.get, names) for names in (NONLINEAR, POSITIVE, TWINS))
    return [
        COUNTING.judge(counting, results.rounded),
        REGISTER.judge(registers, results.registers),
        PARITY_BIT.judge(parity_bit, results.parity),
        LEARN_PARITY.judge(learn_parity, *nonlinear),
        POSITIVE_FAIL.judge(positive_fail, *positive),
        SIGNS_HELP.judge(signs_help, *twins),
    ]


def counting(counted: Sequence[Counted]) -> tuple[str, Any]:
    faults = sum(
        np.sum((one.states > one.most_states) | (one.bits_right > one.most_bits_right + 1e-12))
        for one in counted
    )
    most = max(one.states[-1] / one.most_states[-1] for one in counted)
    return f"{faults} faults; the fullest has {most:.0%} of the states it can have", faults == 0


def registers(counted: Sequence[Counted]) -> tuple[str, Any]:
    reached = [(one.states == one.most_states).all() for one in counted]
    return f"{share(reached)} registers", all(reached)


def parity_bit(one: Counted) -> tuple[str, Any]:
    """`bits_right` is the share of histories with the right parity."""
    right, states = one.bits_right.min(), one.states.max()
    measured = f"{right:.0%} right, {states} states, {one.capacity} bit"
    return measured, right == 1 and states <= 2 and one.capacity == 1


def learn_parity(*trained: Trained) -> tuple[str, Any]:
    return _ends(trained), all(holds(one.chosen) for one in trained)


def positive_fail(*trained: Trained) -> tuple[str, Any]:
    return _ends(trained), not any(holds(one.chosen) for one in trained)


def _ends(trained):
    return "; ".join(
        f"{LABELS[one.model]} {'learns it' if learns(one.chosen) else 'does not learn it'}, "
        f"{one.chosen[-1]:.0%} on the longest"
        for one in trained
    )


def signs_help(signed: Trained, positive: Trained) -> tuple[str, Any]:
    """The first score is that of the length of training."""
    gains = (signed.chosen - positive.chosen)[1:]
    measured = []
    for one in (signed, positive):
        shares = ", ".join(f"{score:.0%}" for score in one.chosen[1:])
        measured.append(f"{LABELS[one.model]}: {shares} on longer and longer rows")
    return "; ".join(measured), gains.min() > 0 and gains[-1] >= HELP


def learns(scores: np.ndarray) -> Any:
    """Of scores `[..., lengths]`; that of the length of training comes first."""
    return scores[..., 0] >= LEARNT


def holds(scores: np.ndarray) -> Any:
    """Of scores `[..., lengths]`; never without having been learnt."""
    return learns(scores) & (scores[..., -1] >= HOLDS)


def claim_of(one: Trained) -> Claim:
    claims = CLAIMS[one.task].items()
    return next((claim for claim, models in claims if one.model in models.split()), UNKNOWN)


def disagreements(one: Trained) -> list[str]:
    """A phrase for each part of its claim that did not come out."""
    claim = claim_of(one)
    parts = (
        ("learns it", claim.learns, bool(learns(one.chosen))),
        ("holds on the longest rows", claim.holds, bool(holds(one.chosen))),
    )
    return [
        f"{what}: expected {WORDS[claimed]}, measured {WORDS[measured]}"
        for what, claimed, measured in parts
        if claimed not in (None, measured)
    ]
