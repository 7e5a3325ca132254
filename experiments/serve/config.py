"""The options of the server and of its visitors."""

import dataclasses
from typing import Annotated

from experiments.frame.options import Count, Options, Positive, at_least, rising


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """Sessions that send characters to a server and get the odds of the next one.

    The server runs in a thread of this process, and its visitors in a process of their own, both on
    this machine. All characters that arrive within a few milliseconds are one batched step.
    """

    QUICK = {"sessions": (1, 20), "num_steps": 20, "updates": 20, "width": 32}

    sessions: Annotated[tuple[int, ...], rising(at_least(1))] = (1, 10, 50, 200)
    """Numbers of sessions at once, one run for each."""
    num_steps: Annotated[int, at_least(8)] = 100
    """Characters that a session sends, each after the answer to the one before."""
    width: Count = 128
    """Units of the GRU."""
    updates: Count = 300
    """Updates of its training."""
    window: Positive = 0.002
    """Seconds that a step waits for the other sessions."""

    @property
    def num_rows(self) -> int:
        """Rows of the batch: the largest number of sessions, and the hostile ones."""
        return max(self.sessions) + 10
