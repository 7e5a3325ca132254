"""The folder of the data sets inside the vega_datasets package."""

import importlib.util
from pathlib import Path

from experiments.frame.errors import ExperimentError


def folder_in_vega_datasets() -> Path:
    spec = importlib.util.find_spec("vega_datasets")
    if spec is None or spec.origin is None:
        raise ExperimentError("vega_datasets not installed: pip install '.[experiments]'")
    return Path(spec.origin).parent / "_data"
