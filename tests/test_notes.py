"""docs/notes.md maps every claim of the notes to something that exists."""

import ast
import functools
import pathlib
import re

import pytest

import jaxrnn
from experiments import EXPERIMENTS

ROOT = pathlib.Path(__file__).parent.parent
ROWS = [
    line
    for line in (ROOT / "docs/notes.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| the note |", "| ---"))
]


def names(row):
    return re.findall(r"`([^`]+)`", row.rsplit(" | ", 1)[1])


@functools.cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def exists(name):
    if match := re.fullmatch(r"python -m experiments (\w+)", name):
        return match[1] in EXPERIMENTS and any((ROOT / "experiments").glob(f"{match[1]}*"))
    if match := re.fullmatch(r"jaxrnn\.(\w+)", name):
        return hasattr(jaxrnn, match[1])
    path, _, test = name.partition("::")
    if not path.startswith("tests/") or not (ROOT / path).is_file():
        return False
    return not test or test in functions(path)


@pytest.mark.parametrize("row", ROWS)
def test_everything_a_row_names_exists(row):
    assert names(row)
    assert [name for name in names(row) if not exists(name)] == []


def test_all_three_notes_are_there_and_a_wrong_name_is_noticed():
    text = (ROOT / "docs/notes.md").read_text()
    assert text.count("\n## ") == 3 and len(ROWS) > 70
    for wrong in (
        "jaxrnn.nothing",
        "python -m experiments nothing",
        "tests/test_notes.py::test_nothing",
        "tests/nothing.py",
        "README.md",
    ):
        assert not exists(wrong)
