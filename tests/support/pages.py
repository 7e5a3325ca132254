"""The code on the pages of docs/."""

import pathlib
import re

DOCS = pathlib.Path(__file__).parent.parent.parent / "docs"


def blocks(page, info="python"):
    """The blocks of code whose fence says `info`: "python", or "python torch" for that of torch."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{info}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(page, info="python"):
    """Runs these blocks as one script."""
    code = blocks(page, info)
    assert code, f"{page.name} shows no code"
    names = {"__name__": page.stem}
    for block in code:
        exec(compile(block, page.name, "exec"), names)
