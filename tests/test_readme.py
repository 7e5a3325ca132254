"""What README shows runs, and its two commands are the ones that are checked elsewhere."""

import pathlib
import re

import pytest

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=["first look", "a cell of your own"])
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
