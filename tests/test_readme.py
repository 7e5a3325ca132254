"""What README shows runs, and its two commands are the ones that are checked elsewhere."""

import inspect
import pathlib
import re

import pytest

import jaxrnn

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=["first look", "a cell of your own", "evaluators"])
def test_the_code_runs(code):
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    if "logits" in names:
        assert names["logits"].shape == (32, 9)


def test_the_commands_are_there():
    commands = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    assert len(commands) == 2
    assert "python -m experiments" in commands[0] and "-m pytest" in commands[1]
    assert all(command.startswith("python3 -m venv ") for command in commands)


def test_no_link_is_relative():
    """A package index shows README without the files beside it."""
    assert all(target.startswith("https://") for target in re.findall(r"\]\((.*?)\)", README))


def names_in(table):
    """The names in backticks in the rows of a Markdown table."""
    rows = [line.replace("jaxrnn.testing.", "") for line in table.splitlines()]
    return {name for row in rows if row[:2] == "| " for name in re.findall(r"`(\w+)`", row)}


def test_readme_lists_every_public_function():
    rooms = jaxrnn, jaxrnn.interop
    public = {
        name for room in rooms for name in room.__all__ if inspect.isfunction(getattr(room, name))
    }
    table = README.split("## What is in it")[1]
    assert names_in(table) == public | {"check_cell", "check_layer"}


def test_the_table_of_names_is_that_of_the_package():
    rows = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").splitlines()
    found = [row for row in (re.fullmatch(r"\| `(\w+)` \| (.+) \|", row) for row in rows) if row]
    names = [row[1] for row in found]
    public = [*jaxrnn.__all__, *jaxrnn.interop.__all__]
    assert sorted(names) == sorted(public) == sorted(set(names))
    assert all(row[2].endswith(".") for row in found)


def test_dir_shows_what_is_public_and_packages_for_users():
    modules = {name for name in dir(jaxrnn) if inspect.ismodule(getattr(jaxrnn, name))}
    assert set(dir(jaxrnn)) == set(jaxrnn.__all__)
    assert modules == {
        *("cells", "crf", "diagnostics", "generation", "interop", "layers", "losses", "mixers"),
        *("online", "seq2seq", "sequences", "testing", "training"),
    }
