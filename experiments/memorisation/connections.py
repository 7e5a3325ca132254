"""How the prediction of a character depends on the characters before it, by gradient."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.characters.model import Sized
from experiments.characters.text import stream_of
from experiments.data.topics import ALPHABET, encode
from jaxrnn.diagnostics import input_sensitivity

LIKELIEST = 5


class Connections(NamedTuple):
    """What a model makes of passages, each read as if nothing had come before it.

    Attributes:
        strength: `[P, T, T]`, of the prediction of a character (row) to an earlier one (column);
            0 from the character itself on.
        likeliest: ints `[P, T, LIKELIEST]`, what the model thinks comes, the likeliest first.
        probabilities: `[P, T, LIKELIEST]`, of these.
        truth: `[P, T]`, the probability of the character that comes.
    """

    strength: np.ndarray
    likeliest: np.ndarray
    probabilities: np.ndarray
    truth: np.ndarray

    @property
    def bits(self) -> float:
        """Bits per character of the passages."""
        return float(-np.log2(self.truth).mean())

    def shares(self) -> np.ndarray:
        """The strength as a share of the sum of its row, `[P, T, T]`; a row without any is 0."""
        sums = self.strength.sum(axis=-1, keepdims=True)
        return np.divide(self.strength, sums, out=np.zeros_like(self.strength), where=sums > 0)


class Read(NamedTuple):
    """What the model behind the embedding reads: `embedded [..., D]`, and which logit is asked."""

    embedded: Any
    asked: Any


def connect(model: Sized, params: Any, texts: Sequence[str]) -> Connections:
    """Those of passages of one length.

        Sₜⱼ = ‖∂(zₜ[c] - mean zₜ) / ∂eⱼ‖₂,   c = argmax zₜ

    zₜ are the logits of character t, from the characters before it, and eⱼ the embedded character
    j. The mean is taken off because a change of all logits alike changes no prediction.
    """
    xs = jnp.stack([stream_of([text]).xs for text in texts])
    logits = jr.unroll(model.layer(), params, xs).outputs
    embedded = jr.unroll(jr.embed(model.width), params[0], xs).outputs
    read = Read(embedded, logits.argmax(-1))
    sensitivity = np.asarray(input_sensitivity(asked_logit(model), params[1:], read))
    # x of step k is the character k - 1: the first is the line break in front of the passage.
    strength = np.pad(sensitivity[..., 1:], ((0, 0), (0, 0), (0, 1)))
    chances = np.asarray(jax.nn.softmax(logits))
    likeliest = np.argsort(-chances, axis=-1, kind="stable")[..., :LIKELIEST]
    ys = np.stack([encode(text) for text in texts])[..., None]
    return Connections(
        strength,
        likeliest,
        np.take_along_axis(chances, likeliest, -1),
        np.take_along_axis(chances, ys, -1)[..., 0],
    )


def asked_logit(model: Sized) -> jr.Layer:
    """What follows the embedding: from `Read` to the logit that is asked for, less their mean."""
    blocks = [jr.block(mixer, model.width) for mixer in model.mixers()]
    body = jr.serial(*blocks, jr.layer_norm(), jr.dense(len(ALPHABET)))

    def unroll(params, carry, steps, key):
        read = steps.xs
        rollout = body.unroll(params, carry, steps._replace(xs=read.embedded), key)
        asked = jnp.take_along_axis(rollout.outputs, read.asked[..., None], -1)
        return rollout._replace(outputs=asked - rollout.outputs.mean(-1, keepdims=True))

    return body._replace(
        unroll=unroll, num_outputs=lambda num_inputs: 1, num_feature_axes=Read(1, 0)
    )
