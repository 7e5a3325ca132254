"""The experiment on few short numbers: what it writes, what an interrupted run leaves."""

import json

import jax
import numpy as np
import pytest

from experiments.data.spelled import PAD, STOP
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.models import count_params
from experiments.translate.config import KINDS, UPDATES_PER_EPOCH, Config
from experiments.translate.measure import initial_params, matched_widths, measure, settings_of
from experiments.translate.report import report

TINY = Config(
    languages=("en", "de"),
    models=("fixed", "dot"),
    num_digits=2,
    numbers=40,
    held_out=9,
    longest=12,
    width=8,
    kept=(2,),
    seeds=1,
    updates=UPDATES_PER_EPOCH,
    batch_size=4,
)
FIGURES = {"attention.png", "bottleneck.png", "lengths.png", "training.png"}


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory):
    return list(measure(TINY, Checkpoints(tmp_path_factory.mktemp("run"), {})))


def test_answers_are_those_of_the_whole_model_and_of_its_own_prefix(prefixes):
    results = prefixes[-1].measured
    assert [one.setting.label for one in results] == [
        "fixed",
        "dot attention",
        "fixed, 2 of 8 units",
    ]
    for one in results:
        forced, written = one.answers.forced, one.answers.written
        assert np.isfinite(one.fitted.history["loss"]).all()
        assert one.fitted.history["loss"].shape == (1, 1, UPDATES_PER_EPOCH)
        np.testing.assert_array_equal(forced[..., 0], written[..., 0])
        # Greedy writing stays with the truth as long as every token before it is right.
        np.testing.assert_array_equal(one.exact, one.all_forced)
        stopped = (written == STOP).cumsum(axis=-1) - (written == STOP) > 0
        assert (written[stopped] == PAD).all()
        assert not (written[~stopped] == PAD).all()
    assert not np.array_equal(results[0].answers.written, results[2].answers.written)


def test_weights_are_on_the_source_alone(prefixes):
    fixed, dot, _ = prefixes[-1].measured
    assert fixed.answers.weights is None
    weights, real = dot.answers.weights[0], dot.pairs.targets[:, 1:] != PAD
    np.testing.assert_allclose(weights.sum(-1), real, atol=1e-5)
    assert not weights[np.broadcast_to((dot.pairs.sources == PAD)[:, None], weights.shape)].any()


def test_every_prefix_of_the_results_has_a_report(prefixes, written, rows):
    for number, results in enumerate(prefixes, 1):
        path = written(report(TINY, results))
        expected = FIGURES if number == 3 else FIGURES - {"bottleneck.png"}
        expected = expected if number > 1 else expected - {"attention.png"}
        assert {file.name for file in path.glob("*.png")} == expected
        assert (path / "report.html").read_text().count("data:image/png") == len(expected)
        assert len(rows(path / "results.csv")) == number
        assert len(rows(path / "metrics.csv")) == number * UPDATES_PER_EPOCH
        num_pairs = len(results.task.held_out.numbers)
        assert len(rows(path / "answers.csv")) == number * num_pairs
        words = [one["word"] for one in json.loads((path / "verdicts.json").read_text())]
        # No order of ones and tens: after 50 updates hardly anything is right.
        assert words[1:5] == (["FAIL"] * 3 if number > 1 else ["not run"] * 3) + ["not run"]
        assert (words[5] == "not run") == (number < 3) and words[7] == "pass"


def test_four_models_have_about_as_many_parameters():
    config = Config()
    widths = matched_widths(config)
    assert list(widths) == list(KINDS) and widths["fixed"] == config.width

    def num_params(kind):
        return count_params(jax.eval_shape(lambda: initial_params(kind, widths[kind], 0)))

    counts = list(map(num_params, KINDS))
    assert max(counts) <= 1.03 * min(counts), counts
    settings = settings_of(config, widths)
    assert len({setting.label for setting in settings}) == len(settings) == 4 + 2
    assert [setting.is_probe for setting in settings] == 4 * [False] + 2 * [True]
    assert settings[-1].flags.sum() == config.kept[-1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--languages", "en", "xx"],
            "--languages must be among en de fr es it, each once, got en xx",
        ),
        (["--languages", "en", "en"], "each once, got en en"),
        (
            ["--models", "lstm"],
            "--models must be among fixed reversed dot additive, each once, got lstm",
        ),
        (["--num-digits", "9"], "--num-digits must be from 2 to 6, got 9"),
        (["--longest", "3"], "--longest must be at least 12, got 3"),
        (["--kept", "80"], "--kept must be from 1 to 79, each once, got 80"),
        (["--updates", "30"], "--updates must be a positive multiple of 50, got 30"),
        (["--learning-rate", "nan"], "--learning-rate must be finite and above 0, got nan"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, refused):
    assert expected in refused("translate", options)
