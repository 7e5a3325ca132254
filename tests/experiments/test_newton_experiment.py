"""The newton experiment: what it calls depth, and a small run that writes everything."""

import csv

import pytest

from experiments.frame import cli
from experiments.newton import Solved


def test_the_depth_is_that_of_as_many_scans():
    solved = Solved(1.0, 0, -0.5, 1000, "full", 4, True, 0.0, 1.0, 1.0)
    assert solved.depth == 4 * 2 * 10


def test_a_small_run_converges_where_the_exponent_is_negative(tmp_path):
    options = ["--lengths", "32", "128", "--scales", "0.5", "16", "--seeds", "1", "--rounds", "1"]
    options += ["--num-units", "4", "--max-iterations", "20", "--out", str(tmp_path / "run")]
    assert cli.main(["newton", "--quick", *options]) == 0
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["config.json", "metrics.csv", "newton.png", "report.html", "summary.md"]
    rows = list(csv.DictReader((tmp_path / "run/metrics.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        if row["scale"] == "0.5":
            assert float(row["exponent"]) < -0.3
            assert row["converged"] == "True" and int(row["iterations"]) < 20
            assert float(row["difference"]) < 1e-4
        assert (row["converged"] == "True") or int(row["iterations"]) == 20


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--lengths", "64", "32"], "--lengths must rise from at least 1, got 64 32"),
        (["--scales", "0"], "--scales must be above 0 and finite, got 0.0"),
        (["--max-iterations", "0"], "--max-iterations must be at least 1, got 0"),
    ],
)
def test_wrong_options_are_named(options, expected, capsys):
    assert cli.main(["newton", *options]) == 2
    assert expected in capsys.readouterr().err
