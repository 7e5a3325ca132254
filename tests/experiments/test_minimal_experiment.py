"""The minimal experiment: a small run through, an interrupted one that goes on, and bad options."""

import json

import pytest

from experiments.frame import cli
from experiments.minimal.config import Config
from experiments.minimal.measure import settings_to_choose_from
from experiments.minimal.model import Setting

pytestmark = pytest.mark.slow  # small runs of the whole experiment

SMALL = ["--seeds", "1", "--updates", "25", "--overfit-updates", "25", "--widths", "4"]
SMALL += ["--truncations", "120", "--aheads", "1", "--horizon", "2"]
FIGURES = ["baselines.png", "boundaries.png", "forecasts.png", "horizons.png", "training.png"]
ROWS = ["errors.csv", "metrics.csv", "results.csv", "verdicts.json"]


def run(folder, *options):
    return cli.main(["minimal", "--quick", *SMALL, *options, "--out", str(folder)])


def words(folder):
    return [line["word"] for line in json.loads((folder / "verdicts.json").read_text())]


def test_a_small_run_writes_everything_and_an_interrupted_one_goes_on_to_the_same_bits(
    tmp_path, capsys, monkeypatch, stop_after, rows
):
    whole, stopped, resumed = (tmp_path / name for name in ("whole", "stopped", "resumed"))
    with monkeypatch.context() as patch:
        stop_after(patch, 2)  # after the training to choose by
        assert run(stopped) == 130
    assert "--resume" in capsys.readouterr().err
    assert words(stopped) == ["FAIL", *5 * ["not run"]]
    assert "The run was interrupted" in (stopped / "report.html").read_text()
    assert (stopped / "checkpoints").is_dir() and (stopped / "training.png").is_file()

    assert run(resumed, "--resume", str(stopped)) == 0
    assert run(whole) == 0
    texts = ["config.json", "report.html", "seconds.json", "summary.md"]
    assert sorted(path.name for path in whole.iterdir()) == sorted([*ROWS, *FIGURES, *texts])
    for name in (*ROWS, "summary.md"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes(), name

    # 25 updates explain too little of the short sequence.
    verdicts = words(whole)
    assert verdicts[0] == "FAIL" and verdicts[1:4] == ["pass"] * 3 and verdicts[5] == "pass"
    seeds = rows(whole / "results.csv")
    assert [(row["purpose"], row["status"], row["provoked"]) for row in seeds] == [
        ("overfit", "ok", "False"),
        ("overfit", "failed", "True"),
        ("choice", "ok", "False"),
        ("choice", "ok", "False"),
        ("test", "ok", "False"),
        ("test", "ok", "False"),
    ]
    assert {row["evaluator"] for row in seeds} == {"sequential()"}
    assert len(rows(whole / "metrics.csv")) == 6 * 25
    assert len(rows(whole / "errors.csv")) == 10 * 15 * 36
    report = (whole / "report.html").read_text()
    assert report.count("data:image/png;base64,") == len(FIGURES)
    for expected in ("1 overfits a short sequence", "seasonal naive with drift", "best baseline"):
        assert expected in report


def test_the_settings_to_choose_from_are_a_cross():
    config = Config(widths=(8, 16, 32), truncations=(1, 6, 120), aheads=(1, 3))
    sizes = [(8, 120, 1), (16, 120, 1), (32, 120, 1), (16, 1, 1), (16, 6, 1), (16, 120, 3)]
    expected = [Setting(width, truncation, 0.7, ahead) for width, truncation, ahead in sizes]
    assert settings_to_choose_from(config, 0.7) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--updates", "30"], "--updates must be a positive multiple of 25, got 30"),
        (["--widths", "0"], "--widths must be one or more from 1 on, each once, got 0"),
        (["--widths"], "--widths"),
        (["--truncations", "6", "6"], "--truncations must be one or more from 1 on, each once"),
        (["--test-from", "2015"], "--test-from must be from 2012 to 2014, got 2015"),
        (["--aheads", "0"], "--aheads must be one or more from 1 on, each once, got 0"),
        (["--horizon", "13"], "--horizon must be from 2 to 12, got 13"),
        (["--learning-rate", "inf"], "--learning-rate must be finite and above 0, got inf"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--resume", "nowhere"], "nowhere has no checkpoint to go on from"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(options, expected, refused):
    assert expected in refused("minimal", options)


def test_a_place_that_cannot_be_written_is_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert run(tmp_path / "file/run") == 2
    assert "cannot write to" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"
