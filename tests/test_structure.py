"""The direction of imports, and that everything public is documented with an example."""

import ast
import inspect
import pathlib
import sys
import traceback

import jax.numpy as jnp
import pytest

import jaxrnn

PACKAGE = pathlib.Path(jaxrnn.__file__).parent

# A file may import files of the rooms above its own, of its own room, and nothing below.
ROOMS = [
    {"factories", "_version"},
    {"types"},
    {"engine", "roles"},
    {"cells", "sequences", "losses"},
    {"layers", "mixers", "crf"},
    {"generation"},
    {"seq2seq", "training", "testing", "diagnostics", "online"},
    {"interop"},
]
# Inside the engine the order is this; what is not named comes first.
ENGINE = [
    "linear_scan",
    "matrix_chunk",
    "matrix_scan",
    "evaluators",
    "recurrent",
    "arguments",
    "unroll",
]
ALLOWED_PACKAGES = {"jaxrnn", "jax", "optax", "numpy"}
# Files of classes that belong to a framework.
MODULES_OF = {"nnx": "flax", "linen": "flax", "_torch_stack": "torch"}
# These see arrays and functions, and nothing of a cell but its roles.
BLIND = {"sequences", "losses", "roles", "training"}


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def imported(path, nodes=ast.walk):
    for node in nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            for alias in node.names:
                package = PACKAGE.parent.joinpath(*node.module.split("."))
                is_module = (package / f"{alias.name}.py").exists()
                yield f"{node.module}.{alias.name}" if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def floor(room):
    return next(number for number, rooms in enumerate(ROOMS) if room in rooms)


def place_in_engine(name):
    return ENGINE.index(name) if name in ENGINE else -1


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    room, *inner = path.relative_to(PACKAGE).with_suffix("").parts
    for module in imported(path):
        if not module.startswith("jaxrnn"):
            continue
        assert "." in module, f"{path} imports the whole package"
        _, other, *rest = module.split(".")
        assert floor(other) < floor(room) or other == room, f"{room} -> {module}"
        if room == other == "engine":
            assert place_in_engine(rest[0]) <= place_in_engine(inner[0]), f"{inner} -> {module}"
        if room in BLIND and other == "engine":
            assert place_in_engine(rest[0]) < 0, f"{room} must not see {module}"


def test_no_module_is_named_like_what_its_package_exports():
    for package in PACKAGE.rglob("__init__.py"):
        modules = {path.stem for path in package.parent.glob("*.py")}
        exported = {
            alias.asname or alias.name
            for node in ast.walk(ast.parse(package.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module != "jaxrnn"
            for alias in node.names
        }
        assert not modules & exported, package


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_stands_on_jax_and_optax_alone(path):
    roots = {module.split(".")[0] for module in imported(path)}
    allowed = ALLOWED_PACKAGES | set(sys.stdlib_module_names)
    if path.parent.name == "interop":
        # A framework is imported by the function that needs it; its modules by those who name them.
        top = {module.split(".")[0] for module in imported(path, ast.iter_child_nodes)}
        allowed |= roots - top | {MODULES_OF.get(path.stem)}
    assert roots <= allowed


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_short(path):
    assert len(path.read_text().splitlines()) <= 400


def public():
    rooms = jaxrnn, jaxrnn.interop
    return {name: getattr(room, name) for room in rooms for name in room.__all__}


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


def with_split(step):
    return jaxrnn.Split(lambda params, carry, z: step(params, 0, z), lambda carry, u: carry + u)


def test_the_engine_knows_no_cell():
    for path in (PACKAGE / "engine").rglob("*.py"):
        assert not any(module.startswith("jaxrnn.cells") for module in imported(path)), path


def test_cells_know_no_mask():
    # `prepare` is given the resets, because what is drawn for a sequence is drawn anew there.
    for path in set((PACKAGE / "cells").glob("*.py")) - {PACKAGE / "cells" / "_stochastic.py"}:
        names = {
            node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)
        }
        assert not names & {"mask", "reset"}, path


@pytest.mark.parametrize("advance_of", [lambda step: step, with_split], ids=["plain", "split"])
def test_six_calls_lead_from_unroll_to_the_body_of_the_scan(advance_of):
    stacks = []

    def step(params, carry, z):
        frames = traceback.extract_stack()
        stacks.append([frame.name for frame in frames if str(PACKAGE) in frame.filename])
        return carry + z

    cell = jaxrnn.simple_cell(lambda key, num_inputs: (), advance_of(step), num_outputs=1)
    jaxrnn.unroll(cell, (), jnp.ones((3, 1)))
    (stack,) = [stack for stack in stacks if "plain_scan" in stack]
    assert stack.index("step") - stack.index("unroll") == 6
