"""The code on the pages of tasks and of the tutorial runs, block after block in one namespace."""

import pytest
from support.pages import DOCS, run

PAGES = sorted([*DOCS.glob("tasks/*.md"), *DOCS.glob("tutorial/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_runs(page):
    run(page)
