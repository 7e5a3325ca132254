import gc
import os

import jax
import pytest
from support import compiler

from jaxrnn.engine import remade

# XLA reads it at the first computation. xdist's workers and the processes that tests start inherit
# it; one that is set, be it to nothing (`XLA_FLAGS= pytest`), stays.
os.environ.setdefault("XLA_FLAGS", compiler.flags(compiler.QUICKLY))

# Tracing makes many objects that live on, and looking through them all again and again took a tenth
# of the time.
gc.set_threshold(200_000, 20, 100)


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_module():
    """Forgets what a module compiled: thousands of programs, each more than a megabyte."""
    yield
    jax.clear_caches()


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
