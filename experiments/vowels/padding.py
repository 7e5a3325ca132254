"""One trained model, two ways to reach its final carry when recordings are padded."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxrnn as jr
from experiments.data.vowels import Recordings, padded_to
from experiments.vowels.model import Classifier


class PaddingScore(NamedTuple):
    """What padding to `length` steps does.

    Attributes:
        length: Steps after padding.
        masked: Whether a masked step copies the carry; otherwise the padding is read as data.
        accuracy: `[S]`.
        changed: `[S]`, predictions unlike those with a mask and the least padding.
    """

    length: int
    masked: bool
    accuracy: np.ndarray
    changed: np.ndarray


def score_padding(
    classifier: Classifier, params: Any, recordings: Recordings, lengths: Sequence[int]
) -> list[PaddingScore]:
    """Scores params with a leading axis of seeds at every length, with and without the mask."""
    predict = jax.jit(make_predict(classifier), static_argnums=2)
    reference = predict(params, padded_to(recordings, min(lengths)), True)
    scores = []
    for length in lengths:
        padded = padded_to(recordings, length)
        for masked in (True, False):
            predicted = predict(params, padded, masked)
            accuracy = np.mean(predicted == recordings.labels, axis=-1)
            changed = np.sum(predicted != reference, axis=-1)
            scores.append(PaddingScore(length, masked, np.asarray(accuracy), np.asarray(changed)))
    return scores


def make_predict(classifier: Classifier) -> Any:
    """`(params, recordings, masked) -> labels [S, N]`."""

    def predict(params, recordings, masked):
        mask = None
        if masked:
            mask = jr.mask_from_lengths(recordings.seq_lengths, recordings.xs.shape[1])
        return classifier.logits(params, recordings.xs, mask).argmax(axis=-1)

    def all_seeds(params, recordings, masked):
        return jax.vmap(lambda one: predict(one, recordings, masked))(params)

    return all_seeds
