"""What an experiment reports, and how a run is written: files, pictures, tables and a page."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from experiments.frame.page import html_page
from experiments.frame.run_folder import RunFolder
from experiments.frame.tables import Table, markdown, show
from experiments.frame.trainings import Training
from experiments.frame.verdicts import Verdict, verdict_rows, verdicts_table, what_failed, what_held


class Picture(NamedTuple):
    """A figure, the name of its file without the ending, and what it shows."""

    name: str
    figure: Figure
    caption: str

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.png"


class Report(NamedTuple):
    """What is an experiment's own to say; `write_report` does the rest."""

    claim: str  # what it is about to show, in a sentence or two
    verdicts: Sequence[Verdict] = ()  # what came of each expectation
    # what was trained: results.csv, metrics.csv and seconds.json come of it
    trainings: Sequence[Training] = ()
    pictures: Sequence[Picture] = ()  # the figures, in the order of the argument
    tables: Sequence[Table] = ()  # the numbers
    found: Sequence[str] = ()  # what came out, a sentence each; how many expectations held is added
    # what did not work or was not measured, a sentence each; verdicts and seeds that failed are
    # added
    failed: Sequence[str] = ()
    # measured times, which differ from run to run, beside those of the trainings
    seconds: Mapping[str, Any] = {}
    # further files by name: the rows of a `.csv`, the content of a `.json`, the arrays of a `.npz`,
    # or the text of any other. A file without rows is not written
    files: Mapping[str, Any] = {}

    def completed(self) -> "Report":
        """With the sentences and files that follow from the verdicts and the trainings."""
        found = [what_held(self.verdicts)] if self.verdicts else []
        failed = [sentence for training in self.trainings for sentence in training.failed()]
        seconds = {one.label: round(one.fitted.seconds, 1) for one in self.trainings}
        files = {
            "verdicts.json": verdict_rows(self.verdicts),
            "results.csv": [row for one in self.trainings for row in one.result_rows()],
            "metrics.csv": [row for one in self.trainings for row in one.update_rows()],
            "seconds.json": ({"trainings": seconds} if seconds else {}) | dict(self.seconds),
        }
        return self._replace(
            found=[*found, *self.found],
            failed=[*what_failed(self.verdicts), *self.failed, *failed],
            files={name: content for name, content in files.items() if content} | dict(self.files),
        )


def write_report(name: str, report: Report, run: Mapping[str, Any], folder: RunFolder) -> None:
    """Writes all files of a run, and shows the tables, the verdicts last.

    Args:
        name: The experiment's name.
        report: What it says.
        run: How it was run: `status`, `seconds`, `options` and `environment`.
        folder: Where to write.
    """
    report = report.completed()
    verdicts = [verdicts_table("Expected and measured", report.verdicts)]
    verdicts = verdicts if report.verdicts else []
    for picture in report.pictures:
        path = folder.path(picture.file)
        path.parent.mkdir(exist_ok=True)
        picture.figure.savefig(path)
    for file, content in {"summary.md": _summary(name, report, verdicts), **report.files}.items():
        folder.write(file, content)
    folder.write_text("report.html", html_page(name, report, verdicts, run, folder.partial))
    for table in [*report.tables, *verdicts]:
        show(table)


def _summary(name: str, report: Report, verdicts: Sequence[Table]) -> str:
    pictures = [f"![{picture.caption}]({picture.file})\n" for picture in report.pictures]
    tables = map(markdown, report.tables)
    return "\n".join([f"# {name}\n", *map(markdown, verdicts), *pictures, *tables])
