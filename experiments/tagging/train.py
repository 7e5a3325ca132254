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
FORWARD, BOTH, CHAIN = MODELS = ("forward", "bidirectional", "bidirectional, CRF")


class Tagger(NamedTuple):
    """One model as three functions."""

    init: Callable[[Any], Any]  # from a seed to parameters
    loss: Callable[
        [Any, Rows], Any
    ]  # of all real characters, however they are laid out, their mean
    told: Callable[[Any, Rows], Any]  # classes, [R, L]


class Tagged(NamedTuple):
    """One model after training; what its seeds say of the test characters, `[S, N]`."""

    model: str
    fitted: Fitted
    predicted: np.ndarray

    @property
    def good(self) -> np.ndarray:
        return self.fitted.of_good_seeds(self.predicted)


def make_tagger(name: str, config: Config) -> Tagger:
    """A GRU of `num_params` between the table of characters and the logits of the classes.

    The logits are those of a softmax at every step, or of a conditional random field, whose chains
    are the paragraphs.
    """

    def make(width):
        mixer = jr.gru(width) if name == FORWARD else jr.bidirectional(jr.gru(width))
        return jr.serial(jr.embed(config.num_features), mixer, jr.dense(len(CLASSES)))

    layer = make(matched_width(make, NUM_CHARACTERS, config.num_params, range(4, 512)))

    def init(seed):
        return layer.init(jax.random.key(seed), NUM_CHARACTERS)

    def logits(params, rows):
        return jr.unroll(layer, params, rows.characters, mask=rows.mask, reset=rows.reset).outputs

    if name == CHAIN:
        return _chained(init, logits)

    def loss(params, rows):
        losses = jr.cross_entropy(logits(params, rows), rows.labels, rows.mask)
        return jr.mean_over_steps(losses, rows.mask, empty=0.0)

    return Tagger(init, loss, lambda params, rows: logits(params, rows).argmax(axis=-1))


def _chained(init, logits):
    def loss(params, rows):
        layer, crf = params
        scores = logits(layer, rows)
        each = jr.crf_log_likelihood(crf, scores, rows.labels, rows.mask, reset=rows.reset)
        return -each.sum() / jnp.maximum(rows.mask.sum(), 1)

    def told(params, rows):
        layer, crf = params
        return jr.viterbi(crf, logits(layer, rows), rows.mask, reset=rows.reset)

    return Tagger(lambda seed: (init(seed), jr.crf_init(len(CLASSES))), loss, told)


def train(
    config: Config, name: str, task: Task, checkpoints: Checkpoints, advance: Advance
) -> Tagged:
    """Every seed of one model; the test files are read once, after the last epoch."""
    tagger = make_tagger(name, config)
    predict = make_predict(config, tagger)
    known = np.concatenate([one.labels for one in task.validation.paragraphs])

    def score(params):
        predicted = predict(params, task.validation.paragraphs)
        return {"validation": (predicted == known).mean(axis=-1)}

    def batches(epoch):
        each = [epoch_rows(config, task.training, seed, epoch) for seed in config.all_seeds]
        return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *each)

    num_updates = config.epochs * updates_an_epoch(config, task.training)
    optimizer, seeds = adam(config, num_updates), np.array(config.all_seeds)
    fitter = Fitter(lambda params, rows, key: (tagger.loss(params, rows), {}), optimizer, score)
    params = jax.vmap(tagger.init)(seeds)
    fitted = fitter.fit_seeds(
        name, params, batches, config.epochs, checkpoints, every=EVERY, advance=advance
    )
    return Tagged(name, fitted, predict(fitted.params, task.test.paragraphs))


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


def make_predict(config: Config, tagger: Tagger) -> Callable[[Any, Sequence[Paragraph]], Any]:
    """`(params, paragraphs) -> classes [S, N]` of all characters, in order."""

    @jax.jit
    def told(params, rows):
        return jax.vmap(lambda params: tagger.told(params, rows))(params)

    def predict(params, paragraphs):
        batches = padded_rows(paragraphs, config.rows, config.row_length)
        return np.concatenate([told(params, rows)[:, rows.mask] for rows in batches], axis=1)

    return predict
