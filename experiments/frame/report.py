"""What an experiment reports, and how a run is written: files, pictures, tables and a page."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from experiments.frame.fitting import Training
from experiments.frame.run_folder import RunFolder
from experiments.frame.tables import Table, markdown, show
from experiments.frame.verdicts import Verdict, verdict_rows, verdicts_table, what_failed, what_held


class Picture(NamedTuple):
    """A figure, the name of its file without the ending, and what it shows."""

    name: str
    figure: Figure
    caption: str

    @classmethod
    def drawn(cls, module: Any, captions: Mapping[str, str], *arguments: Any) -> list["Picture"]:
        """A picture for each caption, drawn by the function of that name in the module."""
        return [cls(name, getattr(module, name)(*arguments), captions[name]) for name in captions]

    @property
    def file(self) -> str:
        return f"{self.name}.png"


class Report(NamedTuple):
    """What is an experiment's own to say; `write_report` does the rest."""

    claim: str  # what it is about to show, in a sentence or two
    verdicts: Sequence[Verdict] = ()  # what came of each expectation
    trainings: Sequence[Training] = ()  # for results.csv, metrics.csv and seconds.json
    pictures: Sequence[Picture] = ()  # the figures, in the order of the argument
    tables: Sequence[Table] = ()  # the numbers
    found: Sequence[str] = ()  # what came out, a sentence each; how many expectations held is added
    failed: Sequence[
        str
    ] = ()  # what did not work, a sentence each; failed verdicts and seeds are added
    seconds: Mapping[str, Any] = {}  # measured times, beside those of the trainings
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
    """Writes all files of a run to `folder`, and shows the tables, the verdicts last.

    `run` says how it was run: `status`, `seconds`, `options` (a mapping) and `environment`.
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


_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 60rem; margin: 2rem auto 4rem; padding: 0 1.2rem; }
h1 { margin-bottom: 0.2rem; }
h2 { margin-top: 2.4rem; border-bottom: 1px solid #ccc; padding-bottom: 0.2rem; }
.claim { font-size: 1.15rem; }
.status { color: #555; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.6rem 0 1.4rem; font-size: 0.92rem; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.4rem; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #e2e2e2; text-align: left;
         vertical-align: top; }
th { border-bottom: 2px solid #999; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.pass { color: #00614a; font-weight: 600; }
.fail { color: #a33c00; font-weight: 600; }
figure { margin: 1.2rem 0 2rem; }
img { max-width: 100%; height: auto; }
figcaption { color: #444; font-size: 0.92rem; }
"""
_VERDICTS = {"pass": "pass", "FAIL": "fail"}


def html_page(
    title: str, report: Report, verdicts: Sequence[Table], run: Mapping[str, Any], folder: Path
) -> str:
    """The whole document: what came out, the verdicts and pictures, and then the numbers.

    `verdicts` is the table of them, if there are any, `run` as in `write_report`; the pictures in
    `folder` go into the document.
    """
    failed = list(report.failed)
    if run["status"] != "complete":
        failed.insert(0, "The run was interrupted: this is what had been done by then.")
    body = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="status">{_text(run["status"])}, {_text(run["seconds"])} s</p>',
        f'<p class="claim">{_text(report.claim)}</p>',
        *_section("What was found", _sentences(report.found, "Nothing was measured.")),
        *_section("What failed", _sentences(failed, "Nothing.")),
        *_section("Expected and measured", map(_table, verdicts)),
        *_section("Figures", (_figure(picture, folder) for picture in report.pictures)),
        *_section("Tables", map(_table, report.tables)),
        *_section("Set-up", map(_table, _setup(run))),
    ]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            *body,
            "</body>\n</html>\n",
        ]
    )


def _section(title: str, parts: Iterable[str]) -> list[str]:
    parts = list(parts)
    return [f"<h2>{_text(title)}</h2>", *parts] if parts else []


def _sentences(sentences: Sequence[str], otherwise: str) -> list[str]:
    if not sentences:
        return [f"<p>{_text(otherwise)}</p>"]
    return ["<ul>", *(f"<li>{_text(sentence)}</li>" for sentence in sentences), "</ul>"]


def _table(table: Table) -> str:
    def row(cells, tag):
        parts = []
        for index, cell in enumerate(cells):
            kind = _VERDICTS.get(cell) or ("number" if index >= table.num_names else "")
            attribute = f' class="{kind}"' if kind else ""
            parts.append(f"<{tag}{attribute}>{_text(cell)}</{tag}>")
        return f"<tr>{''.join(parts)}</tr>"

    rows = [row(table.columns, "th"), *(row(cells, "td") for cells in table.rows)]
    caption = f"<caption>{_text(table.title)}</caption>"
    return f'<div class="scroll"><table>{caption}\n{chr(10).join(rows)}\n</table></div>'


def _figure(picture: Picture, folder: Path) -> str:
    data = base64.b64encode((folder / picture.file).read_bytes()).decode("ascii")
    caption = _text(picture.caption)
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _setup(run: Mapping[str, Any]) -> list[Table]:
    return [
        Table("Options", ("option", "value"), _rows(run["options"]), num_names=2),
        Table("Environment", ("what", "value"), _rows(run["environment"]), num_names=2),
    ]


def _rows(mapping: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            rows += _rows(value, f"{name}: ")
        else:
            many = isinstance(value, list | tuple)
            rows.append((f"{prefix}{name}", " ".join(map(str, value)) if many else str(value)))
    return rows


def _text(value: Any) -> str:
    return html.escape(str(value))
