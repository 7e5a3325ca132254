"""Digits: a small run whole and in prefixes, a stopped training, and bad options."""

import json

import jax
import numpy as np
import pytest

from experiments.digits import train
from experiments.digits.config import Config
from experiments.digits.measure import measure
from experiments.digits.model import sized
from experiments.digits.report import report
from experiments.digits.task import load_digits, make_split, make_tasks
from experiments.frame.checkpoints import Checkpoints

pytestmark = pytest.mark.slow  # small runs of the whole experiment

SMALL = Config(
    models=("gru",), num_params=1000, seeds=1, epochs=2, rounds=1, lengths=(4, 8), quick=True
)


@pytest.fixture(scope="module")
def results(tmp_path_factory, compiled_once):
    return list(measure(SMALL, Checkpoints(tmp_path_factory.mktemp("run"), {})))


@pytest.fixture(scope="module")
def tasks():
    digits = load_digits()
    split = make_split(digits.labels, SMALL.split_seed)
    return make_tasks(digits, split, SMALL.permutation_seed)


@pytest.mark.parametrize(
    ("number", "pictures", "not_run"), [(0, 0, 12), (1, 2, 12), (2, 3, 9), (3, 4, 9), (4, 5, 8)]
)
def test_an_interrupted_run_has_a_report(results, number, pictures, not_run):
    assert len(results) == 5
    made = report(SMALL, results[number])
    assert len(made.pictures) == pictures
    assert [verdict.word for verdict in made.verdicts].count("not run") == not_run


def test_a_whole_run_is_written(results, written, rows):
    folder = written(report(SMALL, results[-1]))
    ended, updates = rows(folder / "results.csv"), rows(folder / "metrics.csv")
    named = [(row["order"], row["seed"]) for row in ended]
    assert named == [("in order", "0"), ("permuted", "0")]
    assert len(rows(folder / "baselines.csv")) == 3 and len(updates) == 2 * 2 * 22
    assert updates[-1]["validation"] == ended[-1]["validation"]
    assert json.loads((folder / "reach.json").read_text()).keys() == {"gru"}
    seconds = json.loads((folder / "seconds.json").read_text())
    assert seconds.keys() == {"trainings", "compiled", "update", "token", "growth"}


def test_predictions_are_those_of_the_model_row_by_row(results, tasks):
    [trained] = results[-1].trainings
    logits = train.last_logits(trained.sized.model)
    for index, task in enumerate(tasks):
        one = jax.tree.map(lambda leaf, index=index: leaf[index], trained.fitted.params)
        some = logits(one, task.xs[task.split.test[-7:]]).argmax(axis=-1)
        np.testing.assert_array_equal(trained.predicted[index, -7:], some)
    assert trained.predicted.shape == (2, 397)


def test_minibatches_hold_every_training_digit_once(tasks):
    xs, labels = train.minibatches(SMALL, tasks, 3)
    assert xs.shape == (2, 22, 50, 64, 1)
    for index, task in enumerate(tasks):
        seen = np.sort(np.asarray(xs[index]).reshape(1100, 64), axis=0)
        np.testing.assert_array_equal(seen, np.sort(task.xs[task.split.training, :, 0], axis=0))
    np.testing.assert_array_equal(labels[0], labels[1])
    again, other = (train.minibatches(SMALL, tasks, epoch)[0] for epoch in (3, 4))
    np.testing.assert_array_equal(xs, again)
    assert not np.array_equal(xs, other)


def test_a_training_that_was_stopped_goes_on_to_the_same_bits(
    results, tasks, tmp_path, monkeypatch
):
    checkpoints, model = Checkpoints(tmp_path, {}), sized("gru", SMALL)
    monkeypatch.setattr(train, "EVERY", 1)

    def stop(epochs):
        if epochs == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train.train(SMALL, model, tasks, checkpoints, stop)
    resumed = train.train(SMALL, model, tasks, checkpoints, lambda epochs: None)
    [whole] = results[-1].trainings
    for name, values in whole.fitted.history.items():
        np.testing.assert_array_equal(resumed.fitted.history[name], values)
    np.testing.assert_array_equal(resumed.predicted, whole.predicted)


def test_a_failed_training_is_in_no_mean(results, tasks):
    [trained] = results[-1].trainings
    assert not trained.fitted.failed.any() and len(trained.accuracy(tasks[0])) == 1
    failed = trained._replace(fitted=trained.fitted._replace(failed=np.array([False, True])))
    assert len(failed.accuracy(tasks[0])) == 1 and len(failed.accuracy(tasks[1])) == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--models", "gru", "perceptron"], "--models must be among elman gru"),
        (["--batch-size", "30"], "--batch-size must be a divisor of 1100, got 30"),
        (["--lengths", "64"], "--lengths must be two or more, got 64"),
        (["--num-params", "10"], "--num-params must be at least 1000, got 10"),
        (["--split-seed", "-1"], "--split-seed must be from 0 to 2147483647, got -1"),
        (["--weight-decay", "inf"], "--weight-decay must be finite and at least 0, got inf"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, refused):
    assert expected in refused("digits", options)
