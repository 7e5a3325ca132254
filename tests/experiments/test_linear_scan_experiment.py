"""The linear_scan experiment: its subjects do the same, and a small run writes everything."""

import csv

import jax
import jax.numpy as jnp
import numpy as np

from experiments.frame import cli
from experiments.frame.timing import interleaved_seconds
from experiments.linear_scan import SCANS


def test_the_subjects_solve_the_same_recurrence():
    a, b = jax.random.uniform(jax.random.key(0), (2, 7, 3))
    h, expected = np.zeros(3), []
    for decay, entry in zip(np.asarray(a), np.asarray(b), strict=True):
        h = decay * h + entry
        expected.append(h)
    for scan in SCANS.values():
        assert jnp.allclose(scan(a, b), jnp.array(expected), rtol=1e-6)


def test_every_subject_runs_in_every_round_and_none_always_first():
    order = []
    subjects = {name: lambda name=name: order.append(name) for name in "abc"}
    seconds = interleaved_seconds(subjects, rounds=3)
    assert order == [*"abc", *"abc", *"bca", *"cab"]
    assert all(len(values) == 3 and (values >= 0).all() for values in seconds.values())


def test_a_small_run_writes_every_round(tmp_path):
    options = ["--lengths", "16", "--widths", "2", "--rounds", "3", "--out", str(tmp_path / "run")]
    assert cli.main(["linear_scan", "--quick", *options]) == 0
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["config.json", "metrics.csv", "report.html", "speed.png", "summary.md"]
    rows = list(csv.DictReader((tmp_path / "run/metrics.csv").read_text().splitlines()))
    assert len(rows) == 2 * 4 * (3 + 1)
    assert all(float(row["milliseconds"]) > 0 for row in rows)
    assert "| 16 x 2 | gradient | associative_scan |" in (tmp_path / "run/summary.md").read_text()
