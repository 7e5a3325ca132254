"""Trains a model on packed rows, one seed after the other, compiled once."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitter
from experiments.tagging.config import Config
from experiments.tagging.model import initial_params, make_logits, make_loss, make_model
from experiments.tagging.results import Tagged
from experiments.tagging.task import Corpus, Paragraph, Rows, Task, filled, minibatches, packed_rows

EVERY = 2  # epochs from one checkpoint to the next


def train(
    config: Config,
    direction: str,
    task: Task,
    checkpoints: Checkpoints,
    epoch_done: Callable[[int], Any],
) -> Iterator[Tagged]:
    """Every seed of one direction; the test files are read once, after the last epoch."""
    model = make_model(direction, config)
    loss = make_loss(model)
    predict = make_predict(config, model)
    known = np.concatenate([one.labels for one in task.validation.paragraphs])

    def score(params):
        return {"validation": (predict(params, task.validation.paragraphs) == known).mean()}

    fitter = Fitter(
        lambda params, rows, key: (loss(params, rows), {}), make_optimizer(config, task), score
    )
    for seed in range(config.first_seed, config.first_seed + config.seeds):
        fitted = fitter.fit(
            f"{direction} {seed}",
            initial_params(model, seed),
            lambda epoch, seed=seed: epoch_rows(config, task.training, seed, epoch),
            config.epochs,
            checkpoints,
            every=EVERY,
            epoch_done=epoch_done,
        )
        predicted = predict(fitted.params, task.test.paragraphs)
        yield Tagged(direction, seed, fitted, predicted)


def updates_an_epoch(config: Config, training: Corpus) -> int:
    """The same in every epoch, so that one compilation does for all; a few paragraphs are left."""
    return max(1, training.num_characters // (config.rows * config.row_length))


def epoch_rows(config: Config, training: Corpus, seed: int, epoch: int) -> Rows:
    """The minibatches of an epoch, `[updates, R, L]`, paragraphs in an order of its own."""
    generator = np.random.default_rng((seed, epoch))
    wanted = updates_an_epoch(config, training)
    batches = minibatches(training.paragraphs, config.rows, config.row_length, generator)
    chosen = [
        packed_rows([training.paragraphs[index] for index in batch], config.rows, config.row_length)
        for _, batch in zip(range(wanted), batches, strict=False)
    ]
    return Rows(*(jnp.asarray(np.stack(arrays)) for arrays in zip(*chosen, strict=True)))


def make_optimizer(config: Config, task: Task) -> optax.GradientTransformation:
    """Adam behind a clip of the global norm, with a rate that falls to zero along a cosine."""
    total = config.epochs * updates_an_epoch(config, task.training)
    rate = optax.cosine_decay_schedule(config.learning_rate, total)
    return optax.chain(optax.clip_by_global_norm(config.gradient_clip), optax.adam(rate))


def make_predict(config: Config, model: jr.Layer) -> Callable[[Any, Sequence[Paragraph]], Any]:
    """`(params, paragraphs) -> classes [N]` of all characters, `rows` packed rows at a time."""
    logits = make_logits(model)
    told = jax.jit(lambda params, rows: logits(params, rows).argmax(axis=-1))

    def predict(params, paragraphs):
        pairs = [(one.characters, one.labels) for one in paragraphs]
        packed = jr.pack(pairs, config.row_length)
        num_rows = len(packed.mask) + -len(packed.mask) % config.rows
        rows = filled(packed.xs, packed.mask, packed.reset, num_rows)
        blocks = [
            told(params, Rows(*(array[first : first + config.rows] for array in rows)))
            for first in range(0, num_rows, config.rows)
        ]
        return np.concatenate(jr.unpack(np.concatenate(blocks)[: len(packed.mask)], packed))

    return predict
