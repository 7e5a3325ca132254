"""Checks for cells and layers of your own: do they keep the laws that the engine rests on?"""

from jaxrnn.testing._check import check_cell as check_cell
from jaxrnn.testing._check import check_layer as check_layer
from jaxrnn.testing._compare import LawBroken as LawBroken
