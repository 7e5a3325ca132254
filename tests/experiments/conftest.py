"""What tests of experiments share."""

import csv

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from experiments.frame import cli
from experiments.frame.progress import Bar
from experiments.frame.report import write_report
from experiments.frame.run_folder import RunFolder

OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    """What was compiled once in a module is read from a file when it is compiled again."""
    options = OPTIONS | {"jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled"))}
    before = {name: getattr(jax.config, name) for name in options}
    compilation_cache.reset_cache()
    for name, value in options.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def stop_after():
    """`(monkeypatch, calls)`: a Ctrl-C takes effect at that call of `advance` with work done."""

    def stop(monkeypatch, calls):
        advance = Bar.advance

        def counted(bar, work=1):
            nonlocal calls
            calls -= work > 0
            advance(bar, work)
            if calls == 0:
                raise KeyboardInterrupt

        monkeypatch.setattr(Bar, "advance", counted)

    return stop


@pytest.fixture
def rows():
    """`path -> rows` of a CSV file."""
    return lambda path: list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def written(tmp_path):
    """`(report, status="complete") -> folder`: everything that the frame writes of a report."""

    def write(report, status="complete"):
        run = {"status": status, "seconds": 1.5, "environment": {"versions": {"jax": "0.10.2"}}}
        run["options"] = {"seeds": 3, "models": ("gru", "lstm"), "out": None}
        with RunFolder.create("name", tmp_path / f"run {len(list(tmp_path.iterdir()))}") as folder:
            write_report("name", report, run, folder)
            return folder.keep()

    return write


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    """`(name, options) -> line`: an experiment that ends with one line and leaves no file."""

    def run(name, options):
        monkeypatch.chdir(tmp_path)
        assert cli.main([name, *options]) == 2
        lines = capsys.readouterr().err.splitlines()
        (line,) = [line for line in lines if not line.startswith("if it is killed")]
        assert not list(tmp_path.rglob("*.*"))
        return line

    return run
