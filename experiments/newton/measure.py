"""Solves sequences by Newton's method, with the Lyapunov exponent beside it."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrnn as jr
from experiments.frame.progress import progress_bar
from experiments.frame.timing import interleaved_seconds
from experiments.newton.config import Config
from experiments.newton.texts import Read, read_texts
from jaxrnn.diagnostics import lyapunov_exponents

METHODS = {
    "full": {"jacobian": "full"},
    "undamped": {"jacobian": "full", "damping": None},
    "diagonal": {"jacobian": "diagonal"},
}
SEQUENTIAL = "sequential"
TRANSIENT = 100


class Solved(NamedTuple):
    """One sequence solved by Newton's method."""

    scale: float
    seed: int
    exponent: float  # the largest Lyapunov exponent, nats per step
    num_steps: int
    method: str  # one of `METHODS`
    iterations: int  # how many linear scans were made; enough if it `converged`
    converged: bool
    difference: float  # largest difference of an output from the sequential one
    seconds: float  # median wall time over rounds, beside that of the sequential evaluation
    sequential_seconds: float

    @property
    def depth(self) -> int:
        """Compositions one after another on a parallel machine: 2 log₂ T in a scan."""
        return self.iterations * 2 * math.ceil(math.log2(max(2, self.num_steps)))

    @property
    def ratio(self) -> float:
        return self.seconds / self.sequential_seconds

    @property
    def shown(self) -> str:
        """The iterations, or more than those where they were not enough."""
        return f"{'' if self.converged else '>'}{self.iterations}"


class Results(NamedTuple):
    scaled: Sequence[Solved] = ()
    read: Sequence[Read] = ()  # texts, by fresh and by trained cells


def measure(config: Config) -> Iterator[Results]:
    results = Results()
    for scaled in _scaled(config):
        results = results._replace(scaled=scaled)
        yield results
    for read in read_texts(config):
        results = results._replace(read=read)
        yield results


def _scaled(config):
    cell, results = jr.gru(config.num_units), []
    with progress_bar(len(config.scales) * config.seeds * sum(config.lengths)) as bar:
        for scale in config.scales:
            bar.stage(f"scale {scale:g}")
            for seed in range(config.seeds):
                params, xs = _problem(config, cell, scale, seed)
                first = min(TRANSIENT, len(xs) // 2)
                (exponent,) = lyapunov_exponents(
                    cell, params, xs, num_exponents=1, num_transient_steps=first
                )
                for num_steps in config.lengths:
                    about = scale, seed, float(exponent), num_steps
                    solved = _solve(config, cell, params, xs[:num_steps])
                    results = [*results, *(Solved(*about, *values) for values in solved)]
                    bar.advance(num_steps)
                    yield results
            longest = chosen(results, scale=scale, num_steps=config.lengths[-1], method="full")
            what = f"exponent {mean_exponent(longest)}, iterations {counts(longest)}"
            bar.finish_stage(f"scale {scale:g}: {what}")


def _problem(config, cell, scale, seed):
    keys = jax.random.split(jax.random.key(seed), 2)
    params = cell.init(keys[0], config.num_features)
    params = params._replace(recurrent_kernel=scale * params.recurrent_kernel)
    return params, jax.random.normal(keys[1], (config.lengths[-1], config.num_features))


def _solve(config, cell, params, xs):
    """What `Solved` holds from `method` on, for each of them."""
    unroll = functools.partial(jr.unroll, cell, params, xs)
    calls = {SEQUENTIAL: functools.partial(unroll, evaluator=jr.sequential())}
    for method, options in METHODS.items():
        newton = jr.newton(max_iterations=config.max_iterations, **options)
        calls[method] = functools.partial(unroll, evaluator=newton)
    seconds = interleaved_seconds(calls, config.rounds)
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    expected = np.asarray(calls[SEQUENTIAL]().outputs)
    for method in METHODS:
        rollout = calls[method]()
        iterations, converged = int(rollout.info.iterations), bool(rollout.info.converged)
        difference = float(np.max(np.abs(np.asarray(rollout.outputs) - expected)))
        yield method, iterations, converged, difference, medians[method], medians[SEQUENTIAL]


def chosen(results: Sequence[Solved], **names: Any) -> list[Solved]:
    return [one for one in results if names.items() <= one._asdict().items()]


def counts(runs: Sequence[Solved]) -> str:
    """The iterations of each run."""
    return " ".join(one.shown for one in runs)


def mean_exponent(runs: Sequence[Solved]) -> str:
    return f"{np.mean([one.exponent for one in runs]):+.2f}"
