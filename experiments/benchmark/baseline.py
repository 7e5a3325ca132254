"""Another checkout of jaxrnn beside this one: each in a process of its own, which times itself.

The processes take turns in every round. The other checkout needs no more than its cells, their
`init` and `unroll`.
"""

import functools
import itertools
import multiprocessing
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from experiments.benchmark.work import CLOCKS, OURS, Case, Subject, Work, prepare_model
from experiments.frame.errors import ExperimentError

ROOT = Path(__file__).parents[2]
THEIRS = "baseline"


def cases(config: Any) -> Iterator[Case]:
    """A training step and a forward pass of every model and size; compilation of the first size."""
    checkouts = {OURS: Checkout(ROOT), THEIRS: Checkout(config.baseline)}

    def seconds():
        return sum(checkout.seconds for checkout in checkouts.values())

    def running(work):
        costs = {name: checkout.ask("prepare", work) for name, checkout in checkouts.items()}
        calls = timed("run", config.clock)
        return {name: Subject(call, *costs[name]) for name, call in calls.items()}

    def compiling(work):
        return {name: Subject(call) for name, call in timed("compile", work).items()}

    def timed(*request):
        return {
            name: functools.partial(checkout.spend, *request)
            for name, checkout in checkouts.items()
        }

    for quantity, model in itertools.product(("training", "forward"), config.models):
        works = {f"{model}, {shape}": Work(model, shape, quantity) for shape in config.grid}
        for name, work in works.items():
            yield Case(quantity, name, functools.partial(running, work), clock=seconds)
        name, work = next(iter(works.items()))
        prepare = functools.partial(compiling, work)
        yield Case(f"compiling {quantity}", name, prepare, rounds=config.rounds, clock=seconds)


class Checkout:
    """A process that has imported the jaxrnn of a folder; it ends with its end of the pipe."""

    def __init__(self, folder: Path):
        self.folder, self.seconds, self.pipe = folder, 0.0, None

    def spend(self, *request: Any) -> None:
        """Has the process do something that it times, and counts the seconds."""
        self.seconds += self.ask(*request)

    def ask(self, *request: Any) -> Any:
        """The answer of the process, which is started when it is asked first."""
        if self.pipe is None:
            spawn = multiprocessing.get_context("spawn")
            self.pipe, end = spawn.Pipe()
            spawn.Process(target=serve, args=(end, self.folder.resolve()), daemon=True).start()
            end.close()
        try:
            self.pipe.send(request)
            answer = self.pipe.recv()
        except (EOFError, OSError):
            answer = ExperimentError("its process has ended")
        if isinstance(answer, Exception):
            raise ExperimentError(f"jaxrnn in {self.folder} cannot be measured: {answer}")
        return answer


def serve(pipe: Any, folder: Path) -> None:
    """Answers requests until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the process that asks
    sys.path.insert(0, str(folder))
    jax.config.update("jax_enable_compilation_cache", False)
    worker = Worker()
    while True:
        try:
            name, *args = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(getattr(worker, name)(*args))
        except Exception as error:
            pipe.send(ExperimentError(f"{type(error).__name__}: {error}"))


class Worker:
    """What the process of a checkout does."""

    def prepare(self, work: Work) -> tuple[float, float]:
        """Compiles the work afresh; seconds, and temporary MiB."""
        from experiments.benchmark.subjects import ours

        jax.clear_caches()
        self.subject = prepare_model(ours(work.model, work.shape), work)
        return self.subject[1:]

    def compile(self, work: Work) -> float:
        """Processor seconds of that."""
        return self.prepare(work)[0]

    def run(self, clock: str) -> float:
        """Seconds of a call, after one that warms up what the other process has used."""
        jax.block_until_ready(self.subject.call())
        start = CLOCKS[clock]()
        jax.block_until_ready(self.subject.call())
        return CLOCKS[clock]() - start
