"""What is expected of a run, written down in front of it, and what became of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.tables import Table


class Verdict(NamedTuple):
    """One line; `passed` is None for what was not run."""

    point: str
    criterion: str
    measured: str
    passed: bool | None

    @property
    def word(self) -> str:
        """How it ended."""
        return "not run" if self.passed is None else "pass" if self.passed else "FAIL"


class Line(NamedTuple):
    """A point and its criterion, in front of the run."""

    point: str
    criterion: str

    def verdict(self, measured: str, passed: Any) -> Verdict:
        """What became of it."""
        return Verdict(*self, measured, bool(passed))

    def not_run(self) -> Verdict:
        """What a run that was interrupted has to say of it."""
        return Verdict(*self, "-", None)


def verdict_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """All lines as a JSON file has them."""
    return [line._asdict() | {"word": line.word} for line in verdicts]


def verdicts_table(title: str, verdicts: Sequence[Verdict]) -> Table:
    """All lines, with what was measured."""
    rows = [(line.point, line.criterion, line.measured, line.word) for line in verdicts]
    return Table(title, ("point", "criterion", "measured", "verdict"), rows, num_names=4)


def what_failed(verdicts: Sequence[Verdict]) -> list[str]:
    """A sentence for each line that did not pass."""
    return [f"{line.point}: {line.word}. {line.measured}." for line in verdicts if not line.passed]
