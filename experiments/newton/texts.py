"""Cells that learn to predict the next character, solved by Newton's method on texts."""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.data.topics import ALPHABET, encode, in_alphabet, load_topics
from experiments.frame.models import LABELS
from experiments.frame.progress import progress_bar
from experiments.frame.timing import interleaved_seconds
from experiments.newton.config import Config
from jaxrnn.diagnostics import lyapunov_exponents

ACCURACY = 1e-6
COUNTS = (1, 2, 3, 4, 5, 6, 8, 16)  # of iterations, each of which is looked at
KINDS = FRESH, TRAINED, BOUNDED = ("fresh", "trained", "trained within 0.5")
BOUND = 0.5  # of recurrent weights, to which the paper of ParaRNN clips them
NUM_TEXTS = 8
BATCH, LENGTH = 16, 64
LEARNING_RATE = 1e-2


class Read(NamedTuple):
    """Texts read by one cell, before or after a training."""

    cell: str
    label: str
    parameters: str  # one of `KINDS`
    bits: float  # per character, of the texts
    exponent: float  # the largest Lyapunov exponent on the first text, nats per step
    residuals: tuple[float, ...]  # after each of `COUNTS`
    seconds: float  # until the change is within the rounding error; median over rounds
    sequential_seconds: float

    @property
    def iterations(self) -> int | None:
        """How many leave a residual of at most `ACCURACY`; None if none of `COUNTS` does."""
        pairs = zip(COUNTS, self.residuals, strict=True)
        return min((count for count, one in pairs if one <= ACCURACY), default=None)

    @property
    def shown(self) -> str:
        return f">{COUNTS[-1]}" if self.iterations is None else str(self.iterations)


def read_texts(config: Config) -> Iterator[Sequence[Read]]:
    tokens = encode(in_alphabet("".join(load_topics().values())))
    size = NUM_TEXTS * (config.text_steps + 1)
    unread = tokens[-size:].reshape(NUM_TEXTS, config.text_steps + 1)
    results: list[Read] = []
    with progress_bar(len(config.cells)) as bar:
        for name in config.cells:
            bar.stage(name)
            cell = getattr(jr, name)(config.text_units)
            model = jr.serial(jr.embed(config.text_units), cell, jr.dense(len(ALPHABET)))
            fresh = model.init(jax.random.key(0), len(ALPHABET))
            for kind in KINDS if name.startswith("para") else (FRESH, TRAINED):
                params = fresh
                if kind != FRESH:
                    bound = BOUND if kind == BOUNDED else None
                    params = _trained(config, model, fresh, tokens[:-size], bound)
                values = _read(config, model, cell, params, unread)
                results = [*results, Read(name, LABELS[name], kind, *values)]
                yield results
            bar.advance(1)
            shown = " ".join(one.shown for one in results if one.cell == name)
            bar.finish_stage(f"{name}: {shown} iterations")


def _trained(config, model, params, tokens, bound):
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, config.updates))
    if bound is not None:
        optimizer = optax.chain(optimizer, optax.stateless(_within(bound)))
    run_epoch = jax.jit(jr.make_epoch_step(lambda *batch: (_loss(model, *batch), {}), optimizer))
    starts = np.random.default_rng(0).integers(
        len(tokens) - LENGTH - 1, size=(config.updates, BATCH, 1)
    )
    batches = tokens[starts + np.arange(LENGTH + 1)]
    return run_epoch(jr.TrainState.create(params, optimizer), batches)[0].params


def _within(bound):
    """Changes of the updates that keep the recurrent weights of a cell with diagonals in bounds."""

    def change(updates, params):
        def leaf_change(path, update, leaf):
            if path[-1].name not in ("recurrent_kernel", "peephole"):
                return update
            return jnp.clip(leaf + update, -bound, bound) - leaf

        cell = jax.tree_util.tree_map_with_path(leaf_change, updates[1], params[1])
        return (updates[0], cell, *updates[2:])

    return change


def _loss(model, params, tokens, key=None):
    logits = jr.unroll(model, params, tokens[:, :-1]).outputs
    return jr.cross_entropy(logits, tokens[:, 1:]).mean()


def _read(config, model, cell, params, texts):
    """What `Read` holds from `bits` on."""
    bits = float(_loss(model, params, texts) / np.log(2))
    xs = jr.unroll(jr.embed(config.text_units), params[0], texts[:, :-1]).outputs
    (exponent,) = lyapunov_exponents(
        cell, params[1], xs[0], num_exponents=1, num_transient_steps=config.text_steps // 4
    )
    solve = functools.partial(jr.unroll, cell, params[1], xs)
    infos = (solve(evaluator=jr.newton(0.0, count)).info for count in COUNTS)
    residuals = [float(info.residual) for info in infos]
    calls = {
        "newton": functools.partial(
            solve, evaluator=jr.newton(max_iterations=config.max_iterations)
        ),
        "sequential": functools.partial(solve, evaluator=jr.sequential()),
    }
    seconds = interleaved_seconds(calls, config.rounds)
    medians = [float(np.median(seconds[name])) for name in calls]
    return bits, float(exponent), tuple(residuals), *medians
