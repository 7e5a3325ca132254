"""The memory experiment: a small run, an interrupted one that goes on, claims that can fail."""

import json

import jax
import numpy as np
import pytest

from experiments.frame import cli
from experiments.frame.fitting import Fitted
from experiments.frame.models import count_params
from experiments.memory.config import Config
from experiments.memory.expect import (
    CLAIMS,
    UNKNOWN,
    claim_of,
    disagreements,
    holds,
    judged,
    learns,
)
from experiments.memory.measure import (
    FIRST_STEPS,
    Results,
    Trained,
    longest,
    rows_to_ask_on,
    rows_to_learn_from,
    shares,
)
from experiments.memory.task import MIXERS, NUM_FEATURES, TASKS, make_examples, make_network

pytestmark = pytest.mark.slow  # small runs of the whole experiment

SMALL = (
    "--tasks parity --models signed --longer 1 2 --updates 25 --state-updates 25 --num-params 500 "
    "--test-rows 4 --train-steps 8 --batch-size 4 --history-bits 5 --parity-seeds 1 --num-blocks 1 "
    "--state-units 2 --state-bits 1 2"
).split()
FIGURES = ["counting.png", "lengths.png", "training.png"]
ROWS = ["counting.csv", "metrics.csv", "results.csv", "verdicts.json", "summary.md"]


def run(folder, *options):
    return cli.main(["memory", "--quick", *SMALL, *options, "--out", str(folder)])


def words(folder):
    return [line["word"] for line in json.loads((folder / "verdicts.json").read_text())]


@pytest.mark.usefixtures("compiled_once")
def test_a_small_run_writes_everything_and_an_interrupted_one_goes_on_to_the_same_bits(
    tmp_path, capsys, monkeypatch, stop_after, rows
):
    whole, stopped, resumed = (tmp_path / name for name in ("whole", "stopped", "resumed"))
    with monkeypatch.context() as patch:
        stop_after(patch, 1)  # behind the rounded cells
        assert run(stopped) == 130
    assert "--resume" in capsys.readouterr().err
    assert words(stopped) == ["not run", "pass", "pass", *3 * ["not run"]]
    assert "The run was interrupted" in (stopped / "report.html").read_text()
    assert (stopped / "counting.png").is_file() and not (stopped / "results.csv").exists()

    assert run(resumed, "--resume", str(stopped)) == 0
    assert run(whole) == 0
    texts = ["config.json", "report.html", "seconds.json"]
    assert sorted(path.name for path in whole.iterdir()) == sorted([*ROWS, *FIGURES, *texts])
    for name in ROWS:
        assert (resumed / name).read_bytes() == (whole / name).read_bytes(), name
    assert words(whole) == [*3 * ["pass"], *3 * ["not run"]]
    (one,) = rows(whole / "results.csv")
    assert one["status"] == "ok" and {"right_8_steps", "right_16_steps"} <= set(one)
    assert len(rows(whole / "metrics.csv")) == 25
    assert len(rows(whole / "counting.csv")) == 5 * (1 + 2 + 2)
    report = (whole / "report.html").read_text()
    assert report.count("data:image/png;base64,") == len(FIGURES)
    assert "parity, eigenvalues in (-1, 1): learns it: expected yes, measured no." in report


def test_rows_grow_are_the_same_for_all_models_and_never_those_of_the_test():
    config = Config(
        tasks=("parity", "adding"),
        parity_seeds=2,
        seeds=1,
        updates=100,
        train_steps=24,
        batch_size=8,
        test_rows=5,
    )
    first, is_number = rows_to_learn_from(config, 0)
    last, _ = rows_to_learn_from(config, 3)
    assert [longest(config, epoch) for epoch in range(4)] == [FIRST_STEPS, 16, 24, 24]
    assert first.tokens.shape == (3, 25, 8, 24)
    assert is_number.tolist() == [[False] * 25, [False] * 25, [True] * 25]
    again, _ = rows_to_learn_from.__wrapped__(config, 0)
    assert (again.tokens == first.tokens).all()
    assert first.mask.sum(-1).max() == FIRST_STEPS and last.mask.sum(-1).max() == 24
    assert first.numbers[2].any() and not first.numbers[:2].any()
    assert (first.tokens[0] != first.tokens[1]).any()  # two seeds of one task
    test, is_number = rows_to_ask_on(config)
    assert test.mask.sum(-1).tolist() == 3 * [[24] * 5 + [48] * 5 + [96] * 5 + [192] * 5]
    assert (test.tokens[0] == test.tokens[1]).all() and is_number.tolist() == [False, False, True]
    learnt = last.tokens[0].reshape(-1, 24)
    assert not (test.tokens[0, :5, None, :24] == learnt).all(axis=-1).any()


