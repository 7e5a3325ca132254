"""What float32 costs over long sequences: every model against itself in float64."""

from experiments.rounding.config import Config
from experiments.rounding.measure import measure
from experiments.rounding.report import report

__all__ = ["Config", "measure", "report"]
