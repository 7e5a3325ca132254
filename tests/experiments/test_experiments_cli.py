"""The command line: what a person does wrong is one line, and a run is written whole or not."""

import dataclasses
import importlib.util
import json
import os
import signal
import sys
from types import SimpleNamespace

import pytest

from experiments.frame import cli
from experiments.frame.options import Count, Options
from experiments.frame.progress import progress_bar
from experiments.frame.report import Report
from experiments.frame.run_folder import RunFolder

FILES = ["config.json", "report.html", "results.csv", "summary.md"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Options):
    """A small experiment."""

    QUICK = {"rounds": 1}

    rounds: Count = 3
    """How many results."""


def measure(config):
    for number in range(config.rounds):
        yield [*range(number + 1)]


def report(config, results):
    return Report("It counts.", files={"results.csv": [{"number": one} for one in results]})


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """An experiment called `fake`, in an empty working directory."""
    module = SimpleNamespace(Config=Config, measure=measure, report=report)
    monkeypatch.setitem(cli.GROUPS, "Fakes", {"fake": "Fake."})
    monkeypatch.setitem(cli.EXPERIMENTS, "fake", "Fake.")
    monkeypatch.setitem(sys.modules, "experiments.fake", SimpleNamespace())
    for part in ("config", "measure", "report"):
        monkeypatch.setitem(sys.modules, f"experiments.fake.{part}", module)
    monkeypatch.chdir(tmp_path)
    return module


def everything_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def one_line(capsys):
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.endswith("\n"), err
    return err


def test_without_a_name_it_lists_the_experiments(capsys):
    assert cli.main([]) == 0
    out = capsys.readouterr().out
    for name, line in cli.EXPERIMENTS.items():
        assert any(name in row and line in row for row in out.splitlines())
    titles = [row for row in out.splitlines() if row in cli.GROUPS]
    assert titles == list(cli.GROUPS) and titles[0] == "Start here"


