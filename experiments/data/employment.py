"""US employment by industry, monthly from 2006 to 2015 (Bureau of Labor Statistics, CES).

Read from the file inside the vega_datasets package. The numbers are in thousands and seasonally
adjusted. The 15 industries here are those that contain no other one; together they are `nonfarm`.
"""

import csv
import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.frame.errors import ExperimentError

INDUSTRIES = (
    "mining_and_logging",
    "construction",
    "durable_goods",
    "nondurable_goods",
    "wholesale_trade",
    "retail_trade",
    "transportation_and_warehousing",
    "utilities",
    "information",
    "financial_activities",
    "professional_and_business_services",
    "education_and_health_services",
    "leisure_and_hospitality",
    "other_services",
    "government",
)
NUM_MONTHS = 120
FIRST_MONTH = np.datetime64("2006-01")
TOTAL, ROUNDING = "nonfarm", 1.0


class Employment(NamedTuple):
    """`months [120]` and `thousands [15, 120]`, a row for each of `INDUSTRIES`."""

    months: np.ndarray
    thousands: np.ndarray


def load_employment(folder: Path | None = None) -> Employment:
    """The whole table, as it is.

    Raises:
        ExperimentError: The file is missing or damaged.
    """
    path = (_folder_in_vega_datasets() if folder is None else folder) / "us-employment.csv"
    if not path.is_file():
        raise ExperimentError(f"{path} is missing: reinstall vega_datasets")
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        months = np.array([row["month"] for row in rows], "datetime64[M]")
        thousands = np.array([[float(row[name]) for row in rows] for name in INDUSTRIES])
        total = np.array([float(row[TOTAL]) for row in rows])
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ExperimentError(f"{path} is damaged, reinstall vega_datasets: {error}") from error
    _check(path, months, thousands, total)
    return Employment(months, thousands)


def monthly_changes(employment: Employment) -> np.ndarray:
    """Changes to each month but the first in per cent, 100 log(xₜ / xₜ₋₁), `[15, 119]`."""
    return 100 * np.diff(np.log(employment.thousands), axis=1)


def _folder_in_vega_datasets() -> Path:
    spec = importlib.util.find_spec("vega_datasets")
    if spec is None or spec.origin is None:
        raise ExperimentError("vega_datasets not installed: pip install '.[experiments]'")
    return Path(spec.origin).parent / "_data"


def _check(path, months, thousands, total):
    expected = FIRST_MONTH + np.arange(NUM_MONTHS)
    facts = {
        "every month from 2006 to 2015 once": np.array_equal(months, expected),
        "numbers above 0": bool(np.all(np.isfinite(thousands) & (thousands > 0))),
        "industries that sum to the total": bool(
            np.all(np.abs(thousands.sum(axis=0) - total) <= ROUNDING)
        ),
    }
    wrong = [fact for fact, holds in facts.items() if not holds]
    if wrong:
        raise ExperimentError(
            f"{path} is damaged, reinstall vega_datasets: it lacks {' and '.join(wrong)}"
        )
