"""The code on the pages of tasks and of the tutorial runs, block after block in one namespace."""

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parent.parent / "docs"
PAGES = sorted([*DOCS.glob("tasks/*.md"), *DOCS.glob("tutorial/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_runs(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks, f"{page.name} shows no code"
    names = {"__name__": page.stem}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
