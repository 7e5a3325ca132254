"""Counts, then trains a model on all tasks and seeds side by side, and asks it on longer rows."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrnn as jr
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, Fitter, adam
from experiments.frame.progress import progress_bar
from experiments.memory.config import UPDATES_PER_EPOCH, Config
from experiments.memory.counting import Counted, one_bit, registers, train_rounded
from experiments.memory.task import (
    LABELS,
    NUM_FEATURES,
    TASKS,
    Examples,
    loss_and_right,
    make_examples,
    make_network,
    outputs,
)

FIRST_STEPS = 8
ROUNDED_WORK = 0.5  # training rounded cells takes so much of the time of training a model
_TRAINING, _TEST = 0, 1


class Trained(NamedTuple):
    """A model after its trainings on a task, all seeds."""

    model: str
    task: str
    width: int
    state_bits: int  # of its carry in float32
    fitted: Fitted  # `right` is the share of right answers on the rows of the update
    scores: np.ndarray  # [S, lengths], on rows that were not learnt from

    @property
    def chosen(self) -> np.ndarray:
        """The scores `[lengths]` of one seed.

        It is the best on the rows before the longest, and of equals that with the least loss at
        the end of training: the longest rows, on which it is judged, have no say.
        """
        before_longest = np.nan_to_num(self.scores)[:, max(0, self.scores.shape[1] - 2)]
        late = np.nan_to_num(self.fitted.of_epochs()["loss"][:, -1], nan=np.inf)
        return self.scores[np.lexsort((late, -before_longest))[0]]


class Results(NamedTuple):
    """What was counted and learnt so far, by the parity cell, by registers and rounded cells."""

    parity: Counted | None = None
    registers: tuple[Counted, ...] = ()
    rounded: tuple[Counted, ...] = ()
    trained: tuple[Trained, ...] = ()


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    """Counts by hand-made cells, by trained cells with a rounded carry, then trains the models."""
    num_epochs = config.updates // UPDATES_PER_EPOCH
    work = ROUNDED_WORK * num_epochs * UPDATES_PER_EPOCH / config.state_updates
    with progress_bar(num_epochs * (len(config.models) + ROUNDED_WORK)) as bar:
        bar.stage("hand-made cells")
        by_hand = tuple(registers(config.pairs, config.history_bits))
        results = Results(one_bit(config.history_bits), by_hand)
        yield results
        bar.stage("rounded cells")
        counted = train_rounded(config, checkpoints, lambda epochs: bar.advance(work * epochs))
        results = results._replace(rounded=tuple(counted))
        bar.finish_stage("rounded cells")
        yield results
        for model in config.models:
            bar.stage(LABELS[model])
            trained = train(config, model, checkpoints, bar.advance)
            shown = ", ".join(f"{one.task} {100 * one.chosen[0]:.0f} %" for one in trained)
            bar.finish_stage(f"{LABELS[model]}: {shown}")
            yield (results := results._replace(trained=(*results.trained, *trained)))


def train(config: Config, model: str, checkpoints: Checkpoints, advance: Advance) -> list[Trained]:
    """Trains all tasks and seeds in one program, as independent of each other as if alone."""
    width, network = make_network(model, config.num_params, config.num_blocks)

    def loss_fn(params, batch, key):
        del key
        loss, right = loss_and_right(outputs(network, params, batch[0]), *batch)
        return loss, {"right": right.sum() / batch[0].due.sum()}

    seeds = [seed for _, seed in replicas(config)]
    init = jax.jit(jax.vmap(lambda seed: network.init(jax.random.key(seed), NUM_FEATURES)))
    fitted = Fitter(loss_fn, adam(config, config.updates)).fit_seeds(
        model,
        init(np.array(seeds)),
        functools.partial(rows_to_learn_from, config),
        config.updates // UPDATES_PER_EPOCH,
        checkpoints,
        every=10,
        advance=advance,
    )
    scores = ask(config, network, fitted.params, rows_to_ask_on(config))
    sizes = width, jr.state_capacity_bits(network, fitted.params_of(0))
    trained, first = [], 0
    for task in config.tasks:
        here = slice(first, first := first + len(config.seeds_of(task)))
        trained.append(Trained(model, task, *sizes, fitted.only(here), scores[here]))
    return trained


def replicas(config: Config) -> list[tuple[str, int]]:
    """Task and seed of the trainings of a model, which run side by side."""
    return [(task, seed) for task in config.tasks for seed in config.seeds_of(task)]


def _stacked(make, config):
    """`make(task, seed)` of all replicas, and whether they answer with a number."""
    examples = [make(task, seed) for task, seed in replicas(config)]
    is_number = np.array([TASKS[task].is_number for task, _ in replicas(config)])
    return jax.tree.map(lambda *leaves: np.stack(leaves), *examples), is_number


@functools.cache  # the same for all models
def rows_to_learn_from(config: Config, epoch: int) -> tuple[Examples, np.ndarray]:
    """Those of an epoch, `[replicas, updates, batch, T]`; longer ones as training goes on."""
    shape = (UPDATES_PER_EPOCH, config.batch_size)

    def make(task, seed):
        rng = _generator(task, seed, _TRAINING, epoch)
        lengths = rng.integers(1, longest(config, epoch) + 1, np.prod(shape))
        rows = make_examples(TASKS[task], rng, lengths, config.train_steps)
        return jax.tree.map(lambda leaf: leaf.reshape(*shape, -1), rows)

    examples, is_number = _stacked(make, config)
    return examples, np.repeat(is_number[:, None], UPDATES_PER_EPOCH, axis=1)


def longest(config: Config, epoch: int) -> int:
    """From `FIRST_STEPS` on, up to all steps in the middle of the training."""
    steps, progress = config.train_steps, 2 * epoch * UPDATES_PER_EPOCH / config.updates
    return min(steps, FIRST_STEPS + round(progress * (steps - FIRST_STEPS)))


def rows_to_ask_on(config: Config) -> tuple[Examples, np.ndarray]:
    """As many of each length, the same for all seeds: `[replicas, lengths * rows, T]`."""
    lengths = np.repeat(config.test_lengths, config.test_rows)

    def make(task, seed):
        del seed
        rng = _generator(task, config.first_seed, _TEST, 0)
        return make_examples(TASKS[task], rng, lengths, lengths.max())

    return _stacked(make, config)


def _generator(task, seed, purpose, epoch):
    return np.random.default_rng([seed, list(TASKS).index(task), purpose, epoch])


def ask(config: Config, network: jr.Layer, params: Any, rows: Any) -> np.ndarray:
    """The share of right answers on rows of each length, `[replicas, lengths]`."""

    def right(args):
        params, rows = args
        return loss_and_right(outputs(network, params, rows[0]), *rows)[1]

    return shares(config, jax.jit(lambda *args: jax.lax.map(right, args))(params, rows), rows[0])


def shares(config: Config, right: Any, examples: Examples) -> np.ndarray:
    """Right answers over answers due in the later half of the rows, for each length."""
    late = np.arange(right.shape[-1]) >= examples.mask.sum(axis=-1, keepdims=True) // 2
    right, due = (
        (flags & late).reshape(*flags.shape[:-2], len(config.longer), -1).sum(axis=-1)
        for flags in (np.asarray(right), examples.due)
    )
    return right / due
