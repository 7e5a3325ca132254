"""The command line: finds an experiment, reads its options, runs it and keeps what it wrote."""

import contextlib
import importlib
import importlib.util
import io
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from experiments.errors import ExperimentError

EXPERIMENTS = {
    "minimal": "Six checks of a recurrent network, pass or fail, on employment by industry.",
    "vowels": "Who is speaking? Elman, GRU and LSTM on recorded vowels; what padding does.",
    "memory": "What a state can carry: counted, and learnt by twelve models on five tasks.",
    "gradients": "Vanishing and exploding: Jacobians, gates, number formats, clipping, truncation.",
    "characters": "The next character of Python's own texts: five mixers, bits and free running.",
    "memorisation": "A page to point at: which earlier characters a prediction depends on.",
    "tagging": "The token of every character of Python source: both directions, packed or padded.",
    "translate": "Written numbers of five languages to digits: a fixed vector, or attention.",
    "digits": "Digits pixel by pixel: eleven models of one size; accuracy, time, memory, reach.",
    "cost": "Measured time and memory of RNN, state space and attention against T.",
    "long_gradient": "The gradient of an LSTM through a million steps: memory and time.",
    "linear_scan": "The linear recurrence beside associative_scan: time to run and to compile.",
    "newton": "When Newton's method on a whole sequence converges, and when it does not.",
    "models": "A table of all models: carry, memory, multiply-adds, depth, and what they support.",
    "rounding": "Every model in float32 against float64, along 65,536 steps.",
    "benchmark": "Speed and memory beside flax, haiku, equinox, keras, torch and plain scans.",
}
EXTRAS = ("aeon", "matplotlib", "num2words", "orbax", "rich", "sklearn", "tyro", "vega_datasets")

FAILED, INTERRUPTED = 2, 130


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
    rows = [f"  {name:<16}{line}" for name, line in EXPERIMENTS.items()]
    return "\n".join(
        ["usage: python -m experiments NAME [options]", "", *rows]
        + ["", "python -m experiments NAME --help explains the options of one."]
    )


def _load(name: str) -> Any:
    if name not in EXPERIMENTS:
        raise ExperimentError(
            f"unknown experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}"
        )
    missing = [extra for extra in EXTRAS if importlib.util.find_spec(extra) is None]
    if missing:
        raise ExperimentError(
            f"{' and '.join(missing)} not installed: pip install '.[experiments]'"
        )
    return importlib.import_module(f"experiments.{name}")


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
    """The message of tyro's framed error as one line: what stands between title and next rule."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    blocks = re.split(r".*(?:[╭╰]|[─-]{5}).*\n", plain)
    message = blocks[1] if len(blocks) > 1 else plain
    return " ".join(message.replace("│", " ").split()).rstrip(".")


def _run(name: str, experiment: Any, config: Any) -> int:
    from experiments.page import Page, html_page
    from experiments.run_folder import RunFolder, environment

    start = time.perf_counter()
    results, interrupted = [], False
    with RunFolder.create(name, config.out) as folder:
        try:
            for result in _measure(name, experiment, config, folder):
                results.append(result)
        except KeyboardInterrupt:
            interrupted = True
        resumable = folder.settle_checkpoints(keep=interrupted)
        if not results and not resumable:
            raise KeyboardInterrupt
        run = {
            "experiment": name,
            "status": "interrupted" if interrupted else "complete",
            "options": vars(config),
            "environment": environment(),
            "seconds": round(time.perf_counter() - start, 1),
        }
        folder.write_json("config.json", run)
        page = Page(name, "No part of the run had ended.", [], [], [], [])
        if results:
            page = experiment.report(config, results, folder)
        if page is not None:
            folder.write_text("report.html", html_page(page, run, folder.partial))
        path = folder.keep()
    if interrupted:
        further = f"; --resume {path} goes on from there" if resumable else ""
        return _say(f"interrupted: what was done so far is in {path}{further}", INTERRUPTED)
    print(f"written to {path} in {time.perf_counter() - start:.0f} s")
    return 0


def _measure(name: str, experiment: Any, config: Any, folder: Any) -> Any:
    """The results one by one; an experiment that can be resumed gets its checkpoints."""
    if not hasattr(config, "resume"):
        return experiment.measure(config)
    from experiments.checkpoints import Checkpoints

    checkpoints = Checkpoints.of_run(folder, name, config)
    print(f"if it is killed, --resume {folder.wanted} goes on", file=sys.stderr)
    return experiment.measure(config, checkpoints)


def _say(message: str, status: int) -> int:
    print(" ".join(message.split()), file=sys.stderr)
    return status
