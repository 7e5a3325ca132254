"""Tagging: packed and padded in float64, a small run whole and in prefixes, and what can fail."""

import json

import jax
import numpy as np
import pytest

from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitted
from experiments.tagging import layouts, measure, task, train
from experiments.tagging.config import Config
from experiments.tagging.expect import judged
from experiments.tagging.layouts import Comparison, Layout
from experiments.tagging.measure import Results
from experiments.tagging.report import report
from experiments.tagging.train import BOTH, CHAIN, MODELS, Tagged, make_tagger

pytestmark = pytest.mark.slow  # small runs of the whole experiment

SMALL = Config(
    num_params=2500, num_features=4, seeds=1, epochs=2, rows=8, row_length=128,
    padded_updates=2, rounds=1, quick=True,
)  # fmt: skip


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
    """Those of a run of the forward model, and the same again in the names of the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "MODELS", ("forward",))
        patch.setattr(layouts, "NUM_BUCKETS", 1)
        *_, last = measure.measure(SMALL, Checkpoints(tmp_path_factory.mktemp("run"), {}))
    again = (
        tuple(one._replace(model=name) for name in MODELS)
        for (one,) in (last.tagged, last.comparisons)
    )
    return Results(*last[:3], *again)


@pytest.mark.parametrize("name", [BOTH, CHAIN])
def test_packed_and_padded_have_the_same_gradient_and_labels(name, x64):
    paragraphs = sorted(task.make_task(True, 128).training.paragraphs, key=lambda p: len(p.labels))
    some = [one for one in paragraphs if len(one.labels) > 3][:12]
    tagger = make_tagger(name, Config(num_params=2500, num_features=3))
    params = jax.tree.map(lambda leaf: leaf.astype("float64"), tagger.init(0))
    if name == CHAIN:  # scores that say something, which they do not before training
        rng = np.random.default_rng(0)
        params = params[0], jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), params[1])
    loss = jax.jit(jax.value_and_grad(tagger.loss))
    length = len(some[-1].labels) + 5
    packed, (alone,) = task.packed_rows(some, 12, length), task.padded_rows(some, 12, length)
    (one, gradient), (other, wanted) = loss(params, packed), loss(params, alone)
    assert abs(one - other) < 1e-13
    assert layouts.difference(gradient, wanted) < 1e-12
    # A row without its resets lets one paragraph run into the next.
    mixed, _ = loss(params, packed._replace(reset=np.zeros_like(packed.reset)))
    assert abs(mixed - other) > 1e-6
    tell = jax.jit(tagger.told)
    told, wanted = (by_paragraph(rows, tell(params, rows)) for rows in (packed, alone))
    assert told == wanted and len(told) == len(some)


def by_paragraph(rows, told):
    """The characters of each paragraph and what is told of them, in the order of the characters."""
    told, found = np.asarray(told), []
    for row, number in enumerate(np.cumsum(rows.reset, axis=1)):
        for one in np.unique(number[rows.mask[row]]):
            inside = rows.mask[row] & (number == one)
            found.append((rows.characters[row, inside].tolist(), told[row, inside].tolist()))
    return sorted(found)


@pytest.mark.parametrize(
    ("models", "compared", "not_run", "num_pictures"),
    [(0, 0, 6, 0), (1, 0, 5, 3), (2, 0, 3, 3), (3, 0, 2, 3), (3, 3, 0, 4)],
)
def test_every_prefix_of_a_run_has_a_report(
    results, written, rows, models, compared, not_run, num_pictures
):
    so_far = results._replace(
        tagged=results.tagged[:models], comparisons=results.comparisons[:compared]
    )
    folder = written(report(SMALL, so_far))
    words = [one["word"] for one in json.loads((folder / "verdicts.json").read_text())]
    assert words.count("not run") == not_run
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == num_pictures
    assert len(rows(folder / "baselines.csv")) == 3
    assert len(rows(folder / "files.csv")) == 3 + models
    if models:
        trained = rows(folder / "results.csv")
        assert [float(one["accuracy"]) for one in trained] == [
            pytest.approx((one.predicted[0] == results.truth.labels).mean())
            for one in so_far.tagged
        ]
        assert all(float(one["f1_name"]) > 0 for one in trained)


def test_layouts_count_what_was_computed(results):
    for one in results.comparisons:
        assert one.differences.max() < 1e-5
        np.testing.assert_allclose(one.losses["packed"], one.losses["padded"], rtol=1e-5)
        assert one.losses["packed"][1] < one.losses["packed"][0]
        # every layout holds every character
        assert len({layout.characters for layout in one.layouts.values()}) == 1
        packed, padded, bucketed = one.layouts.values()
        assert bucketed.steps >= packed.characters
        assert packed.steps == 2 * 8 * 128 < padded.steps


def test_a_training_that_was_stopped_goes_on_to_the_same_bits(results, tmp_path, monkeypatch):
    small = task.make_task(True, 128)
    checkpoints = Checkpoints(tmp_path, {})

    def stop(epochs):
        if epochs == 1:  # of the two, after the checkpoint
            raise KeyboardInterrupt

    monkeypatch.setattr(train, "EVERY", 1)
    with pytest.raises(KeyboardInterrupt):
        train.train(SMALL, "forward", small, checkpoints, stop)
    resumed = train.train(SMALL, "forward", small, checkpoints, lambda epochs: None)
    for name, values in results.tagged[0].fitted.history.items():
        np.testing.assert_array_equal(resumed.fitted.history[name], values)
    np.testing.assert_array_equal(resumed.predicted, results.tagged[0].predicted)


def made(
    first_forward,
    first_both,
    last_both=1.0,
    chained=1.0,
    baseline=0.1,
    differ=0.0,
    slow=1.0,
    **fitted,
):
    """Results on 100 keywords `if`, `for`…: the share told right at first and last characters."""
    place, one = np.tile([0, 1, 2], 100), np.ones(300, np.int32)
    truth = task.Paragraph(one, one, place, 3 * one, 0 * one)

    def told(first, last):
        number = np.repeat(np.arange(100), 3)
        right = np.where(place == 0, number < 100 * first, number < 100 * last)
        return right.astype(np.int32)

    counted = {"character alone": (np.arange(300) < 300 * baseline).astype(np.int32)}
    fit = Fitted({}, {}, 1, np.array([fitted.get("failed", False)]), 0.0)
    losses = {"packed": np.ones(2), "padded": np.ones(2)}
    laid_out = {
        "packed": Layout(5, 4, np.full(3, slow), 0),
        "padded": Layout(9, 4, np.full(3, 2.0), 0),
    }
    tagged = (
        Tagged("forward", fit, told(first_forward, 1.0)[None]),
        Tagged(BOTH, fit, told(first_both, last_both)[None]),
        Tagged(CHAIN, fit, told(chained, 1.0)[None]),
    )
    compared = (Comparison("forward", losses, np.full(2, differ), laid_out),)
    return Results(None, truth, counted, tagged, compared)


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (made(0.5, 0.9), "pass pass pass pass pass pass"),
        (made(0.5, 0.55), "pass FAIL pass pass pass pass"),
        (made(0.5, 0.9, last_both=0.9), "pass FAIL pass pass pass pass"),
        (made(0.9, 0.5), "FAIL FAIL pass pass pass pass"),
        (made(0.5, 0.9, baseline=0.9), "pass pass FAIL pass pass pass"),
        (made(0.5, 0.9, chained=0.9), "pass pass pass FAIL pass pass"),
        (made(0.5, 0.9, differ=1e-3), "pass pass pass pass FAIL pass"),
        (made(0.5, 0.9, slow=3.0), "pass pass pass pass pass FAIL"),
        (made(0.5, 0.9, failed=True), "not run not run not run not run pass pass"),
    ],
)
def test_every_expectation_can_fail(results, words):
    assert " ".join(one.word for one in judged(results)) == words


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--row-length", "64"], "--row-length must be from 128 to 4096, got 64"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--num-params", "100"], "--num-params must be at least 2500, got 100"),
        (["--learning-rate", "nan"], "--learning-rate must be finite and above 0, got nan"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, refused):
    assert expected in refused("tagging", options)
