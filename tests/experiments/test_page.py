"""The report page: one file that needs nothing, in which nothing a person wrote is markup."""

import base64
import html.parser
import json

import pytest

from experiments import cli
from experiments.page import Page, Picture, html_page
from experiments.tables import Table

RUN = {
    "status": "complete",
    "seconds": 1.5,
    "options": {"seeds": 3, "models": ("gru", "lstm"), "out": None},
    "environment": {"versions": {"jax": "0.10.2"}, "python": "3.11"},
}
PNG = b"\x89PNG not really"


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


def page(**changed):
    table = Table("Scores <1>", ("model", "error"), [("gru", "0.5"), ("a&b", "FAIL")])
    whole = Page("name", "A claim.", [table], [Picture("a.png", "What it shows")], ["It won."], [])
    return whole._replace(**changed)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    return tmp_path


def test_everything_is_there_and_nothing_is_fetched(folder):
    text = html_page(page(), RUN, folder)
    read = Reader(text)
    for expected in ("A claim.", "Scores <1>", "a&b", "It won.", "gru lstm", "versions: jax"):
        assert expected in read.text
    assert {tag for tag, _ in read.tags}.isdisjoint({"script", "link", "iframe"})
    sources = [attrs["src"] for _, attrs in read.tags if "src" in attrs]
    assert sources == ["data:image/png;base64," + base64.b64encode(PNG).decode()]
    assert "http" not in text and not any("href" in attrs for _, attrs in read.tags)
    assert ("td", {"class": "fail"}) in read.tags and ("td", {"class": "number"}) in read.tags


def test_an_interrupted_run_says_so_among_what_failed(folder):
    read = Reader(html_page(page(found=[]), RUN | {"status": "interrupted"}, folder))
    assert "The run was interrupted" in read.text and "Nothing was measured." in read.text
    assert "The run was interrupted" not in Reader(html_page(page(), RUN, folder)).text


def test_a_run_writes_its_report_beside_its_config(tmp_path):
    options = ["--lengths", "4", "8", "--num-units", "2", "--out", str(tmp_path / "run")]
    assert cli.main(["long_gradient", *options]) == 0
    text = Reader((tmp_path / "run/report.html").read_text()).text
    assert "2 times the steps" in text and "lengths4 8" in text
    assert json.loads((tmp_path / "run/config.json").read_text())["status"] == "complete"
