"""A run that is killed and resumed equals one that was not; what does not fit is refused."""

import dataclasses
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr
from experiments.frame import cli
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.errors import ExperimentError
from experiments.frame.progress import progress_bar
from experiments.frame.report import Report

ROOT = Path(__file__).parents[2]


EPOCHS, EVERY = 20, 5
interrupt_at: int | None = None


@dataclasses.dataclass(frozen=True)
class Config:
    """A small training."""

    num_units: int = 3
    """Units."""
    pause: float = 0.03
    """Seconds between epochs."""
    out: Path | None = None
    """Where to."""
    resume: Path | None = None
    """What to go on from."""

    def check(self):
        pass


@functools.cache
def compiled(num_units):
    cell, optimizer = jr.gru(num_units), optax.adam(1e-2)

    def loss_fn(params, xs, key):
        return (jr.unroll(cell, params, xs, key=key).outputs ** 2).mean(), {}

    return cell, optimizer, jax.jit(jr.make_train_step(loss_fn, optimizer))


def measure(config, checkpoints):
    """Two trainings of a GRU on noise, drawn anew in each epoch."""
    (cell, optimizer, step), results = compiled(config.num_units), []
    with progress_bar(2 * EPOCHS) as bar:
        for training in ("first one", "second"):
            params = cell.init(jax.random.key(len(training)), 2)
            state = {"train": jr.TrainState.create(params, optimizer), "key": jax.random.key(7)}

            def one_epoch(state, epoch):
                time.sleep(config.pause)
                if epoch == interrupt_at:
                    os.kill(os.getpid(), signal.SIGINT)
                key, draw = jax.random.split(state["key"])
                train, metrics = step(state["train"], jax.random.normal(draw, (2, 5, 2)))
                return {"train": train, "key": key}, metrics

            state, history = checkpoints.run(
                training, state, EPOCHS, one_epoch, every=EVERY, advance=bar.advance
            )
            yield (results := [*results, (training, state, history)])


def report(config, results):
    arrays = {}
    for training, state, history in results:
        leaves = jax.tree.leaves((state["train"], jax.random.key_data(state["key"]), history))
        arrays |= {f"{training}_{index}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
    return Report("Fake.", files={"arrays.npz": arrays})


def install():
    module = SimpleNamespace(Config=Config, measure=measure, report=report)
    cli.EXPERIMENTS["fake_training"] = "Fake."
    sys.modules["experiments.fake_training"] = module  # type: ignore[assignment]


def run(*options):
    return cli.main(["fake_training", *options])


@pytest.fixture(scope="module", autouse=True)
def installed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "EXPERIMENTS", dict(cli.EXPERIMENTS))
        patch.setitem(sys.modules, "experiments.fake_training", None)
        install()
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run("--out", str(folder)) == 0
    return folder


def stop(folder, epoch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "interrupt_at", epoch)
        return run("--out", str(folder))


@pytest.fixture(scope="module")
def stopped_in_the_first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopped") / "run"
    assert stop(folder, 12) == 130
    return folder


@pytest.fixture
def stopped(stopped_in_the_first, tmp_path, monkeypatch, capsys):
    """A copy, to damage, of the folder of a run that was stopped in its first training."""
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return Path(shutil.copytree(stopped_in_the_first, "stopped"))


def bits(folder):
    with np.load(folder / "arrays.npz") as arrays:
        return {name: (arrays[name].dtype, arrays[name].tobytes()) for name in arrays}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def checkpoint(folder):
    return next((folder / "checkpoints/first_one").glob("[0-9]*"))


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_killed_at_a_random_moment_and_resumed_it_equals_an_uninterrupted_run(whole, tmp_path):
    killed = tmp_path / "killed"
    code = f"import test_checkpoints as t; t.install(); t.run('--out', {str(killed)!r})"
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    wait = random.uniform(0, 1)
    try:
        while not list(tmp_path.glob(".killed.partial-*/checkpoints/*/[0-9]*")):
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(wait)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL and not killed.exists()
    assert run("--resume", str(killed), "--out", str(tmp_path / "resumed")) == 0
    assert bits(tmp_path / "resumed") == bits(whole), f"killed {wait} s after the first checkpoint"


