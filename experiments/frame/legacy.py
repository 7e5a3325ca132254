"""For experiments whose `report` still writes its own files; goes with the last of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from experiments.frame.page import html_page as frame_page
from experiments.frame.report import Report
from experiments.frame.tables import Table


class Picture(NamedTuple):
    """A PNG file of the run folder, and what it shows."""

    name: str
    caption: str

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.name


class Page(NamedTuple):
    """What an experiment has to say."""

    title: str
    claim: str
    tables: Sequence[Table]
    pictures: Sequence[Picture]
    found: Sequence[str]
    failed: Sequence[str]


def so_far(parts: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of all parts until now."""
    seen = []
    for part in parts:
        seen.append(part)
        yield seen


def html_page(page: Page, run: Any, folder: Any) -> str:
    """The page as the frame writes it."""
    pictures: Any = page.pictures
    report = Report(
        page.claim, pictures=pictures, tables=page.tables, found=page.found, failed=page.failed
    )
    return frame_page(page.title, report, (), run, folder)


def write_page(experiment: Any, config: Any, results: Any, run: Any, folder: Any) -> None:
    """Has the experiment write its files, and writes its page."""
    page = experiment.report(config, results, folder)
    if page is not None:
        folder.write_text("report.html", html_page(page, run, folder.partial))
