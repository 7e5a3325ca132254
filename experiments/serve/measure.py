"""Runs the server with more and more sessions, and with hostile ones beside them."""

import importlib.util
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrnn as jr
from experiments.data.topics import encode, in_alphabet, load_topics
from experiments.frame.errors import ExperimentError
from experiments.frame.progress import progress_bar
from experiments.frame.timing import interleaved_seconds
from experiments.serve.config import Config
from experiments.serve.model import train
from experiments.serve.sessions import Rows

PACKAGES = ("starlette", "uvicorn", "websockets")  # of the extra `serving`
HOSTILE = 2  # of each kind
ROUNDS = 200


class Served(NamedTuple):
    """One run of the server."""

    sessions: int  # sessions at once
    hostile: int  # hostile ones beside them
    seconds: np.ndarray  # from a character to its answer, of all sessions, [S T]
    duration: float  # from the first character to the last answer
    batch_sizes: np.ndarray  # tokens in each step
    difference: float  # the largest one between an answer and the session alone; NaN is an error
    errors: tuple[str, ...]  # what went wrong in a session

    @property
    def characters_per_second(self) -> float:
        return len(self.seconds) / self.duration


class Results(NamedTuple):
    """What is known so far."""

    bits: float | None = None  # per character, in the last update of the training
    step_seconds: float = float("nan")  # of a bare jitted step of the whole batch
    runs: tuple[Served, ...] = ()
    attacked: Served | None = None


def measure(config: Config) -> Iterator[Results]:
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        raise ExperimentError(f"{', '.join(absent)} not installed: pip install '.[serving]'")
    texts = [in_alphabet(text) for text in load_topics().values()]
    with progress_bar(2 + len(config.sessions)) as bar:
        bar.stage("training")
        model, params, bits = train(config, texts)
        step_seconds = bare_step(model, params, config.num_rows)
        results = Results(bits, step_seconds)
        bar.advance()
        yield results
        for number in config.sessions:
            bar.stage(f"{number} sessions")
            served = serve(config, model, params, texts, number)
            results = results._replace(runs=(*results.runs, served))
            bar.advance()
            yield results
        bar.stage("hostile visitors")
        number = config.sessions[len(config.sessions) // 2]
        yield results._replace(attacked=serve(config, model, params, texts, number, HOSTILE))
        bar.advance()


def bare_step(model: jr.Model, params: Any, num_rows: int) -> float:
    """Median seconds of a jitted step of a batch, without a server."""
    step = jax.jit(lambda carry, tokens: jr.step(model, params, carry, tokens))
    carry = model.initial_carry(params, (num_rows,))
    tokens = np.zeros(num_rows, np.int32)
    seconds = interleaved_seconds({"step": lambda: step(carry, tokens)}, ROUNDS)
    return float(np.median(seconds["step"]))


def serve(
    config: Config,
    model: jr.Model,
    params: Any,
    texts: Sequence[str],
    sessions: int,
    hostile: int = 0,
) -> Served:
    """A run with this many sessions, each with a text of its own, and `hostile` of each kind."""
    # Here, because `--help` must not need what they import.
    from experiments.serve.server import serving
    from experiments.serve.visitors import PESTS, visit

    long = [text for text in texts if len(text) >= 2 * config.num_steps]
    starts = np.random.default_rng(0).integers(config.num_steps, size=sessions)
    read = [
        long[index % len(long)][start : start + config.num_steps]
        for index, start in enumerate(starts)
    ]
    rows = Rows(model, params, config.num_rows)
    spawn = multiprocessing.get_context("spawn")
    with serving(rows, config.window) as (port, steps), ProcessPoolExecutor(1, spawn) as process:
        visited = process.submit(visit, port, read, hostile).result()
    beside, expected = hostile * len(PESTS), alone(model, params, read)
    return _served(sessions, beside, visited, steps.sizes, expected)


def alone(model: jr.Model, params: Any, texts: Sequence[str]) -> np.ndarray:
    """What the sessions get without a server, `[S, T, V]`."""
    tokens = np.stack([encode(text) for text in texts])
    return np.asarray(jr.unroll(model, params, tokens).outputs)


def _served(sessions, hostile, visited: Any, sizes, expected) -> Served:
    errors = [one.error for one in visited.visits if one.error]
    difference = float("nan")
    if not errors:
        answers = np.stack([one.answers for one in visited.visits])
        difference = float(np.abs(answers - expected).max())
    return Served(
        sessions,
        hostile,
        np.concatenate([one.seconds for one in visited.visits]),
        visited.seconds,
        np.array(sizes),
        difference,
        tuple(errors),
    )
