"""The rounding experiment: its measure of an error, and a small run that writes everything."""

import csv

import numpy as np
import pytest

from experiments.frame import cli
from experiments.rounding import errors_along


def test_an_error_is_relative_to_the_largest_output_since_half_the_time():
    exact = np.array([[4.0, -2.0], [1.0, 0.0], [-2.0, 8.0], [1.0, 1.0], [0.5, 0.5], [0.5, 0.0]])
    off = np.zeros((6, 2))
    off[0, 1], off[2, 0], off[4, 1] = 0.4, -0.8, 0.2
    times, errors = errors_along(exact + off, exact)
    assert list(times) == [1, 2, 4, 6]
    assert errors == pytest.approx([0.1, 0.0, 0.1, 0.2])


def test_what_is_not_finite_is_an_error_that_is_not_finite():
    exact = np.ones((4, 1))
    rounded = exact.copy()
    rounded[3] = np.nan
    assert list(np.isnan(errors_along(rounded, exact)[1])) == [False, False, True]


def test_a_small_run_writes_a_row_for_every_time(tmp_path):
    options = ["--models", "elman", "min_gru", "--num-steps", "48", "--out", str(tmp_path / "run")]
    assert cli.main(["rounding", "--quick", *options]) == 0
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["config.json", "metrics.csv", "report.html", "rounding.png", "summary.md"]
    rows = list(csv.DictReader((tmp_path / "run/metrics.csv").read_text().splitlines()))
    expected = [(model, t) for model in ("elman", "min_gru") for t in (1, 2, 4, 8, 16, 32, 48)]
    assert [(row["model"], int(row["t"])) for row in rows] == expected
    assert all(0 < float(row["error"]) < 1e-5 for row in rows if row["t"] == "48")
    assert {(row["not_finite"], row["extreme_not_finite"]) for row in rows} == {("0", "0")}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--models", "perceptron"], "--models must be among"),
        (["--num-steps", "1"], "--num-steps must be at least 2, got 1"),
        (["--width", "12"], "--width must be a positive multiple of 8, got 12"),
        (["--state-size", "3"], "--state-size must be even and positive, got 3"),
    ],
)
def test_wrong_options_are_named(options, expected, capsys):
    assert cli.main(["rounding", *options]) == 2
    assert expected in capsys.readouterr().err
