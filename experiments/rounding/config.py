"""The options of the experiment."""

import dataclasses
from typing import Annotated

from experiments.frame.models import CatalogueOptions
from experiments.frame.options import at_least


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(CatalogueOptions):
    """The error of float32 against float64 with the same parameters and inputs, along the sequence.

    The error at t is the largest difference of outputs within (t/2, t], relative to the largest
    output there. Each model also reads a short sequence of bfloat16 inputs of +-10000, which close
    or open every gate, and whatever is not finite in its outputs and gradients is counted.
    """

    QUICK = {"models": ("gru", "lru", "min_gru", "mlstm"), "num_steps": 4096}

    num_steps: Annotated[int, at_least(2)] = 65536
    """Steps of the sequence."""
