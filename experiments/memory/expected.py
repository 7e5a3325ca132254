"""What is known to be learnt and to hold on longer rows, and how it is judged, before the run.

Learnt: at least `LEARNT` of the answers right on new rows as long as the longest learnt from.
Holds: learnt, and at least `HOLDS` right on the longest rows. Both of the seed that is best on the
rows before the longest, because the claims are about what a model can do; every seed is in the
tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from experiments.frame.verdicts import Expectation, Verdict
from experiments.memory.config import Config
from experiments.memory.counting import Counted, most_bits_right, most_states
from experiments.memory.networks import LABELS
from experiments.memory.training import Trained

LEARNT, HOLDS, HELP = 0.95, 0.9, 0.1


class Claim(NamedTuple):
    """Of a model and a task; None where no source says it.

    Attributes:
        learns: On the lengths of training.
        holds: On rows eight times as long.
    """

    learns: bool | None
    holds: bool | None


YES, NO = Claim(True, True), Claim(None, False)
SHORT = Claim(True, False)
UNKNOWN = Claim(None, None)

# Parity: Grazzi et al. 2024 (arXiv:2411.12537) and Beck et al. 2024 (arXiv:2405.04517).
# Copying: Arjovsky et al. 2015 (arXiv:1511.06464) for unitary linear recurrences, Jelassi et al.
# 2024 (arXiv:2402.01032) for attention; the state is fixed and the row grows, so none holds.
# Selective copy and induction: Gu and Dao 2023 (arXiv:2312.00752) for Mamba and for what does not
# select, Feng et al. 2024 (arXiv:2410.01201) for minGRU. Adding: Hochreiter and Schmidhuber 1997,
# Arjovsky et al. 2015.
CLAIMS: Mapping[str, Mapping[str, Claim]] = {
    "parity": {
        **dict.fromkeys(("elman", "gru", "lstm", "slstm", "signed"), YES),
        **dict.fromkeys(("min_gru", "lru", "s5", "mamba", "mlstm", "attention", "positive"), NO),
    },
    "copying": {
        **dict.fromkeys(("lru", "s5", "attention"), SHORT),
        **dict.fromkeys(("elman", "gru", "lstm", "slstm", "min_gru", "mamba", "mlstm"), NO),
        **dict.fromkeys(("positive", "signed"), NO),
    },
    "selective_copy": {
        **dict.fromkeys(("mamba", "min_gru"), YES),
        **dict.fromkeys(("lru", "s5"), Claim(False, False)),
    },
    "induction": {
        "mamba": YES,
        "attention": SHORT,
        **dict.fromkeys(("lru", "s5"), Claim(None, False)),
    },
    "adding": {
        **dict.fromkeys(("gru", "lstm"), Claim(True, None)),
    },
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
LINES = (COUNTING, REGISTER, PARITY_BIT, LEARN_PARITY, POSITIVE_FAIL, SIGNS_HELP)


class Judged(NamedTuple):
    """A claim beside what came out.

    Attributes:
        task: Its name.
        model: Its name.
        claim: What was expected.
        learns: Whether the chosen seed does.
        holds: Whether the chosen seed does.
        longer: The scores of the chosen seed on rows longer than learnt from.
        seeds_that_hold: How many of all seeds do.
        seeds: How many there are.
    """

    task: str
    model: str
    claim: Claim
    learns: bool
    holds: bool
    longer: tuple[float, ...]
    seeds_that_hold: int
    seeds: int

    @property
    def disagreements(self) -> list[str]:
        """A phrase each."""
        phrases = []
        for what, claimed, measured in (
            ("learns it", self.claim.learns, self.learns),
            ("holds on the longest rows", self.claim.holds, self.holds),
        ):
            if claimed is not None and claimed != measured:
                phrases.append(f"{what}: expected {_word(claimed)}, measured {_word(measured)}")
        return phrases


def judge(config: Config, trained: Trained) -> Iterator[Judged]:
    """All tasks of a model."""
    at_training = config.test_lengths.index(config.train_steps)
    for task in config.tasks:
        scores = trained.chosen(config, task)
        all_scores = trained.scores[config.places(task)]
        all_hold = (all_scores[:, at_training] >= LEARNT) & (all_scores[:, -1] >= HOLDS)
        learns, holds = scores[at_training] >= LEARNT, scores[-1] >= HOLDS
        claim = CLAIMS[task].get(trained.model, UNKNOWN)
        longer = tuple(map(float, scores[at_training + 1 :]))
        yield Judged(
            task, trained.model, claim, bool(learns), bool(learns and holds), longer,
            int(all_hold.sum()), len(all_hold),
        )  # fmt: skip


def verdicts(
    config: Config, counted: Mapping[str, Sequence[Counted]], judged: Sequence[Judged]
) -> list[Verdict]:
    """All lines, as far as they were run."""
    by_counting = [
        judge_counts(counted[name]) if name in counted else line.not_run()
        for name, line, judge_counts in (
            ("rounded", COUNTING, counting_verdict),
            ("register", REGISTER, register_verdict),
            ("parity", PARITY_BIT, parity_verdict),
        )
    ]
    parity = {one.model: one for one in judged if one.task == "parity"}
    asked_longer = len(config.longer) > 1
    return [*by_counting, *_parity_verdicts(parity if asked_longer else {})]


def counting_verdict(counted: Sequence[Counted]) -> Verdict:
    """Over every cell and number of steps."""
    faults, most = 0, 0.0
    for one in counted:
        for step, (states, right) in enumerate(zip(one.states, one.bits_right, strict=True), 1):
            limit = most_states(one.capacity, step)
            faults += states > limit or right > most_bits_right(one.capacity, step) + 1e-12
        most = max(most, one.states[-1] / most_states(one.capacity, len(one.states)))
    return COUNTING.verdict(
        f"{faults} faults; the fullest has {most:.0%} of the states it can have", faults == 0
    )


def register_verdict(counted: Sequence[Counted]) -> Verdict:
    """Equality, at every number of steps."""
    reached = sum(
        all(states == most_states(one.capacity, n) for n, states in enumerate(one.states, 1))
        for one in counted
    )
    return REGISTER.verdict(f"{reached} of {len(counted)} registers", reached == len(counted))


def parity_verdict(counted: Sequence[Counted]) -> Verdict:
    """`bits_right` is the share of histories with the right parity."""
    (one,) = counted
    measured = f"{one.bits_right.min():.0%} right, {one.states.max()} states, {one.capacity} bit"
    passed = one.bits_right.min() == 1 and one.states.max() <= 2 and one.capacity == 1
    return PARITY_BIT.verdict(measured, passed)


def _parity_verdicts(parity: Mapping[str, Judged]) -> list[Verdict]:
    def line(line, models, measured, passed):
        if not all(model in parity for model in models):
            return line.not_run()
        chosen = [parity[model] for model in models]
        return line.verdict("; ".join(map(measured, chosen)), passed(chosen))

    return [
        line(LEARN_PARITY, NONLINEAR, _ends, lambda chosen: all(one.holds for one in chosen)),
        line(POSITIVE_FAIL, POSITIVE, _ends, lambda chosen: not any(one.holds for one in chosen)),
        line(SIGNS_HELP, TWINS, _on_longer, _signs_help),
    ]


def _ends(one: Judged) -> str:
    learns = "learns it" if one.learns else "does not learn it"
    return f"{LABELS[one.model]} {learns}, {one.longer[-1]:.0%} on the longest"


def _on_longer(one: Judged) -> str:
    shares = ", ".join(f"{score:.0%}" for score in one.longer)
    return f"{LABELS[one.model]}: {shares} on longer and longer rows"


def _signs_help(twins: Sequence[Judged]) -> bool:
    gains = [one - other for one, other in zip(*(twin.longer for twin in twins), strict=True)]
    return min(gains) > 0 and gains[-1] >= HELP


def _word(flag: bool) -> str:
    return "yes" if flag else "no"
