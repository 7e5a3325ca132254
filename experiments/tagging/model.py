"""The same layers round a recurrence that reads forwards, or in both directions."""

from collections.abc import Callable
from typing import Any

import jax

import jaxrnn as jr
from experiments.data.source import CLASSES, NUM_CHARACTERS
from experiments.frame.models import matched_width
from experiments.tagging.config import Config
from experiments.tagging.task import Rows

DIRECTIONS = ("forward", "bidirectional")


def make_model(direction: str, config: Config) -> jr.Layer:
    """A GRU of `num_params` between the table of characters and the logits of the classes."""
    width = matched_width(
        lambda width: _model(direction, width, config.num_features),
        NUM_CHARACTERS,
        config.num_params,
        range(4, 512),
    )
    return _model(direction, width, config.num_features)


def make_logits(model: jr.Layer) -> Callable[[Any, Rows], Any]:
    """`(params, rows) -> [R, L, classes]`."""

    def logits(params, rows):
        return jr.unroll(model, params, rows.characters, mask=rows.mask, reset=rows.reset).outputs

    return logits


def make_loss(model: jr.Layer) -> Callable[[Any, Rows], Any]:
    """The mean cross-entropy of all real characters of a minibatch, however they are laid out."""
    logits = make_logits(model)

    def loss(params, rows):
        losses = jr.cross_entropy(logits(params, rows), rows.labels, rows.mask)
        return jr.mean_over_steps(losses, rows.mask, empty=0.0)

    return loss


def initial_params(model: jr.Layer, seed: int) -> Any:
    """Of one training."""
    return model.init(jax.random.key(seed), NUM_CHARACTERS)


def _model(direction, width, num_features):
    mixer = jr.gru(width) if direction == "forward" else jr.bidirectional(jr.gru(width))
    return jr.serial(jr.embed(num_features), mixer, jr.dense(len(CLASSES)))
