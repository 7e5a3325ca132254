"""The experiments of one file: what they compute, small runs that write everything, and options."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.frame import cli
from experiments.frame.timing import interleaved_seconds
from experiments.linear_scan import SCANS
from experiments.newton.measure import Solved


@pytest.fixture
def run(tmp_path):
    """`(name, options) -> (folder, names of its files but for those that every run has)`."""

    def run(name, options):
        folder = tmp_path / "run"
        assert cli.main([name, "--quick", *options.split(), "--out", str(folder)]) == 0
        names = {path.name for path in folder.iterdir()}
        assert {"config.json", "report.html", "summary.md"} <= names
        return folder, names - {"config.json", "report.html", "summary.md"}

    return run


def test_the_depth_is_that_of_as_many_scans():
    solved = Solved(1.0, 0, -0.5, 1000, "full", 4, True, 0.0, 1.0, 1.0)
    assert solved.depth == 4 * 2 * 10


@pytest.mark.slow
def test_newton_converges_where_the_exponent_is_negative(run, rows):
    options = "--lengths 32 128 --scales 0.5 16 --seeds 1 --rounds 1 --num-units 4"
    texts = "--cells para_lstm --updates 2 --text-units 4 --text-steps 64"
    folder, names = run("newton", f"{options} {texts} --max-iterations 20")
    assert names == {"metrics.csv", "texts.csv", "newton.png", "newton_texts.png"}
    fresh, trained, _ = rows(folder / "texts.csv")
    assert int(fresh["iterations"]) <= 5 and float(trained["residual_8"]) < 1e-5
    solved = rows(folder / "metrics.csv")
    assert len(solved) == 2 * 2 * 3
    for row in solved:
        if row["scale"] == "0.5":
            assert float(row["exponent"]) < -0.3
            assert row["converged"] == "True" and int(row["iterations"]) < 20
            assert float(row["difference"]) < 1e-4
        assert (row["converged"] == "True") or int(row["iterations"]) == 20


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


def test_linear_scan_writes_every_round(run, rows):
    folder, names = run("linear_scan", "--lengths 16 --widths 2 --rounds 3")
    assert names == {"metrics.csv", "speed.png"}
    times = rows(folder / "metrics.csv")
    assert len(times) == 2 * 4 * (3 + 1)
    assert all(float(row["milliseconds"]) > 0 for row in times)
    assert "| 16 x 2 | gradient | associative_scan |" in (folder / "summary.md").read_text()


def test_long_gradient_compares_both_ways_and_does_not_run_the_longest_plain_one(run, rows):
    folder, names = run("long_gradient", "--lengths 16 64 --num-units 2")
    assert names == {"results.csv", "memory.png"}
    gradients = rows(folder / "results.csv")
    assert [row["evaluator"] for row in gradients] == 2 * ["two levels"] + 2 * ["plain"]
    assert [bool(row["seconds"]) for row in gradients] == [True, True, True, False]
    assert [bool(row["difference"]) for row in gradients] == [True, False, True, False]
    assert float(gradients[0]["difference"]) < 1e-12


def test_online_learns_by_every_gradient_in_memory_that_does_not_grow(run, rows):
    options = "--delays 2 --num-steps 128 --num-hours 64 --lengths 100 1000"
    folder, names = run("online", options)
    assert names == {
        *("learnt.csv", "planned.csv", "verdicts.json", "online.png", "online_memory.png")
    }
    learnt = rows(folder / "learnt.csv")
    gradients = ["exact", "TBPTT 4", "TBPTT 16"]
    assert [row["learner"] for row in learnt] == 2 * gradients
    assert all(0 < float(row["errors"]) < 2 for row in learnt)
    sizes = [float(row["kibibytes"]) for row in rows(folder / "planned.csv")]
    assert sizes[0] == sizes[1] and sizes[3] > 9 * sizes[2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("newton --lengths 64 32", "--lengths must be one or more, rising, at least 1, got 64 32"),
        ("newton --scales 0", "--scales must be one or more, each once, finite and above 0, got 0"),
        ("newton --max-iterations 0", "--max-iterations must be at least 1, got 0"),
        ("linear_scan --lengths 0 8", "--lengths must be one or more from 1 on, got 0 8"),
        ("linear_scan --widths 8", "--widths must be 2, one for each length, got 8"),
        ("long_gradient --lengths 8 8", "--lengths must be one or more, rising, at least 1"),
        ("online --models lru", "--models must be among LRU GRU two LRUs, each once, got lru"),
        ("long_gradient --num-units 0", "--num-units must be at least 1, got 0"),
    ],
)
def test_wrong_options_are_one_line_and_leave_no_file(options, expected, refused):
    name, *options = options.split()
    assert expected in refused(name, options)