def test_interrupted_and_resumed_it_equals_an_uninterrupted_run(whole, stopped):
    before = everything_in(stopped)
    assert run("--resume", "stopped", "--out", "resumed") == 0
    assert bits(Path("resumed")) == bits(whole)
    assert names(Path("resumed")) == ["arrays.npz", "config.json", "report.html", "summary.md"]
    assert everything_in(stopped) == before


def test_an_interrupted_run_keeps_a_report_of_what_was_done(stopped):
    assert names(stopped) == ["checkpoints", "config.json", "report.html", "summary.md"]
    assert json.loads((stopped / "config.json").read_text())["status"] == "interrupted"
    assert "The run was interrupted" in (stopped / "report.html").read_text()
    assert checkpoint(stopped).name == "10"


def test_interrupted_before_the_first_checkpoint_it_leaves_nothing(tmp_path, capsys):
    assert stop(tmp_path / "run", 1) == 130
    assert "interrupted: nothing was written" in capsys.readouterr().err
    assert names(tmp_path) == []


def refused(capsys, expected, *options):
    before = everything_in(Path("."))
    assert run(*options, "--out", "new") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and expected in err, err
    assert everything_in(Path(".")) == before and not Path("new").exists()


def test_another_config_is_refused(stopped, capsys):
    expected = "of another run: num_units was 3, is 4"
    refused(capsys, expected, "--resume", "stopped", "--num-units", "4")


def test_a_run_without_checkpoints_is_refused(stopped, whole, capsys):
    refused(capsys, "run has no checkpoint to go on from", "--resume", str(whole))
    refused(capsys, "nowhere has no checkpoint to go on from", "--resume", "nowhere")


def no_about(path):
    (path / "about.json").unlink()


def half_an_about(path):
    text = (path / "about.json").read_text()
    (path / "about.json").write_text(text[: len(text) // 2])


def a_changed_digest(path):
    about = json.loads((path / "about.json").read_text())
    (path / "about.json").write_text(json.dumps(about | {"digest": "0" * 64}))


def no_arrays(path):
    shutil.rmtree(path / "arrays")


def an_empty_file(path):
    max((path / "arrays").rglob("d/*"), key=lambda file: file.stat().st_size).write_bytes(b"")


def a_flipped_byte(path):
    for file in (path / "arrays").rglob("d/*"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 255
        file.write_bytes(bytes(data))


DAMAGES = [no_about, half_an_about, a_changed_digest, no_arrays, an_empty_file, a_flipped_byte]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused(stopped, capsys, damage):
    damage(checkpoint(stopped))
    refused(capsys, "is damaged", "--resume", "stopped")


def test_what_was_being_written_when_it_was_killed_does_not_count(tmp_path):
    checkpoints = Checkpoints(tmp_path, {})

    def one_epoch(state, epoch):
        return state + 1, {"loss": 0.5, "epoch": epoch}

    _, before = checkpoints.run("a", jnp.zeros(2), 2, one_epoch)
    (tmp_path / "a/.3.partial").mkdir()
    (tmp_path / "a/.3.partial/about.json").write_text("half")
    state, history = checkpoints.run("a", jnp.zeros(2), 4, one_epoch)
    assert state.tolist() == [4, 4] and history["epoch"].tolist() == [0, 1, 2, 3]
    assert list(history) == list(before) == ["epoch", "loss"]
    assert names(tmp_path / "a") == ["4"]


def test_a_state_of_another_shape_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path, {})
    checkpoints.run("a", jnp.zeros(2), 1, lambda state, epoch: (state, {}))
    with pytest.raises(ExperimentError, match="of another model"):
        checkpoints.run("a", jnp.zeros(3), 2, lambda state, epoch: (state, {}))