def test_only_answers_in_the_later_half_count_for_a_length():
    config = Config(train_steps=8, longer=(1, 2), test_rows=1)
    examples = make_examples(TASKS["parity"], np.random.default_rng(0), np.array([8, 16]), 16)
    right = np.zeros((2, 16), bool)
    right[0, :6], right[1, 9:] = True, True
    assert shares(config, right & examples.due, examples).tolist() == [2 / 4, 7 / 8]


def test_the_models_are_the_ten_and_two_twins_and_of_one_size():
    claimed = " ".join(CLAIMS["parity"].values()).split()
    assert set(MIXERS) == set(claimed) and len(MIXERS) == len(claimed) == 12
    for model in MIXERS:
        _, network = make_network(model, 8000, 2)
        params = jax.eval_shape(lambda key: network.init(key, NUM_FEATURES), jax.random.key(0))  # noqa: B023
        assert 0.8 < count_params(params) / 8000 < 1.2, model


def trained(model, *scores, task="parity", losses=(1.0,)):
    losses = np.array(losses)[:, None, None] * np.ones((len(scores), 1, 25))
    fitted = Fitted((), {"loss": losses, "right": losses}, 100, np.zeros(len(scores), bool), 1.0)
    return Trained(model, task, 8, 32, fitted, np.array(scores))


PARITY = Config(tasks=("parity",), parity_seeds=1, longer=(1, 4, 8))


def test_the_seed_that_is_best_before_the_longest_rows_is_judged_on_those():
    one = trained("gru", [0.9, 0.9, 1.0], [1.0, 1.0, 0.2], losses=(0.1, 0.2))
    assert one.chosen.tolist() == [1.0, 1.0, 0.2]
    assert learns(one.chosen) and not holds(one.chosen) and not holds(one.scores).any()
    assert disagreements(one) == ["holds on the longest rows: expected yes, measured no"]
    equal = trained("gru", [1.0, 1.0, 1.0], [1.0, 1.0, 0.2], losses=(0.1, 0.2))
    assert holds(equal.chosen) and holds(equal.scores).tolist() == [True, False]
    failed = trained("gru", [np.nan] * 3, [1.0, 1.0, 0.95], losses=(np.nan, 0.2))
    assert holds(failed.chosen)


def test_what_was_not_learnt_does_not_hold_and_no_claim_is_no_disagreement():
    one = trained("lru", [0.5, 1.0], task="adding")
    assert not learns(one.chosen) and not holds(one.chosen)
    assert claim_of(one) == UNKNOWN and not disagreements(one)


def test_the_expectations_of_parity_pass_only_for_the_known_pattern():
    good = {model: [1.0, 1.0, 1.0] for model in ("gru", "lstm", "slstm", "signed")}
    good |= {model: [1.0, 0.5, 0.5] for model in ("min_gru", "mamba", "mlstm", "positive")}

    def ends(scores):
        results = Results(trained=tuple(trained(*pair) for pair in scores.items()))
        verdicts = judged(PARITY, results)
        assert len(verdicts) == 6
        return [one.passed for one in verdicts[3:]]

    assert ends(good) == [True, True, True]
    assert ends(good | {"lstm": [0.9, 1.0, 1.0]}) == [False, True, True]
    assert ends(good | {"mamba": [1.0, 0.5, 0.95]}) == [True, False, True]
    assert ends(good | {"signed": [1.0, 0.6, 0.65]}) == [True, True, True]
    assert ends(good | {"signed": [1.0, 0.6, 0.55]}) == [True, True, False]
    assert ends(good | {"signed": [1.0, 0.5, 0.9]}) == [True, True, False]
    assert ends({"gru": [1.0, 1.0, 1.0]}) == [None, None, None]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--updates", "30"], "--updates must be a positive multiple of 25, got 30"),
        (["--tasks", "sorting"], "--tasks must be among parity copying"),
        (["--models", "gru", "gru"], "each once, got gru gru"),
        (["--longer", "2", "4"], "--longer must be with a 1 among them, got 2 4"),
        (["--train-steps", "7"], "--train-steps must be at least 8, got 7"),
        (["--state-bits", "4"], "--state-bits must be below --history-bits, times units, got 4"),
        (["--learning-rate", "nan"], "--learning-rate must be finite and above 0, got nan"),
        (["--resume", "nowhere"], "nowhere has no checkpoint to go on from"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, refused):
    assert expected in refused("memory", options)
