import pytest


@pytest.fixture(autouse=True)
def in_float64(x64):
    """Every number here is compared in float64."""
