"""The vowels experiment: a small run through, failed seeds, and what padding may not change."""

import json

import jax
import numpy as np
import pytest

import jaxrnn as jr
from experiments.data import vowels
from experiments.frame import cli
from experiments.frame.fitting import Fitted
from experiments.vowels.config import Config
from experiments.vowels.measure import (
    RECURRENCES,
    Trained,
    make_classifier,
    make_score,
    prepare,
    score_padding,
)
from experiments.vowels.report import report

SMALL = ["--num-units", "8", "--padded-lengths", "29", "33"]


def run(folder, *options):
    assert cli.main(["vowels", "--quick", *SMALL, *options, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def scored():
    return prepare(Config())[1]


@pytest.mark.slow
def test_a_small_run_writes_everything_and_comes_out_the_same_again(tmp_path, capsys, rows):
    options = ["--models", "elman", "--epochs", "12", "--seeds", "2", "--learning-rate", "0.03"]
    once = run(tmp_path / "once", *options, "--readouts", "final", "mean")
    assert "elman" in capsys.readouterr().out
    names = ["config.json", "curves.png", "metrics.csv", "padding.csv", "padding.png"]
    names += ["report.html", "results.csv", "seconds.json", "summary.md"]
    assert sorted(path.name for path in once.iterdir()) == names
    assert json.loads((once / "config.json").read_text())["options"]["seeds"] == 2

    results = rows(once / "results.csv")
    kinds = [(row["model"], row["readout"], row["seed"], row["status"]) for row in results]
    assert kinds == [("elman", r, s, "ok") for r in ("final", "mean") for s in ("0", "1")]
    assert all(float(row["accuracy"]) > 0.8 for row in results)

    metrics = rows(once / "metrics.csv")
    assert len(metrics) == 2 * 2 * 12 * 10
    assert float(metrics[119]["loss"]) < float(metrics[0]["loss"])
    assert metrics[119]["accuracy"] == results[0]["accuracy"]
    for name in ("gradient_norm", "recurrent_gradient_norm", "input_gradient_norm"):
        assert all(float(row[name]) > 0 for row in metrics)

    again = run(tmp_path / "again", *options, "--readouts", "final")
    for name in ("metrics.csv", "padding.csv", "results.csv"):
        expected = [row for row in rows(once / name) if row["readout"] == "final"]
        assert rows(again / name) == expected


def test_a_run_that_diverges_is_kept_as_failed(tmp_path, rows):
    folder = run(
        tmp_path / "run",
        *("--models", "elman", "--readouts", "final", "--epochs", "2", "--seeds", "2"),
        *("--learning-rate", "1e38"),
    )
    results = rows(folder / "results.csv")
    assert [row["status"] for row in results] == ["failed", "failed"]
    assert "| 2 of 2 |" in (folder / "summary.md").read_text()


def test_a_failed_seed_is_counted_and_not_averaged():
    history = {
        name: np.array([[1.0, 0.5], [1.0, np.nan], [1.0, 0.5]])
        for name in ("loss", "scored_loss", "recurrent_gradient_norm", "input_gradient_norm")
    }
    history["accuracy"] = np.array([[0.1, 0.9], [0.1, 0.2], [0.1, 0.7]])
    fitted = Fitted(None, history, 10, np.array([False, True, False]), 1.0)
    trained = Trained("lstm", "mean", fitted, ())
    assert trained.summary == "80.0 ± 14.1 %, 1 failed"
    made = report(Config(epochs=2), [trained]).completed()
    expected = ("lstm", "mean", "10", "80.0 ± 14.1", "70.0", "90.0", "1 of 3", "1")
    assert made.tables[0].rows == [expected]
    assert [row["status"] for row in made.files["results.csv"]] == ["ok", "failed", "ok"]
    assert made.failed[0].startswith("lstm, mean: 1 of 3 seeds")


@pytest.mark.parametrize("model", list(RECURRENCES))
def test_a_mask_makes_the_padded_length_irrelevant(model, scored, x64):
    few = vowels.Recordings(*(field[::9] for field in scored))
    few = few._replace(xs=few.xs.astype(np.float64))
    classifier = make_classifier(model, "final", 8)
    params = classifier.init(jax.random.key(0), vowels.NUM_COEFFICIENTS)

    @jax.jit
    def masked_logits(recordings):
        mask = jr.mask_from_lengths(recordings.seq_lengths, recordings.xs.shape[1])
        return classifier.logits(params, recordings.xs, mask)

    expected = masked_logits(few)
    padded = masked_logits(vowels.padded_to(few, 60))
    np.testing.assert_allclose(padded, expected, rtol=1e-10, atol=1e-12)

    of_a_seed = jax.tree.map(lambda leaf: leaf[None], params)
    scores = score_padding(make_score(classifier), of_a_seed, few, (29, 60))
    kept, read = ([score for score in scores if score.masked == masked] for masked in (True, False))
    assert [score.length for score in kept] == [score.length for score in read] == [29, 60]
    assert all(score.changed == 0 for score in kept)
    assert kept[0].accuracy == kept[1].accuracy
    assert all(score.changed > 0 for score in read)


def test_the_final_carry_is_what_the_steps_before_the_padding_leave(scored):
    few = vowels.Recordings(*(field[:2] for field in scored))
    classifier = make_classifier("bilstm", "final", 4)
    params = classifier.init(jax.random.key(0), vowels.NUM_COEFFICIENTS)
    mask = jr.mask_from_lengths(few.seq_lengths, 29)
    logits = classifier.logits(params, few.xs, mask)
    for row, length in enumerate(few.seq_lengths):
        alone = classifier.logits(params, few.xs[row, :length], None)
        np.testing.assert_allclose(logits[row], alone, rtol=1e-5, atol=1e-6)
