"""Trains all seeds of one model at once: an epoch is one call, the seeds are a `vmap`."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import jaxrnn as jr
from experiments.data.vowels import NUM_COEFFICIENTS, NUM_SPEAKERS, Recordings
from experiments.tables import mean_and_spread
from experiments.vowels.config import Config, Model, Readout
from experiments.vowels.model import Classifier, make_classifier
from experiments.vowels.padding import PaddingScore, score_padding


class Trained(NamedTuple):
    """One model and readout after training, all seeds.

    Attributes:
        model: Its name.
        readout: What is classified.
        num_params: Parameters of one seed.
        history: Name to `[S, E]`, one number a seed and epoch.
        failed: bool `[S]`, a loss or a logit was not finite.
        padding: Scores with and without a mask; none for mean pooling.
        seconds: Wall time, compilation included.
    """

    model: Model
    readout: Readout
    num_params: int
    history: dict[str, np.ndarray]
    failed: np.ndarray
    padding: list[PaddingScore]
    seconds: float

    @property
    def accuracy(self) -> np.ndarray:
        """Share of the scored recordings that are told right after the last epoch, `[S]`."""
        return self.history["accuracy"][:, -1]

    @property
    def summary(self) -> str:
        """Accuracy over the seeds that did not fail, and how many did."""
        text = f"{mean_and_spread(100 * self.accuracy[~self.failed])} %"
        return f"{text}, {self.failed.sum()} failed" if self.failed.any() else text


def train(
    config: Config,
    model: Model,
    readout: Readout,
    recordings: tuple[Recordings, Recordings],
    epoch_done: Callable[[], None],
) -> Trained:
    """Trains every seed on the first recordings and scores it on the second after each epoch."""
    start = time.perf_counter()
    training, scored = recordings
    classifier = make_classifier(model, readout, config.num_units, NUM_SPEAKERS)
    optimizer = make_optimizer(config)
    run_epoch = jax.jit(make_epoch(classifier, optimizer), donate_argnums=0)

    def initial_state(key):
        return jr.TrainState.create(classifier.init(key, NUM_COEFFICIENTS), optimizer)

    seeds = config.first_seed + np.arange(config.seeds)
    initial_keys, epoch_keys = jax.vmap(jax.random.split, out_axes=1)(
        jax.vmap(jax.random.key)(seeds)
    )
    state = jax.jit(jax.vmap(initial_state))(initial_keys)
    epochs = []
    for epoch in range(config.epochs):
        batches = minibatches(epoch_keys, epoch, training, config.batch_size, config.input_noise)
        state, metrics = run_epoch(state, batches, scored)
        epochs.append(jax.device_get(metrics))
        epoch_done()
    history = {name: np.stack([epoch[name] for epoch in epochs], axis=1) for name in epochs[0]}
    padding = []
    if readout == "final":
        padding = score_padding(classifier, state.params, scored, config.padded_lengths)
    return Trained(
        model=model,
        readout=readout,
        num_params=sum(leaf.size for leaf in jax.tree.leaves(state.params)) // config.seeds,
        history=history,
        failed=np.any(~np.isfinite(history["loss"] + history["scored_loss"]), axis=1),
        padding=padding,
        seconds=time.perf_counter() - start,
    )


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """AdamW behind a clip of the global norm, with a rate that falls to zero along a cosine."""
    num_steps = config.epochs * (config.num_training // config.batch_size)
    rate = optax.cosine_decay_schedule(config.learning_rate, num_steps)
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.adamw(rate, weight_decay=config.weight_decay),
    )


# Outside the epoch, whose compilation the random numbers would double for every model.
@functools.partial(jax.jit, static_argnums=(3, 4))
def minibatches(keys, epoch, training: Recordings, batch_size: int, noise: float) -> Recordings:
    """The recordings in a new order with new noise for each seed, `[S, N / batch_size, ...]`."""

    def one_seed(key):
        order_key, noise_key = jax.random.split(jax.random.fold_in(key, epoch))
        order = jax.random.permutation(order_key, len(training.labels))
        xs = training.xs + noise * jax.random.normal(noise_key, training.xs.shape)
        return jax.tree.map(
            lambda leaf: leaf[order].reshape(-1, batch_size, *leaf.shape[1:]),
            training._replace(xs=xs),
        )

    return jax.vmap(one_seed)(keys)


def make_epoch(
    classifier: Classifier, optimizer: optax.GradientTransformation
) -> Callable[..., Any]:
    """`(states, batches, scored) -> (states, metrics)`, with a leading axis of seeds."""

    def loss_fn(params, batch, key):
        del key
        loss, accuracy = _loss_and_accuracy(classifier, params, batch)
        return loss, {"training_accuracy": accuracy}

    epoch_step = jr.make_epoch_step(loss_fn, optimizer)

    def one_seed(state, batches, scored):
        state, metrics = epoch_step(state, batches)
        loss, accuracy = _loss_and_accuracy(classifier, state.params, scored)
        means = {name: values.mean() for name, values in metrics.items()}
        return state, means | {"scored_loss": loss, "accuracy": accuracy}

    return jax.vmap(one_seed, in_axes=(0, 0, None))


def _loss_and_accuracy(classifier, params, recordings: Recordings):
    mask = jr.mask_from_lengths(recordings.seq_lengths, recordings.xs.shape[1])
    logits = classifier.logits(params, recordings.xs, mask)
    loss = jr.mean_over_steps(jr.categorical_loss(logits, recordings.labels))
    return loss, (logits.argmax(axis=-1) == recordings.labels).mean()