@pytest.mark.parametrize("name", list(cli.EXPERIMENTS))
def test_help_explains_every_option(name, capsys):
    assert cli.main([name, "--help"]) == 0
    out = capsys.readouterr().out
    config = cli._load(name).Config
    for field in dataclasses.fields(config):
        assert f"--{field.name.replace('_', '-')}" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["vowel"], "unknown experiment 'vowel'"),
        (["vowels", "--epohs", "3"], "--epohs"),
        (["vowels", "--epochs", "many"], "--epochs"),
        (["vowels", "--epochs"], "--epochs"),
        (["vowels", "--epochs", "-3"], "--epochs must be at least 1, got -3"),
        (["vowels", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["vowels", "--first-seed", "-1"], "--first-seed"),
        (["vowels", "--models", "lstm", "transformer"], "transformer"),
        (["vowels", "--models"], "--models"),
        (["vowels", "--models", "lstm", "lstm"], "each once, got lstm lstm"),
        (["vowels", "--learning-rate", "nan"], "--learning-rate"),
        (["vowels", "--gradient-clip", "0"], "--gradient-clip"),
        (["vowels", "--input-noise", "-1"], "--input-noise"),
        (["vowels", "--padded-lengths", "28"], "--padded-lengths must be at least 29, got 28"),
        (["vowels", "--batch-size", "32"], "--batch-size must be a divisor of 270, got 32"),
        (["vowels", "--evaluate-on", "train"], "--evaluate-on"),
        (["vowels", "surplus"], "surplus"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(
    arguments, expected, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert expected in one_line(capsys)
    assert everything_in(tmp_path) == []


def test_missing_extras_are_named(fake, capsys, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "aeon" else find_spec(name)
    )
    assert cli.main(["fake"]) == 2
    line = one_line(capsys)
    assert "aeon" in line and "pip install '.[experiments]'" in line


def test_a_run_writes_config_and_results(fake, tmp_path):
    assert cli.main(["fake", "--rounds", "2", "--out", "deep/run"]) == 0
    assert everything_in(tmp_path / "deep") == ["run", *(f"run/{name}" for name in FILES)]
    assert (tmp_path / "deep/run/results.csv").read_text() == "number\n0\n1\n"
    config = json.loads((tmp_path / "deep/run/config.json").read_text())
    assert config["status"] == "complete"
    assert config["options"] == {"out": "deep/run", "quick": False, "rounds": 2}
    assert {"jax", "jaxlib", "numpy", "jaxrnn"} <= set(config["environment"]["versions"])
    assert config["environment"]["platform"]


def test_quick_changes_the_defaults_and_gives_way_to_other_options(fake, tmp_path):
    assert cli.main(["fake", "--quick", "--out", "one"]) == 0
    assert cli.main(["fake", "--quick", "--rounds", "2", "--out", "two"]) == 0
    one, two = (json.loads((tmp_path / run / "config.json").read_text()) for run in ("one", "two"))
    assert (one["options"]["rounds"], one["options"]["quick"]) == (1, True)
    assert (two["options"]["rounds"], two["options"]["quick"]) == (2, True)


def test_runs_of_the_same_second_stand_side_by_side(fake, tmp_path):
    for _ in range(3):
        assert cli.main(["fake"]) == 0
    runs = list((tmp_path / "runs" / "fake").iterdir())
    assert len(runs) == 3
    assert all(everything_in(run) == FILES for run in runs)


def test_a_folder_with_something_in_it_is_refused_before_any_work(fake, capsys, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.csv").write_text("mine")
    fake.measure = lambda config: pytest.fail("it started to work")
    assert cli.main(["fake", "--out", "run"]) == 2
    assert "run already exists" in one_line(capsys)
    assert everything_in(tmp_path) == ["run", "run/results.csv"]
    assert (tmp_path / "run" / "results.csv").read_text() == "mine"


def test_an_empty_folder_is_taken(fake, tmp_path):
    (tmp_path / "run").mkdir()
    assert cli.main(["fake", "--out", "run"]) == 0
    assert everything_in(tmp_path / "run") == FILES


def test_a_folder_filled_during_the_run_is_left_alone(fake, tmp_path):
    def measure_while_another_run_ends(config):
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "results.csv").write_text("mine")
        yield [0]

    fake.measure = measure_while_another_run_ends
    assert cli.main(["fake", "--out", "run"]) == 0
    assert (tmp_path / "run" / "results.csv").read_text() == "mine"
    assert (tmp_path / "run-2" / "results.csv").read_text() == "number\n0\n"


def test_a_place_that_cannot_be_written_is_one_line(fake, capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    fake.measure = lambda config: pytest.fail("it started to work")
    assert cli.main(["fake", "--out", "file/run"]) == 2
    assert "cannot write to" in one_line(capsys)
    assert everything_in(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_one_line(fake, capsys, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert cli.main(["fake", "--out", "locked/run"]) == 2
    assert "Permission denied" in one_line(capsys)


def test_a_disk_that_fails_while_writing_leaves_nothing(fake, capsys, tmp_path, monkeypatch):
    def fail(folder, name, text):
        assert everything_in(tmp_path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "write_text", fail)
    assert cli.main(["fake", "--out", "run"]) == 2
    assert "No space left on device" in one_line(capsys)
    assert everything_in(tmp_path) == []


def test_an_interrupt_keeps_what_was_done(fake, capsys, tmp_path):
    def interrupted(config):
        with progress_bar(total=2) as bar:
            bar.advance()
            yield ["first"]
            os.kill(os.getpid(), signal.SIGINT)
            bar.advance()
            yield ["first", "second"]

    fake.measure = interrupted
    assert cli.main(["fake", "--out", "run"]) == 130
    assert "interrupted: what was done so far is in" in one_line(capsys)
    assert (tmp_path / "run" / "results.csv").read_text() == "number\nfirst\n"
    assert json.loads((tmp_path / "run/config.json").read_text())["status"] == "interrupted"


def test_an_interrupt_before_the_first_result_leaves_nothing(fake, capsys, tmp_path):
    def interrupted(config):
        raise KeyboardInterrupt
        yield

    fake.measure = interrupted
    assert cli.main(["fake", "--out", "run"]) == 130
    assert one_line(capsys) == "interrupted: nothing was written\n"
    assert everything_in(tmp_path) == []


def test_a_second_interrupt_does_not_wait():
    with pytest.raises(KeyboardInterrupt), progress_bar(total=1):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_a_log_that_is_no_terminal_gets_one_line_a_stage(capsys):
    with progress_bar(total=200) as bar:
        for stage in ("first", "second"):
            bar.stage(stage)
            for _ in range(100):
                bar.advance()
            bar.finish_stage(f"{stage} done")
    err = capsys.readouterr().err
    assert [line.split(" (")[0] for line in err.splitlines()] == ["first done", "second done"]
