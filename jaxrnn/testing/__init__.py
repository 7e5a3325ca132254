"""Checks that your own cells and layers keep the laws on which the engine relies."""

from jaxrnn.testing._check import check_cell as check_cell
from jaxrnn.testing._check import check_layer as check_layer
from jaxrnn.testing._compare import LawBroken as LawBroken
