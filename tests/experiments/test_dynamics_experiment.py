"""The dynamics experiment: its tasks, a network whose points are known, and a small run."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.dynamics.config import Config
from experiments.dynamics.expect import NEIGHBOURS, between, eight, indices
from experiments.dynamics.measure import analyse
from experiments.dynamics.task import FLIP_FLOP, NUM_BITS, tasks
from experiments.frame import cli

pytestmark = pytest.mark.usefixtures("compiled_once")
SMALL = Config(num_units=NUM_BITS, num_starts=300, num_steps=20)


def test_targets_are_those_of_a_loop():
    flip_flop, evidence, leaky = tasks([3.0])
    draw = jax.jit(functools.partial(flip_flop.draw, shape=(2, 50)))
    xs, targets = map(np.asarray, draw(jax.random.key(0)))
    held = xs[:, 0]
    for x, target in zip(np.moveaxis(xs, 1, 0), np.moveaxis(targets, 1, 0), strict=True):
        held = np.where(x != 0, x, held)
        np.testing.assert_array_equal(held, target)
    for task, decay in ((evidence, 1.0), (leaky, np.exp(-1 / 3))):
        draw = jax.jit(functools.partial(task.draw, shape=(4, 30)))
        xs, targets = map(np.asarray, draw(jax.random.key(1)))
        total = np.zeros((4, 1))
        for step in range(30):
            total = decay * total + xs[:, step]
            np.testing.assert_allclose(targets[:, step], total, atol=1e-5)
        assert (xs[:, 0] != 0).all() and (xs[:, -1] == 0).all()


def test_three_bistable_units_are_a_flip_flop():
    """Each unit holds a bit by itself, so there are 3 · 3 · 3 points, and pulses set the units."""
    recurrent = jr.cells.ElmanParams(3 * jnp.eye(3), 1.5 * jnp.eye(3), jnp.zeros(3))
    readout = jr.dense(NUM_BITS).init(jax.random.key(0), NUM_BITS)
    readout = jax.tree.map(lambda leaf: jnp.eye(3) if leaf.ndim == 2 else 0 * leaf, readout)
    task = tasks([3.0])[0]
    assert task.name == FLIP_FLOP
    analysed = analyse(SMALL, task, "elman", (recurrent, readout))
    assert np.bincount(np.asarray(analysed.points.num_unstable)).tolist() == [8, 12, 6, 1]
    assert analysed.index_sum == 1 and analysed.joined == NEIGHBOURS
    for judge in (eight, between, indices):
        measured, passed = judge([analysed])
        assert passed, measured
    missing = analysed._replace(points=analysed.points.only(np.arange(27) > 0))
    assert not indices([missing._replace(outputs=analysed.outputs[1:])])[1]


@pytest.mark.slow
def test_a_small_run_writes_everything(tmp_path, rows):
    options = ["--cells", "elman", "--num-units", "3", "--num-steps", "20", "--updates", "50"]
    options += ["--num-starts", "300", "--time-constants", "5"]
    assert cli.main(["dynamics", "--quick", *options, "--out", str(tmp_path / "run")]) == 0
    names = ["config.json", "flow.png", "metrics.csv", "points.csv", "report.html"]
    names += ["results.csv", "seconds.json", "summary.md", "time_constants.png", "verdicts.json"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names
    points = rows(tmp_path / "run" / "points.csv")
    results = rows(tmp_path / "run" / "results.csv")
    assert [row["task"] for row in results] == ["flip-flop", "evidence", "leak 5"]
    assert len(points) == sum(int(row["fixed"]) + int(row["slow"]) for row in results)
    verdicts = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    assert len(verdicts) == 7 and all(one["passed"] is not None for one in verdicts)
