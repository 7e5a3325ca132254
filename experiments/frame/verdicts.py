"""What is expected of a run, written down before it, and what came of it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from experiments.frame.tables import Table


class Verdict(NamedTuple):
    """What came of an expectation; `passed` is None when it was not run."""

    point: str
    criterion: str
    measured: str
    passed: bool | None

    @property
    def word(self) -> str:
        return "not run" if self.passed is None else "pass" if self.passed else "FAIL"


class Expectation(NamedTuple):
    """A point and its criterion, fixed before the run."""

    point: str
    criterion: str

    def verdict(self, measured: str, passed: Any) -> Verdict:
        return Verdict(*self, measured, bool(passed))

    def not_run(self) -> Verdict:
        return Verdict(*self, "-", None)

    def judge(self, measure: Callable[..., tuple[str, Any]], *parts: Any) -> Verdict:
        """What `measure(*parts)` says, `(measured, passed)`; not run if a part is None or empty."""
        if any(part is None or (hasattr(part, "__len__") and len(part) == 0) for part in parts):
            return self.not_run()
        return self.verdict(*measure(*parts))


def verdict_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    return [one._asdict() | {"word": one.word} for one in verdicts]


def verdicts_table(title: str, verdicts: Sequence[Verdict]) -> Table:
    rows = [(one.point, one.criterion, one.measured, one.word) for one in verdicts]
    return Table(title, ("point", "criterion", "measured", "verdict"), rows, num_names=4)


def what_held(verdicts: Sequence[Verdict]) -> str:
    return f"{sum(one.passed is True for one in verdicts)} of {len(verdicts)} expectations held."


def what_failed(verdicts: Sequence[Verdict]) -> list[str]:
    """A sentence for each expectation that did not hold or was not run."""
    return [
        f"{one.point}: not run."
        if one.passed is None
        else f"{one.point}: expected, {one.criterion}; measured, {one.measured}."
        for one in verdicts
        if not one.passed
    ]
