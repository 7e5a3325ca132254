"""`unroll` by worked numbers and by what users of other libraries stumbled over.

A name like flax#3507 is an issue or a pull request of that project, in which they stumbled.
"""

import pytest


@pytest.fixture(autouse=True)
def in_float64(x64):
    """Every number here is compared in float64."""
