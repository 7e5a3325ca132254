"""Another checkout of jaxrnn beside this one: each in a process of its own, which times itself.

The processes take turns in every round. The other checkout needs no more than its cells, their
`init` and `unroll`.
"""

import functools
import itertools
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax

from experiments.benchmark.work import CLOCKS, OURS, Case, Subject, Work, prepare_model
from experiments.frame.errors import ExperimentError

ROOT = Path(__file__).parents[2]


def cases(config: Any) -> Iterator[Case]:
    """A training step and a forward pass of every model and size; compilation of the first size."""
    checkouts = {OURS: Checkout(ROOT), "baseline": Checkout(config.baseline)}

    def seconds():
        return sum(checkout.seconds for checkout in checkouts.values())

    def timed(*request):
        return {name: functools.partial(one.spend, *request) for name, one in checkouts.items()}

    def running(work):
        costs = {name: checkout.ask(_prepare, work) for name, checkout in checkouts.items()}
        return {n: Subject(call, *costs[n]) for n, call in timed(_run, config.clock).items()}

    def compiling(work):
        return {name: Subject(call) for name, call in timed(_compile, work).items()}

    for quantity, model in itertools.product(("training", "forward"), config.models):
        works = {f"{model}, {shape}": Work(model, shape, quantity) for shape in config.grid}
        for name, work in works.items():
            yield Case(quantity, name, functools.partial(running, work), clock=seconds)
        name, work = next(iter(works.items()))
        prepare = functools.partial(compiling, work)
        yield Case(f"compiling {quantity}", name, prepare, rounds=config.rounds, clock=seconds)


class Checkout:
    """A process that has imported the jaxrnn of a folder, and the seconds that it has measured."""

    def __init__(self, folder: Path):
        self.folder, self.seconds = folder, 0.0
        spawn = multiprocessing.get_context("spawn")
        self.process = ProcessPoolExecutor(1, spawn, _begin, (str(folder.resolve()),))

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return self.process.submit(function, *args).result()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise ExperimentError(f"{self.folder} cannot be measured: {what}") from error

    def spend(self, function: Callable[..., float], *args: Any) -> None:
        self.seconds += self.ask(function, *args)


# What follows runs in the process of a checkout.

_prepared: list[Subject] = []


def _begin(folder):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the process that asks
    sys.path.insert(0, folder)
    jax.config.update("jax_enable_compilation_cache", False)


def _prepare(work):
    """Processor seconds of a fresh compilation, and temporary MiB."""
    from experiments.benchmark.subjects import ours  # with the jaxrnn of the folder

    jax.clear_caches()
    _prepared[:] = [prepare_model(ours(work.model, work.shape), work)]
    return _prepared[0][1:]


def _compile(work):
    return _prepare(work)[0]


def _run(clock):
    """Seconds of a call, after one that warms up what the other process has used."""
    for _ in range(2):
        start = CLOCKS[clock]()
        jax.block_until_ready(_prepared[0].call())
    return CLOCKS[clock]() - start
