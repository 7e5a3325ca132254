"""Digits: a small run whole and in prefixes, a stopped training, and bad options."""

import json

import jax
import numpy as np
import pytest

from experiments.data.digits import load_digits
from experiments.digits import measure, report, training
from experiments.digits.config import Config
from experiments.digits.model import sized
from experiments.digits.results import Baselines, Counted, Growth, Reach, Times
from experiments.digits.task import make_split, make_tasks
from experiments.frame import cli
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import failed_rows
from experiments.frame.legacy import html_page
from experiments.frame.run_folder import RunFolder

SMALL = Config(
    models=("gru",), num_params=1000, seeds=1, epochs=2, rounds=1, lengths=(4, 8), quick=True
)
RUN = {"status": "complete", "seconds": 1, "options": {}, "environment": {}}


@pytest.fixture(scope="module")
def results(tmp_path_factory, compiled_once):
    return list(measure(SMALL, Checkpoints(tmp_path_factory.mktemp("run"), {})))


@pytest.fixture(scope="module")
def tasks():
    digits = load_digits()
    split = make_split(digits.labels, SMALL.split_seed)
    return make_tasks(digits, split, SMALL.permutation_seed)


def test_every_prefix_of_a_run_has_a_report(results, tmp_path):
    kinds = [Baselines, training.Trained, Counted, Reach, Times, Growth]
    assert [type(one) for one in results] == kinds
    for number in (1, 2, 4, 6):
        with RunFolder.create("digits", tmp_path / str(number)) as folder:
            page = report(SMALL, results[:number], folder)
            text = html_page(page, RUN, folder.partial)
            folder.keep()
        assert text.count("data:image/png;base64,") == {1: 0, 2: 2, 4: 3, 6: 5}[number]
        assert text.count(">not run<") == {1: 12, 2: 12, 4: 9, 6: 8}[number]
    rows = (tmp_path / "6/results.csv").read_text().splitlines()
    assert [row.split(",")[1:3] for row in rows[4:]] == [["in order", "0"], ["permuted", "0"]]
    assert len((tmp_path / "6/metrics.csv").read_text().splitlines()) == 1 + 2 * 2 * 22
    assert json.loads((tmp_path / "6/reach.json").read_text()).keys() == {"gru"}


def test_predictions_are_those_of_the_model_row_by_row(results, tasks):
    trained = results[1]
    logits = training.last_logits(trained.sized.model)
    for index, task in enumerate(tasks):
        one = jax.tree.map(lambda leaf, index=index: leaf[index], trained.params)
        some = logits(one, task.xs[task.split.test[-7:]]).argmax(axis=-1)
        np.testing.assert_array_equal(trained.predicted[index, -7:], some)
    assert trained.predicted.shape == (2, 397)


def test_minibatches_hold_every_training_digit_once(tasks):
    xs, labels = training.minibatches(SMALL, tasks, 3)
    assert xs.shape == (2, 22, 50, 64, 1)
    for index, task in enumerate(tasks):
        seen = np.sort(np.asarray(xs[index]).reshape(1100, 64), axis=0)
        np.testing.assert_array_equal(seen, np.sort(task.xs[task.split.training, :, 0], axis=0))
    np.testing.assert_array_equal(labels[0], labels[1])
    again, other = (training.minibatches(SMALL, tasks, epoch)[0] for epoch in (3, 4))
    np.testing.assert_array_equal(xs, again)
    assert not np.array_equal(xs, other)


def test_a_training_that_was_stopped_goes_on_to_the_same_bits(
    results, tasks, tmp_path, monkeypatch
):
    checkpoints, model = Checkpoints(tmp_path, {}), sized("gru", SMALL)
    monkeypatch.setattr(training, "EVERY", 1)

    def stop(epochs):
        if epochs == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training.train(SMALL, model, tasks, checkpoints, stop)
    resumed = training.train(SMALL, model, tasks, checkpoints, lambda epochs: None)
    for name, values in results[1].history.items():
        np.testing.assert_array_equal(resumed.history[name], values)
    np.testing.assert_array_equal(resumed.predicted, results[1].predicted)


def test_a_failed_training_is_in_no_mean(results, tasks):
    trained = results[1]
    assert not trained.failed.any() and len(trained.accuracy(tasks[0])) == 1
    history = {"loss": np.array([[1.0, 2.0], [np.nan, 1.0]])}
    failed = failed_rows(history, {"w": np.ones((2, 3))})
    assert failed.tolist() == [False, True]
    assert len(trained._replace(failed=failed).accuracy(tasks[1])) == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--models", "gru", "perceptron"], "--models must be among elman gru"),
        (["--batch-size", "30"], "--batch-size must be a divisor of 1100, got 30"),
        (["--lengths", "64"], "--lengths must be two or more, rising"),
        (["--num-params", "10"], "--num-params must be at least 1000, got 10"),
        (["--split-seed", "-1"], "--split-seed must be from 0 to 2147483647, got -1"),
        (["--weight-decay", "inf"], "--weight-decay must be finite and at least 0, got inf"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["digits", *options]) == 2
    err = capsys.readouterr().err
    assert expected in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())
