"""Hourly temperatures of two cities over a year, from the files inside the vega_datasets package.

They are normals of the U.S. weather service, so smooth, with a day and a year in them.
"""

import csv
from pathlib import Path

import numpy as np

from experiments.data.vega import folder_in_vega_datasets
from experiments.frame.errors import ExperimentError

CITIES = ("sf", "seattle")
NUM_HOURS = 8759


def load_temperatures(folder: Path | None = None) -> np.ndarray:
    """Degrees Fahrenheit `[NUM_HOURS, 2]`; an ExperimentError if a file is missing or damaged."""
    folder = folder_in_vega_datasets() if folder is None else folder
    series = []
    for city in CITIES:
        path = folder / f"{city}-temps.csv"
        if not path.is_file():
            raise ExperimentError(f"{path} is missing: reinstall vega_datasets")
        try:
            with path.open(newline="") as file:
                series.append([float(row["temp"]) for row in csv.DictReader(file)])
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise ExperimentError(f"{path} is damaged, reinstall vega_datasets: {error}") from error
        if len(series[-1]) != NUM_HOURS:
            raise ExperimentError(
                f"{path} is damaged, reinstall vega_datasets: {len(series[-1])} hours"
            )
    return np.stack(series, axis=1)
