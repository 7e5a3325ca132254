"""A recurrence, what of it is read, and a linear classifier on top."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrnn as jr
from experiments.vowels.config import Model, Readout

RECURRENCES: dict[Model, Callable[[int], Any]] = {
    "elman": jr.elman,
    "gru": jr.gru,
    "lstm": jr.lstm,
    "bilstm": lambda num_units: jr.bidirectional(jr.lstm(num_units)),
}


class ClassifierParams(NamedTuple):
    """`recurrence` and `classifier`, the parameters of the two parts."""

    recurrence: Any
    classifier: Any


class Classifier(NamedTuple):
    """`init(key, num_inputs) -> params`; `logits(params, xs, mask) -> [..., C]`."""

    init: Callable[[Any, int], ClassifierParams]
    logits: Callable[[ClassifierParams, Any, Any], Any]


def make_classifier(model: Model, readout: Readout, num_units: int, num_classes: int) -> Classifier:
    """The classifier of one model and readout; a mask of None runs over the padding as well."""
    recurrence, classifier = RECURRENCES[model](num_units), jr.dense(num_classes)

    def init(key, num_inputs):
        keys = jax.random.split(key)
        features = jax.eval_shape(
            lambda key: read(recurrence.init(key, num_inputs), jnp.zeros((1, num_inputs)), None),
            keys[0],
        )
        return ClassifierParams(
            recurrence.init(keys[0], num_inputs), classifier.init(keys[1], features.shape[-1])
        )

    def read(params, xs, mask):
        rollout = jr.unroll(recurrence, params, xs, mask=mask)
        if readout == "final":
            return final_h(rollout.carry)
        return jr.mean_valid(rollout.outputs, mask)

    def logits(params, xs, mask):
        features = read(params.recurrence, xs, mask)
        return jr.step(classifier, params.classifier, (), features)[1]

    return Classifier(init, logits)


def final_h(carry: Any) -> Any:
    """The h of a carry, or those of both directions side by side."""
    if hasattr(carry, "h"):
        return carry.h
    return jnp.concatenate([final_h(one) for one in carry], axis=-1)
