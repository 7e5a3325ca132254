"""The pages for those who come from another framework: ten tasks, and both sides of each run.

A page has the name by which its framework is imported, `docs/coming_from/torch.md`. Our blocks are
marked "python" and run as one script; theirs are marked "python torch" and run as another one.
"""

import re

import pytest
from support.pages import DOCS, blocks, run

PAGES = sorted(DOCS.glob("coming_from/*.md"))
TASKS = [
    "1 Make a network",
    "2 Run it on a batch",
    "3 Padding",
    "4 An initial state, and the last one",
    "5 Both directions and several layers",
    "6 Dropout",
    "7 A training step",
    "8 A long sequence in pieces (truncated backpropagation)",
    "9 One step at a time",
    "10 Save, load, and bring your weights along",
]
# Keras itself, where it saves and loads.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@pytest.fixture(autouse=True)
def folder_for_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@each_page
def test_ten_tasks_side_by_side(page):
    tasks = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert [task.splitlines()[0] for task in tasks] == TASKS
    kinds = {"python", f"python {page.stem}"}
    for task in tasks:
        assert set(re.findall(r"^```(\w.*)", task, re.MULTILINE)) == kinds, task


def test_our_code_is_the_same_on_all_pages_and_runs():
    assert len({tuple(blocks(page)) for page in PAGES}) == 1
    run(PAGES[0])


@each_page
def test_their_code_runs(page):
    pytest.importorskip(page.stem, reason=f"needs {page.stem}")
    run(page, f"python {page.stem}")


@pytest.mark.parametrize("framework", ["torch", "keras", "flax"])
def test_the_tutorial_brings_weights_along(framework):
    pytest.importorskip(framework, reason=f"needs {framework}")
    run(DOCS / "tutorial" / "weights.md", f"python {framework}")
