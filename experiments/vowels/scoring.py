"""What a classifier gets right; and two ways to reach its final carry behind padding."""

from collections.abc import Callable, Sequence
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


def loss_and_predictions(
    classifier: Classifier, params: Any, recordings: Recordings, masked: bool
) -> tuple[Any, Any]:
    """The mean cross-entropy, and the most likely speaker of each recording, `[N]`."""
    mask = None
    if masked:
        mask = jr.mask_from_lengths(recordings.seq_lengths, recordings.xs.shape[1])
    logits = classifier.logits(params, recordings.xs, mask)
    loss = jr.mean_over_steps(jr.cross_entropy(logits, recordings.labels))
    return loss, logits.argmax(axis=-1)


def make_score(classifier: Classifier) -> Callable[[Any, Recordings, bool], tuple[Any, Any]]:
    """`(params, recordings, masked) -> (losses [S], predictions [S, N])`, compiled."""

    def score(params, recordings, masked):
        return jax.vmap(
            lambda params: loss_and_predictions(classifier, params, recordings, masked)
        )(params)

    return jax.jit(score, static_argnums=2)


def accuracy(predicted: Any, recordings: Recordings) -> np.ndarray:
    """The share of recordings whose speaker is predicted, `[S]`."""
    return np.mean(np.asarray(predicted) == recordings.labels, axis=-1)


def score_padding(
    score: Callable[[Any, Recordings, bool], tuple[Any, Any]],
    params: Any,
    recordings: Recordings,
    lengths: Sequence[int],
) -> list[PaddingScore]:
    """Scores params of all seeds at every length, with and without the mask."""
    _, reference = score(params, padded_to(recordings, min(lengths)), True)
    scores = []
    for length in lengths:
        padded = padded_to(recordings, length)
        for masked in (True, False):
            _, predicted = score(params, padded, masked)
            changed = np.sum(np.asarray(predicted != reference), axis=-1)
            scores.append(PaddingScore(length, masked, accuracy(predicted, recordings), changed))
    return scores
