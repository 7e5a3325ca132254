"""Trains or reads the models, and asks by gradient what their predictions depend on."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.characters.model import Sized, sized, stream_of
from experiments.characters.train import load, saved_config, train
from experiments.characters.writing import Passage, passages
from experiments.data.topics import ALPHABET, encode, load_topics, make_corpus
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitted
from experiments.frame.progress import progress_bar
from experiments.memorisation.config import MIXERS, Config
from jaxrnn.diagnostics import input_sensitivity

LIKELIEST = 5


class Traced(NamedTuple):
    """What a trained model makes of passages, each read as if nothing had come before it."""

    model: Sized
    params: Any
    strength: np.ndarray  # [P, T, T], of predictions (rows) by earlier characters (columns)
    likeliest: np.ndarray  # [P, T, LIKELIEST], what the model thinks comes, the likeliest first
    probabilities: np.ndarray  # [P, T, LIKELIEST], of these
    truth: np.ndarray  # [P, T], the probability of the character that comes
    fitted: Fitted | None = None  # its training, if that was done here

    @property
    def bits(self) -> float:
        return float(-np.log2(self.truth).mean())

    def by_distance(self) -> np.ndarray:
        """The share of the dependence on the character so many places back, `[T // 2]`.

        A mean over the predictions in the second half of the passages, each of which has so many
        characters before it; the first number is that of the last character.
        """
        sums = self.strength.sum(axis=-1, keepdims=True)
        shares = np.divide(self.strength, sums, out=np.zeros_like(self.strength), where=sums > 0)
        length = shares.shape[-1]
        reach = length // 2
        rows = [shares[:, row, row - reach : row][:, ::-1] for row in range(reach, length)]
        return np.mean(rows, axis=(0, 1))

    def beyond(self, distance: int) -> float:
        """The share of the dependence on characters more than `distance` places back."""
        return float(1 - self.by_distance()[:distance].sum())


class Results(NamedTuple):
    """The held-out passages that are shown, and every model so far."""

    passages: Sequence[Passage]
    traced: tuple[Traced, ...] = ()


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[Results]:
    """The passages; then every model, trained or read, and what its predictions depend on."""
    given = config.characters
    training = config.training() if given is None else saved_config(given)
    corpus = make_corpus(load_topics(), training.held_out, training.seed)
    found = passages(corpus.held_out, config.passages, config.length, 0, config.seed, "--passages")
    texts, results = [passage.prompt for passage in found], Results(found)
    models = [sized(mixer, training.parameters, training.blocks) for mixer in MIXERS]
    loaded = {}
    if given is not None:  # all at once, before anything is written about one of them
        mode, digest = training.modes[0], corpus.digest
        loaded = {model: load(given, mode, model, digest) for model in models}
    yield results
    with progress_bar(len(models) * (1 + config.epochs * (given is None))) as bar:
        for model in models:
            bar.stage(model.label)
            fitted = None
            if given is None:
                known = corpus.training.values()
                fitted = train(training, model, "carried", known, checkpoints, bar.advance)
            params = loaded[model] if fitted is None else fitted.params_of(0)
            traced = connect(model, params, texts)._replace(fitted=fitted)
            bar.advance()
            bar.finish_stage(f"{model.label}: {traced.bits:.2f} bits per character")
            yield (results := results._replace(traced=(*results.traced, traced)))


class Read(NamedTuple):
    """What the model after the embedding reads: `embedded [..., D]`, and which logit is asked."""

    embedded: Any
    asked: Any


def connect(model: Sized, params: Any, texts: Sequence[str]) -> Traced:
    """What the predictions of passages of one length depend on.

        Sₜⱼ = ‖∂(zₜ[c] - mean zₜ) / ∂eⱼ‖₂,   c = argmax zₜ

    zₜ are the logits of character t, from the characters before it, and eⱼ the embedded character
    j. The mean is taken off because a change of all logits alike changes no prediction.
    """
    xs = jnp.stack([stream_of([text]).xs for text in texts])
    logits = jr.unroll(model.layer(), params, xs).outputs
    embedded = jr.unroll(jr.embed(model.width), params[0], xs).outputs
    read = Read(embedded, logits.argmax(-1))
    sensitivity = np.asarray(input_sensitivity(asked_logit(model), params[1:], read))
    # x of step k is the character k - 1: the first is the line break before the passage.
    strength = np.pad(sensitivity[..., 1:], ((0, 0), (0, 0), (0, 1)))
    chances = np.asarray(jax.nn.softmax(logits))
    likeliest = np.argsort(-chances, axis=-1, kind="stable")[..., :LIKELIEST]
    ys = np.stack([encode(text) for text in texts])[..., None]
    return Traced(
        model,
        params,
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

    return body._replace(unroll=unroll, num_outputs=lambda _: 1, num_feature_axes=Read(1, 0))
