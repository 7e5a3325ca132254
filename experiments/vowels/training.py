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
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.stats import mean_and_spread
from experiments.vowels.config import Config, Model, Readout
from experiments.vowels.model import Classifier, make_classifier
from experiments.vowels.scoring import (
    PaddingScore,
    accuracy,
    loss_and_predictions,
    make_score,
    score_padding,
)


class Trained(NamedTuple):
    """One model and readout after training, all seeds.

    Attributes:
        model: Its name.
        readout: What is classified.
        num_params: Parameters of one seed.
        history: Name to `[S, E]`, one number a seed and epoch.
        failed: bool `[S]`, a loss, in training or in scoring, was not finite.
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
    checkpoints: Checkpoints,
    epoch_done: Callable[[int], None],
) -> Trained:
    """Trains every seed on the first recordings and scores it on the second after each epoch.

    `seconds` counts what was run now, not what a checkpoint brought.
    """
    start = time.perf_counter()
    training, scored = recordings
    classifier = make_classifier(model, readout, config.num_units, NUM_SPEAKERS)
    optimizer = make_optimizer(config)
    run_epoch = jax.jit(make_epoch(classifier, optimizer), donate_argnums=0)
    score = make_score(classifier)

    def initial_state(key):
        return jr.TrainState.create(classifier.init(key, NUM_COEFFICIENTS), optimizer)

    seeds = config.first_seed + np.arange(config.seeds)
    keys = jax.vmap(jax.random.split, out_axes=1)(jax.vmap(jax.random.key)(seeds))
    state = jax.vmap(initial_state)(keys[0])

    def one_epoch(state, epoch):
        batches = minibatches(keys[1], epoch, training, config.batch_size, config.input_noise)
        state, metrics = run_epoch(state, batches)
        loss, predicted = score(state.params, scored, True)
        return state, metrics | {"scored_loss": loss, "accuracy": accuracy(predicted, scored)}

    state, history = checkpoints.run(
        f"{model} {readout}", state, config.epochs, one_epoch, every=5, epoch_done=epoch_done
    )
    history = {name: values.T for name, values in history.items()}
    padding = []
    if readout == "final":
        padding = score_padding(score, state.params, scored, config.padded_lengths)
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


# Apart from the epoch, whose compilation the random numbers would double for every model.
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
    """`(states, batches) -> (states, metrics)`, with a leading axis of seeds."""

    def loss_fn(params, batch, key):
        del key
        loss, predicted = loss_and_predictions(classifier, params, batch, masked=True)
        return loss, {"training_accuracy": (predicted == batch.labels).mean()}

    epoch_step = jr.make_epoch_step(loss_fn, optimizer)

    def one_seed(state, batches):
        state, metrics = epoch_step(state, batches)
        return state, {name: values.mean() for name, values in metrics.items()}

    return jax.vmap(one_seed)
