"""The direction of imports, and that everything public is documented with an example."""

import ast
import inspect
import pathlib

import pytest

import jaxrnn

PACKAGE = pathlib.Path(jaxrnn.__file__).parent

# A module may import modules of lower rank, and of its own rank where the row says so.
RANKS = [
    ({"types", "checks", "initializers", "randomness", "sequences", "losses", "labels"}, True),
    ({"state_space", "spectra", "hippo"}, True),
    ({"boundary", "arguments", "one_kernel"}, False),
    ({"linear_scan", "dense_scan"}, False),
    ({"cells"}, False),
    ({"combinators", "noise"}, False),
    ({"evaluators"}, True),
    ({"layers"}, True),
    ({"unroll"}, False),
    ({"generation"}, True),
    ({"training", "testing"}, False),
    ({"encoder_decoder"}, False),
    ({"diagnostics"}, True),
]
ALLOWED_PACKAGES = {"jaxrnn", "jax", "optax", "numpy"}
# These see arrays and functions, never cells.
BLIND = {"sequences", "losses", "labels", "training"}


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                yield f"{node.module}.{alias.name}" if node.module == "jaxrnn" else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def part(module):
    return module.split(".")[1]


def rank(name):
    return next(number for number, (names, _) in enumerate(RANKS) if name in names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    me = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imported(path):
        if not module.startswith("jaxrnn"):
            continue
        assert "." in module, f"{path} imports the whole package"
        other = part(module)
        peers = rank(other) == rank(me) and RANKS[rank(me)][1]
        assert rank(other) < rank(me) or peers or other == me == "testing", f"{me} -> {other}"
        if me in BLIND:
            assert rank(other) <= rank("boundary"), f"{me} must not see {other}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_stands_on_jax_and_optax_alone(path):
    import sys

    roots = {module.split(".")[0] for module in imported(path)}
    assert roots <= ALLOWED_PACKAGES | set(sys.stdlib_module_names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_short(path):
    assert len(path.read_text().splitlines()) <= 300


def public():
    return {name: value for name, value in vars(jaxrnn).items() if not name.startswith("_")}


def public_functions():
    return sorted(
        name for name, value in public().items() if inspect.isfunction(inspect.unwrap(value))
    )


@pytest.mark.parametrize("name", public_functions())
def test_public_functions_have_an_example_and_sections(name):
    docstring = inspect.getdoc(public()[name]) or ""
    assert ">>> " in docstring, "no example"
    assert "Returns:" in docstring
    assert "Args:" in docstring or not inspect.signature(public()[name]).parameters
    assert docstring.splitlines()[0].endswith("."), "the first line is one sentence"


def test_evaluators_know_no_cell():
    for path in (PACKAGE / "evaluators").glob("*.py"):
        assert not any(module.startswith("jaxrnn.cells") for module in imported(path)), path


def test_cells_know_no_mask():
    for path in (PACKAGE / "cells").glob("*.py"):
        names = {
            node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)
        }
        assert not names & {"mask", "reset"}, path
