import ast
import gc
import importlib.util
import os
import pathlib
import resource

import jax
import pytest
from _pytest.doctest import DoctestItem
from support import compiler

from jaxrnn.engine import remade

# XLA reads it at the first computation. xdist's workers and the processes that tests start inherit
# it; one that is set, be it to nothing (`XLA_FLAGS= pytest`), stays.
os.environ.setdefault("XLA_FLAGS", compiler.flags(compiler.QUICKLY))

# Keras reads it once, when it is imported.
os.environ["KERAS_BACKEND"] = "jax"

# Tracing makes many objects that live on, and looking through them all again and again took a tenth
# of the time.
gc.set_threshold(200_000, 20, 100)


class WithoutFrameworks:
    """Leaves out files of classes that belong to a framework which is not installed."""

    @staticmethod
    def pytest_ignore_collect(collection_path):
        """A plugin, because what a conftest.py ignores must be below it."""
        if collection_path.parent.name == "interop" and collection_path.suffix == ".py":
            tree = ast.parse(collection_path.read_text())
            if any(map(is_missing, imported(ast.iter_child_nodes(tree)))):
                return True
        return None


def pytest_configure(config):
    config.pluginmanager.register(WithoutFrameworks())


def pytest_collection_modifyitems(items):
    """Skips the examples of `jaxrnn.interop` whose framework is not installed."""
    for item in items:
        if item.path.parent.name == "interop" and isinstance(item, DoctestItem):
            lines = [example.source for example in item.dtest.examples]
            trees = map(ast.parse, [item.path.read_text(), *lines])
            names = {name for tree in trees for name in imported(ast.walk(tree))}
            missing = sorted(filter(is_missing, names))
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(missing)}"))


def imported(nodes):
    """The packages that are imported."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)


def is_missing(package):
    return importlib.util.find_spec(package) is None


@pytest.fixture(autouse=True, scope="module")
def programs_of_some_modules():
    """Forgets what was compiled once it takes much memory: each program has a megabyte."""
    yield
    if resident_bytes() > 1.5e9:
        jax.clear_caches()


def resident_bytes():
    statm = pathlib.Path("/proc/self/statm")
    if not statm.exists():
        return float("inf")
    return int(statm.read_text().split()[1]) * resource.getpagesize()


@pytest.fixture(autouse=True)
def models_of_one_test():
    """Forgets which models were made anew: tests that share a lambda would warn, and so fail.

    Whether they did would depend on which of them ran in one process.
    """
    yield
    remade._alike.cache_clear()
    remade._SAID.clear()


@pytest.fixture
def x64():
    """Runs the test in float64."""
    with jax.enable_x64(True):
        yield
