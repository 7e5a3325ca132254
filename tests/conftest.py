import os

import jax
import pytest

# Most of a test is compilation, so the tests ask for the quick one; it costs a third of the time.
# It holds for the workers of xdist and for processes that tests start. An XLA_FLAGS of your own,
# be it empty, is left as it is: `XLA_FLAGS= pytest` compiles as users do.
QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("XLA_FLAGS", " ".join(QUICK_TO_COMPILE))


@pytest.fixture
def x64():
    """Runs the test in float64."""
    with jax.enable_x64(True):
        yield
