"""The site: the pages of this folder, and a page for each group of public names in api.md."""

import importlib
import inspect
import pathlib
import re
import shutil

import jaxrnn

DOCS = pathlib.Path(__file__).parent
REFERENCE = DOCS / "reference"

project = "jaxrnn"
release = version = jaxrnn.__version__
copyright = "the authors of jaxrnn, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "jaxrnn"
html_css_files = ["site.css"]
html_static_path = ["static"]
html_show_sphinx = False

# Links to headings (`design.md#the-laws`), as a forge renders them.
myst_heading_anchors = 3
# Backticks in docstrings are code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_ivar = True


def group_pages():
    """`(title, module, names)` of each section of api.md."""
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    for section in text.split("\n## ")[1:]:
        title, rows = section.split("\n", 1)
        module = "jaxrnn.interop" if "jr.interop" in title else "jaxrnn"
        yield title, module, re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)


def directive(module, name):
    """How a public name is documented: its docstring, and for a package that of the module."""
    value = getattr(importlib.import_module(module), name)
    if isinstance(value, type):
        return f".. autoclass:: {module}.{name}\n   :no-undoc-members:"
    if inspect.ismodule(value):
        return f"``jr.{name}``\n    .. automodule:: {module}.{name}\n       :no-members:\n"
    kind = "autofunction" if callable(value) else "autodata"
    return f".. {kind}:: {module}.{name}"


def write_reference(app):
    """Writes a page for each group, so that no name is listed twice in the sources."""
    del app
    shutil.rmtree(REFERENCE, ignore_errors=True)
    REFERENCE.mkdir()
    toctree = []
    for title, module, names in group_pages():
        page = re.sub(r"\W+", "_", title.lower()).strip("_")
        toctree.append(page)
        body = "\n\n".join(directive(module, name) for name in names)
        text = f"# {title}\n\n```{{eval-rst}}\n{body}\n```\n"
        (REFERENCE / f"{page}.md").write_text(text, encoding="utf-8")
    index = "# API\n\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(toctree) + "\n```\n"
    (REFERENCE / "index.md").write_text(index, encoding="utf-8")


SECTION = re.compile(r"(Args|Attributes|Example|Note|Raises|Returns|Yields):")


def keep_equations(app, what, name, obj, options, lines):
    """Makes indented paragraphs literal: reStructuredText would join the lines of an equation."""
    del app, what, name, obj, options
    kept, in_section, in_equation = [], False, False
    for line in lines:
        is_indented = line.startswith("    ")
        if not is_indented and line:
            in_section, in_equation = bool(SECTION.fullmatch(line)), False
        elif is_indented and not in_section and not in_equation:
            kept += [".. code-block:: text", "   :class: equation", ""]
            in_equation = True
        kept.append(line if in_equation else without_substitutions(line))
    lines[:] = kept


def without_substitutions(line):
    """The line with bars that are bars: |x| would be the name of a substitution."""
    parts = line.split("`")
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    return "`".join(parts)


def setup(app):
    """Connects the two hooks; napoleon reads the docstring after `keep_equations`."""
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", keep_equations, priority=400)
