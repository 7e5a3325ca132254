"""The models, and their training on packed rows, all seeds side by side."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, Fitter, adam
from experiments.frame.models import matched_width
from experiments.tagging.config import Config
from experiments.tagging.task import (
    CLASSES,
    NUM_CHARACTERS,
    Corpus,
    Paragraph,
    Rows,
    Task,
    minibatches,
    packed_rows,
    padded_rows,
)

EVERY = 2  # epochs from one checkpoint to the next
RECURRENCES: dict[str, Callable[[int], Any]] = {
    "forward": jr.gru,
    "bidirectional": lambda width: jr.bidirectional(jr.gru(width)),
}


class Tagged(NamedTuple):
    """One model after training; what its seeds say of the test characters, `[S, N]`."""

    direction: str
    fitted: Fitted
    predicted: np.ndarray

    @property
    def good(self) -> np.ndarray:
        return self.fitted.of_good_seeds(self.predicted)


def make_model(direction: str, config: Config) -> jr.Layer:
    """A GRU of `num_params` between the table of characters and the logits of the classes."""

    def make(width):
        mixer = RECURRENCES[direction](width)
        return jr.serial(jr.embed(config.num_features), mixer, jr.dense(len(CLASSES)))

    return make(matched_width(make, NUM_CHARACTERS, config.num_params, range(4, 512)))


def logits(model: jr.Layer, params: Any, rows: Rows) -> Any:
    """`[R, L, classes]`."""
    return jr.unroll(model, params, rows.characters, mask=rows.mask, reset=rows.reset).outputs


def make_loss(model: jr.Layer) -> Callable[[Any, Rows], Any]:
    """The mean cross-entropy of all real characters of a minibatch, however they are laid out."""

    def loss(params, rows):
        losses = jr.cross_entropy(logits(model, params, rows), rows.labels, rows.mask)
        return jr.mean_over_steps(losses, rows.mask, empty=0.0)

    return loss


def initial_params(model: jr.Layer, seed: Any) -> Any:
    return model.init(jax.random.key(seed), NUM_CHARACTERS)


def train(
    config: Config, direction: str, task: Task, checkpoints: Checkpoints, advance: Advance
) -> Tagged:
    """Every seed of one direction; the test files are read once, after the last epoch."""
    model = make_model(direction, config)
    loss, predict = make_loss(model), make_predict(config, model)
    known = np.concatenate([one.labels for one in task.validation.paragraphs])

    def score(params):
        predicted = predict(params, task.validation.paragraphs)
        return {"validation": (predicted == known).mean(axis=-1)}

    def batches(epoch):
        each = [epoch_rows(config, task.training, seed, epoch) for seed in config.all_seeds]
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *each)

    num_updates = config.epochs * updates_an_epoch(config, task.training)
    optimizer, seeds = adam(config, num_updates), np.array(config.all_seeds)
    fitter = Fitter(lambda params, rows, key: (loss(params, rows), {}), optimizer, score)
    params = jax.vmap(lambda seed: initial_params(model, seed))(seeds)
    fitted = fitter.fit_seeds(
        direction, params, batches, config.epochs, checkpoints, every=EVERY, advance=advance
    )
    return Tagged(direction, fitted, predict(fitted.params, task.test.paragraphs))


def updates_an_epoch(config: Config, training: Corpus) -> int:
    """The same in every epoch, so that one compilation does for all; a few paragraphs are left."""
    return max(1, training.num_characters // (config.rows * config.row_length))


def epoch_rows(config: Config, training: Corpus, seed: int, epoch: int) -> Rows:
    """The minibatches of an epoch, `[updates, R, L]`, paragraphs in an order of its own."""
    size, length = config.rows, config.row_length
    batches = minibatches(training.paragraphs, size, length, np.random.default_rng((seed, epoch)))
    chosen = [
        packed_rows(batch, size, length)
        for _, batch in zip(range(updates_an_epoch(config, training)), batches, strict=False)
    ]
    return Rows(*map(np.stack, zip(*chosen, strict=True)))


def make_predict(config: Config, model: jr.Layer) -> Callable[[Any, Sequence[Paragraph]], Any]:
    """`(params, paragraphs) -> classes [S, N]` of all characters, in order."""

    @jax.jit
    def told(params, rows):
        return jax.vmap(lambda params: logits(model, params, rows).argmax(axis=-1))(params)

    def predict(params, paragraphs):
        batches = padded_rows(paragraphs, config.rows, config.row_length)
        return np.concatenate([told(params, rows)[:, rows.mask] for rows in batches], axis=1)

    return predict
