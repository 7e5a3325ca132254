"""Tagging: packed and padded in float64, a small run whole and in prefixes, and what can fail."""

import json

import jax
import numpy as np
import pytest

from experiments import tagging
from experiments.frame import cli
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitted
from experiments.frame.legacy import html_page
from experiments.frame.run_folder import RunFolder
from experiments.tagging import layouts, report, task, training, verdicts
from experiments.tagging.config import Config
from experiments.tagging.model import initial_params, make_loss, make_model
from experiments.tagging.results import Baselines, Layouts, Tagged, Truth

SMALL = Config(
    num_params=2500, num_features=4, seeds=1, epochs=2, rows=8, row_length=128,
    padded_updates=2, rounds=1, quick=True,
)  # fmt: skip
RUN = {"status": "complete", "seconds": 1, "options": {}, "environment": {}}


@pytest.fixture(scope="module", autouse=True)
def few_files():
    """One file in each part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "QUICK_TRAINING", ("copy",))
        patch.setattr(task, "QUICK_VALIDATION", ("bisect",))
        patch.setattr(task, "QUICK_TEST", ("queue",))
        yield


@pytest.fixture(scope="module")
def results(tmp_path_factory, compiled_once):
    """Those of a run of the forward model, and the same again in the name of the other one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tagging, "DIRECTIONS", ("forward",))
        patch.setattr(layouts, "NUM_BUCKETS", 1)
        checkpoints = Checkpoints(tmp_path_factory.mktemp("run"), {})
        counted, tagged, compared = tagging.measure(SMALL, checkpoints)
    others = (one._replace(direction="bidirectional") for one in (tagged, compared))
    return [counted, tagged, next(others), compared, next(others)]


def test_packed_and_padded_have_the_same_gradient(x64):
    paragraphs = sorted(task.make_task(True, 128).training.paragraphs, key=lambda p: len(p.labels))
    some = [one for one in paragraphs if len(one.labels) > 3][:12]
    model = make_model("bidirectional", Config(num_params=2500, num_features=3))
    params = jax.tree.map(lambda leaf: leaf.astype("float64"), initial_params(model, 0))
    loss = jax.jit(jax.value_and_grad(make_loss(model)))
    length = len(some[-1].labels) + 5
    packed, alone = (rows(some, 12, length) for rows in (task.packed_rows, task.padded_rows))
    (one, gradient), (other, wanted) = loss(params, packed), loss(params, alone)
    assert abs(one - other) < 1e-13
    assert layouts._difference(gradient, wanted) < 1e-12
    # A row without its resets lets one paragraph run into the next.
    mixed, _ = loss(params, packed._replace(reset=np.zeros_like(packed.reset)))
    assert abs(mixed - other) > 1e-6


def test_every_prefix_of_a_run_has_a_report(results, tmp_path):
    assert [type(one) for one in results] == [Baselines, Tagged, Tagged, Layouts, Layouts]
    for number in (1, 2, 3, 5):
        with RunFolder.create("tagging", tmp_path / str(number)) as folder:
            page = report(SMALL, results[:number], folder)
            text = html_page(page, RUN, folder.partial)
            folder.keep()
        words = [
            one["word"] for one in json.loads((tmp_path / f"{number}/verdicts.json").read_text())
        ]
        assert words.count("not run") == {1: 5, 2: 4, 3: 2, 5: 0}[number]
        assert text.count("data:image/png;base64,") == {1: 0, 2: 3, 3: 3, 5: 4}[number]


def test_layouts_count_what_was_computed(results):
    for one in results[-2:]:
        assert one.gradient_difference.max() < 1e-5
        np.testing.assert_allclose(one.losses["packed"], one.losses["padded"], rtol=1e-5)
        assert one.losses["packed"][1] < one.losses["packed"][0]
        assert len({*one.characters.values()}) == 1  # every layout holds every character
        assert one.slots[layouts.BUCKETED] >= one.characters["packed"]
        assert one.slots["packed"] == 2 * 8 * 128 < one.slots["padded"]


def test_a_training_that_was_stopped_goes_on_to_the_same_bits(results, tmp_path, monkeypatch):
    small = task.make_task(True, 128)
    checkpoints = Checkpoints(tmp_path, {})

    def stop(epochs):
        if epochs == 1:  # of the two, behind the checkpoint
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "EVERY", 1)
    with pytest.raises(KeyboardInterrupt):
        next(training.train(SMALL, "forward", small, checkpoints, stop))
    resumed = next(training.train(SMALL, "forward", small, checkpoints, lambda epochs: None))
    whole = results[1]
    for name, values in whole.fitted.history.items():
        np.testing.assert_array_equal(resumed.fitted.history[name], values)
    np.testing.assert_array_equal(resumed.predicted, whole.predicted)


def made(first_forward, first_both, last_both=1.0, baseline=0.1, differ=0.0, slow=1.0, **fitted):
    """Results on 100 keywords `if`, `for`…: the share told right at first and last characters."""
    place = np.tile([0, 1, 2], 100)
    truth = Truth(np.ones(300, np.int32), place, np.full(300, 3), np.zeros(300, np.int32))

    def told(first, last):
        number = np.repeat(np.arange(100), 3)
        right = np.where(place == 0, number < 100 * first, number < 100 * last)
        return right.astype(np.int32)

    counted = {"character alone": (np.arange(300) < 300 * baseline).astype(np.int32)}
    fit = Fitted({}, {}, 1, fitted.get("failed", False), 0.0)
    losses = {"packed": np.ones(2), "padded": np.ones(2)}
    layout = Layouts(
        "forward", losses, np.full(2, differ), {"packed": 5, "padded": 9},
        {"packed": 4, "padded": 4}, {"packed": np.full(3, slow), "padded": np.full(3, 2.0)}, {},
    )  # fmt: skip
    return [
        Baselines(truth, counted, ["a"], {}, np.ones(1)),
        Tagged("forward", 0, fit, told(first_forward, 1.0)),
        Tagged("bidirectional", 0, fit, told(first_both, last_both)),
        layout,
    ]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (made(0.5, 0.9), "pass pass pass pass pass"),
        (made(0.5, 0.55), "pass FAIL pass pass pass"),
        (made(0.5, 0.9, last_both=0.9), "pass FAIL pass pass pass"),
        (made(0.9, 0.5), "FAIL FAIL pass pass pass"),
        (made(0.5, 0.9, baseline=0.9), "pass pass FAIL pass pass"),
        (made(0.5, 0.9, differ=1e-3), "pass pass pass FAIL pass"),
        (made(0.5, 0.9, slow=3.0), "pass pass pass pass FAIL"),
        (made(0.5, 0.9, failed=True), "not run not run not run pass pass"),
    ],
)
def test_every_expectation_can_fail(results, words):
    judged = verdicts.verdicts(results)
    assert " ".join(one.word for one in judged) == words


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--row-length", "64"], "--row-length must be from 128 to 4096, got 64"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--num-params", "100"], "--num-params must be at least 2500, got 100"),
        (["--learning-rate", "nan"], "--learning-rate must be finite and above 0, got nan"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tagging", *options]) == 2
    err = capsys.readouterr().err
    assert expected in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())
