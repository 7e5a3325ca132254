"""The report page: one file that needs nothing, in which nothing a person wrote is markup."""

import base64
import html.parser
import json

import pytest
from matplotlib.figure import Figure

from experiments.frame import cli
from experiments.frame.report import Picture, Report
from experiments.frame.tables import Table
from experiments.frame.verdicts import Expectation


class Reader(html.parser.HTMLParser):
    """Tags with their attributes, the text, and whether every tag was closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


LEARNED = Expectation("1 learns", "error below 1 & above 0")
TABLE = Table("Scores <1>", ("model", "error"), [("gru", "0.5"), ("a&b", "7")])
REPORT = Report(
    "A claim.",
    verdicts=[LEARNED.verdict("error 2", False), LEARNED.not_run()],
    pictures=[Picture("images/a", Figure((2, 1)), "What it shows")],
    tables=[TABLE],
    found=["It won."],
    files={"metrics.csv": [{"a": 1}], "none.csv": [], "b.json": {"c": 2}, "d.txt": "text"},
)


@pytest.fixture
def page(written):
    """`(report, status) -> (folder, page)`."""

    def write(report=REPORT, status="complete"):
        folder = written(report, status)
        return folder, (folder / "report.html").read_text()

    return write


def test_everything_is_there_and_nothing_is_fetched(page):
    folder, text = page()
    read = Reader(text)
    for expected in ("A claim.", "Scores <1>", "a&b", "It won.", "gru lstm", "versions: jax"):
        assert expected in read.text
    assert {tag for tag, _ in read.tags}.isdisjoint({"script", "link", "iframe"})
    sources = [attrs["src"] for _, attrs in read.tags if "src" in attrs]
    picture = base64.b64encode((folder / "images/a.png").read_bytes()).decode()
    assert sources == [f"data:image/png;base64,{picture}"]
    assert "http" not in text and not any("href" in attrs for _, attrs in read.tags)
    assert ("td", {"class": "fail"}) in read.tags and ("td", {"class": "number"}) in read.tags


def test_verdicts_and_pictures_come_before_the_tables(page):
    folder, text = page()
    in_order = ["A claim.", "It won.", "error below 1", "data:image", "Scores", "versions: jax"]
    places = [text.index(part) for part in in_order]
    assert places == sorted(places)
    summary = (folder / "summary.md").read_text()
    places = [summary.index(part) for part in ("# name", "1 learns", "(images/a.png)", "Scores")]
    assert places == sorted(places)


def test_verdicts_are_counted_and_what_failed_is_said(page):
    folder, text = page()
    words = [one["word"] for one in json.loads((folder / "verdicts.json").read_text())]
    assert words == ["FAIL", "not run"]
    read = Reader(text).text
    assert "0 of 2 expectations held." in read
    assert "1 learns: expected, error below 1 & above 0; measured, error 2." in read


def test_files_are_written_by_their_ending_and_none_without_rows(page, capsys):
    folder, _ = page()
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *("b.json", "d.txt", "images", "metrics.csv"),
        *("report.html", "summary.md", "verdicts.json"),
    }
    assert (folder / "metrics.csv").read_text() == "a\n1\n"
    assert json.loads((folder / "b.json").read_text()) == {"c": 2}
    out = capsys.readouterr().out
    assert out.index("Scores") < out.index("1 learns")


def test_an_interrupted_run_says_so_among_what_failed(page):
    _, text = page(Report("A claim."), "interrupted")
    read = Reader(text)
    assert "The run was interrupted" in read.text and "Nothing was measured." in read.text


def test_a_complete_run_does_not_speak_of_an_interruption(page):
    assert "The run was interrupted" not in Reader(page()[1]).text


def test_a_part_that_is_missing_is_not_judged():
    def measured(value, values):
        return f"{value}", value < 1

    judge = LEARNED.judge
    assert judge(measured, 0.5, [1]).word == "pass" and judge(measured, 2, [1]).word == "FAIL"
    assert judge(measured, None, [1]).word == judge(measured, 0.5, []).word == "not run"


def test_a_run_writes_its_report_beside_its_config(tmp_path):
    options = ["--lengths", "4", "8", "--num-units", "2", "--out", str(tmp_path / "run")]
    assert cli.main(["long_gradient", *options]) == 0
    text = Reader((tmp_path / "run/report.html").read_text()).text
    assert "2 times the steps" in text and "lengths4 8" in text
    assert json.loads((tmp_path / "run/config.json").read_text())["status"] == "complete"
