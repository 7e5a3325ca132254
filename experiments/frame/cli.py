"""The command line: finds an experiment, reads its options, runs it and keeps what it wrote."""

import contextlib
import importlib
import importlib.util
import io
import re
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments import EXPERIMENTS, GROUPS
from experiments.frame.errors import ExperimentError

EXTRAS = ("aeon", "matplotlib", "num2words", "orbax", "rich", "sklearn", "tyro", "vega_datasets")

FAILED, INTERRUPTED = 2, 130


class Experiment(NamedTuple):
    """`Config` of `config.py`, `measure` of `measure.py` and `report` of `report.py`."""

    Config: Any
    measure: Any
    report: Any


def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns its exit status; what a person did wrong is one line."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_listing())
        return 0
    name, *options = argv
    try:
        experiment = _load(name)
        config = _parse(experiment.Config, options, f"python -m experiments {name}")
        return 0 if config is None else _run(name, experiment, config)
    except ExperimentError as error:
        return _say(f"error: {error}", FAILED)
    except KeyboardInterrupt:
        return _say("interrupted: nothing was written", INTERRUPTED)


def _listing() -> str:
    lines = ["usage: python -m experiments NAME [options]"]
    for title, group in GROUPS.items():
        lines += ["", title, *(f"  {name:<16}{line}" for name, line in group.items())]
    lines += ["", "python -m experiments NAME --help explains the options of one experiment."]
    return "\n".join(lines)


def _load(name: str) -> Any:
    if name not in EXPERIMENTS:
        raise ExperimentError(
            f"unknown experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}"
        )
    absent = [extra for extra in EXTRAS if importlib.util.find_spec(extra) is None]
    if absent:
        raise ExperimentError(f"{' and '.join(absent)} not installed: pip install '.[experiments]'")
    package = importlib.import_module(f"experiments.{name}")
    if hasattr(package, "Config"):
        return package  # all in one file
    config, measure, report = (
        importlib.import_module(f"experiments.{name}.{part}")
        for part in ("config", "measure", "report")
    )
    return Experiment(config.Config, measure.measure, report.report)


def _parse(config_class: Any, options: Sequence[str], prog: str) -> Any:
    """The config, or None after `--help`; `--quick` only changes what the other defaults are."""
    import tyro

    default = config_class.quick_form() if "--quick" in options else config_class()
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            config = tyro.cli(config_class, prog=prog, args=list(options), default=default)
    except SystemExit as stop:
        if not stop.code:
            return None
        raise ExperimentError(f"{_sentence(box.getvalue())} ({prog} --help)") from None
    config.check()
    return config


def _sentence(box: str) -> str:
    """The message of tyro's framed error as one line: what follows its title."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    blocks = re.split(r".*(?:[╭╰]|[─-]{5}).*\n", plain)
    message = blocks[1] if len(blocks) > 1 else plain
    return " ".join(message.replace("│", " ").split()).rstrip(".")


def _run(name: str, experiment: Any, config: Any) -> int:
    from experiments.frame.run_folder import RunFolder, environment

    start = time.perf_counter()
    with RunFolder.create(name, config.out) as folder:
        results, interrupted = _measured(name, experiment, config, folder)
        resumable = folder.settle_checkpoints(keep=interrupted)
        if results is None and not resumable:
            raise KeyboardInterrupt
        run = {
            "experiment": name,
            "status": "interrupted" if interrupted else "complete",
            "options": vars(config),
            "environment": environment(),
            "seconds": round(time.perf_counter() - start, 1),
        }
        folder.write("config.json", run)
        _report(name, experiment, config, results, run, folder)
        path = folder.keep()
    if interrupted:
        further = f"; --resume {path} goes on from there" if resumable else ""
        return _say(f"interrupted: what was done so far is in {path}{further}", INTERRUPTED)
    print(f"written to {path} in {time.perf_counter() - start:.0f} s")
    return 0


def _measured(name: str, experiment: Any, config: Any, folder: Any) -> tuple[Any, bool]:
    """The last results that `measure` yielded, or None, and whether it was interrupted.

    Every yield is the results so far, so an interrupted run is reported like a complete one in
    which something is missing.
    """
    results, arguments = None, [config]
    if hasattr(config, "resume"):
        from experiments.frame.checkpoints import Checkpoints

        arguments.append(Checkpoints.of_run(folder, name, config))
        print(f"if it is killed, --resume {folder.wanted} goes on", file=sys.stderr)
    try:
        for so_far in experiment.measure(*arguments):
            results = so_far
    except KeyboardInterrupt:
        return results, True
    return results, False


def _report(name: str, experiment: Any, config: Any, results: Any, run: Any, folder: Any) -> None:
    from experiments.frame.figures import style
    from experiments.frame.report import Report, write_report

    with style():
        report = Report("No part of the run had ended.")
        if results is not None:
            report = experiment.report(config, results)
        write_report(name, report, run, folder)


def _say(message: str, status: int) -> int:
    print(" ".join(message.split()), file=sys.stderr)
    return status
