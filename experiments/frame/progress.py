"""A progress bar with the time left; a log that is no terminal gets one line a stage."""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator

from rich import progress as columns
from rich.console import Console


class Bar:
    """Work done out of `total`, in any unit that is proportional to time."""

    def __init__(self, total: float, console: Console):
        self.total, self.console = total, console
        self.done, self.start = 0.0, time.perf_counter()
        self.stop_requested = False
        self.progress = columns.Progress(
            *(columns.TextColumn("{task.description}"), columns.BarColumn()),
            *(columns.TaskProgressColumn(), columns.TimeElapsedColumn()),
            *(columns.TextColumn("left"), columns.TimeRemainingColumn()),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=60,
        )
        self.task = self.progress.add_task("", total=total)

    def stage(self, name: str) -> None:
        self.progress.update(self.task, description=name)

    def advance(self, work: float = 1) -> None:
        """Counts work as done; here, and nowhere else, a Ctrl-C takes effect."""
        self.done += work
        self.progress.advance(self.task, work)
        if self.stop_requested:
            raise KeyboardInterrupt

    def finish_stage(self, line: str) -> None:
        """Leaves one line about what has ended, and how long the rest will take."""
        elapsed = time.perf_counter() - self.start
        left = elapsed * (self.total - self.done) / self.done if self.done else float("nan")
        self.console.print(f"{line} [dim]({elapsed:.0f} s, about {left:.0f} s left)[/dim]")

    def note(self, line: str) -> None:
        """Leaves a line that ends no stage."""
        self.console.print(line, markup=False)

    def interrupt(self, signal_number, frame) -> None:
        """Remembers the first Ctrl-C, which can crash Python in a compilation; obeys the second."""
        if self.stop_requested:
            signal.default_int_handler(signal_number, frame)
        self.stop_requested = True


@contextlib.contextmanager
def progress_bar(total: float) -> Iterator[Bar]:
    """Shows the bar on stderr while the block runs, and lets Ctrl-C wait for the next `advance`."""
    bar = Bar(total, Console(file=sys.stderr, highlight=False))
    before = signal.signal(signal.SIGINT, bar.interrupt)
    try:
        with bar.progress:
            yield bar
    finally:
        signal.signal(signal.SIGINT, before)
