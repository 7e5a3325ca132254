"""Trains every model with every readout, and scores what padding does to it."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.data import vowels
from experiments.data.vowels import NUM_COEFFICIENTS, NUM_SPEAKERS, Recordings, padded_to
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, Fitter, adam
from experiments.frame.progress import progress_bar
from experiments.frame.stats import mean_and_spread
from experiments.vowels.config import NUM_HELD_OUT, Config, Model, Readout

Score = Callable[[Any, Recordings, bool], tuple[Any, Any]]
RECURRENCES: dict[Model, Callable[[int], Any]] = {
    "elman": jr.elman,
    "gru": jr.gru,
    "lstm": jr.lstm,
    "bilstm": lambda num_units: jr.bidirectional(jr.lstm(num_units)),
}


class PaddingScore(NamedTuple):
    """What padding to `length` steps does."""

    length: int  # steps after padding
    masked: bool  # whether a masked step copies the carry; otherwise the padding is read as data
    accuracy: np.ndarray  # [S]
    changed: np.ndarray  # [S], predictions unlike those with a mask and the least padding


class Trained(NamedTuple):
    """One model and readout after training, all seeds; no padding scores for mean pooling."""

    model: Model
    readout: Readout
    fitted: Fitted
    padding: Sequence[PaddingScore]

    @property
    def accuracy(self) -> np.ndarray:
        return self.fitted.last("accuracy")

    @property
    def summary(self) -> str:
        failed = self.fitted.failed
        text = f"{mean_and_spread(100 * self.accuracy[~failed])} %"
        return f"{text}, {failed.sum()} failed" if failed.any() else text


def measure(config: Config, checkpoints: Checkpoints) -> Iterator[list[Trained]]:
    recordings = prepare(config)
    results: list[Trained] = []
    with progress_bar(config.epochs * len(config.models) * len(config.readouts)) as bar:
        for model, readout in itertools.product(config.models, config.readouts):
            bar.stage(f"{model}, {readout}")
            trained = train(config, model, readout, recordings, checkpoints, bar.advance)
            bar.finish_stage(f"{model}, {readout}: {trained.summary}")
            yield (results := [*results, trained])


def prepare(config: Config) -> tuple[Recordings, Recordings]:
    """What to learn from and what to score, both in units of what is learned from."""
    training, scored = vowels.load_vowels()
    if config.evaluate_on == "validation":
        training, scored = vowels.held_out(training, NUM_HELD_OUT)
    by = vowels.statistics(training)
    return vowels.normalized(training, by), vowels.normalized(scored, by)


class Classifier(NamedTuple):
    """`init(key, num_inputs) -> params`; `logits(params, xs, mask) -> [..., C]`."""

    init: Callable[[Any, int], Any]
    logits: Callable[[Any, Any, Any], Any]


def make_classifier(model: Model, readout: Readout, num_units: int) -> Classifier:
    """A recurrence, and a linear classifier of what is read of it; without a mask, padding too."""
    recurrence, classifier = RECURRENCES[model](num_units), jr.dense(NUM_SPEAKERS)

    def logits(params, xs, mask):
        rollout = jr.unroll(recurrence, params[0], xs, mask=mask)
        final = readout == "final"
        read = final_h(rollout.carry) if final else jr.mean_valid(rollout.outputs, mask)
        return jr.step(classifier, params[1], (), read)[1]

    return Classifier(jr.serial(recurrence, classifier).init, logits)


def final_h(carry: Any) -> Any:
    """The h of a carry, or those of both directions side by side."""
    if hasattr(carry, "h"):
        return carry.h
    return jnp.concatenate([final_h(one) for one in carry], axis=-1)


def train(
    config: Config,
    model: Model,
    readout: Readout,
    recordings: tuple[Recordings, Recordings],
    checkpoints: Checkpoints,
    advance: Advance,
) -> Trained:
    """Trains every seed on the first recordings and scores it on the second after each epoch."""
    training, scored = recordings
    classifier = make_classifier(model, readout, config.num_units)
    score = make_score(classifier)

    def loss_fn(params, batch, key):
        del key
        loss, predicted = loss_and_predictions(classifier, params, batch, masked=True)
        return loss, {"training_accuracy": (predicted == batch.labels).mean()}

    def score_epoch(params):
        loss, predicted = score(params, scored, True)
        return {"scored_loss": loss, "accuracy": accuracy(predicted, scored)}

    seeds = np.array(config.all_seeds)
    keys = jax.vmap(jax.random.split, out_axes=1)(jax.vmap(jax.random.key)(seeds))
    num_updates = config.epochs * (config.num_training // config.batch_size)
    optimizer = adam(config, num_updates, weight_decay=config.weight_decay)
    fitted = Fitter(loss_fn, optimizer, score_epoch).fit_seeds(
        f"{model} {readout}",
        jax.vmap(lambda key: classifier.init(key, NUM_COEFFICIENTS))(keys[0]),
        lambda epoch: minibatches(keys[1], epoch, training, config.batch_size, config.input_noise),
        config.epochs,
        checkpoints,
        advance=advance,
    )
    final = readout == "final"
    padding = score_padding(score, fitted.params, scored, config.padded_lengths) if final else ()
    return Trained(model, readout, fitted, padding)


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


def make_score(classifier: Classifier) -> Score:
    """`(params, recordings, masked) -> (losses [S], predictions [S, N])`, compiled."""

    def score(params, recordings, masked):
        return jax.vmap(lambda p: loss_and_predictions(classifier, p, recordings, masked))(params)

    return jax.jit(score, static_argnums=2)


def accuracy(predicted: Any, recordings: Recordings) -> np.ndarray:
    return np.mean(np.asarray(predicted) == recordings.labels, axis=-1)


def score_padding(
    score: Score, params: Any, recordings: Recordings, lengths: Sequence[int]
) -> list[PaddingScore]:
    _, reference = score(params, padded_to(recordings, min(lengths)), True)
    scores = []
    for length in lengths:
        padded = padded_to(recordings, length)
        for masked in (True, False):
            _, predicted = score(params, padded, masked)
            changed = np.sum(np.asarray(predicted != reference), axis=-1)
            scores.append(PaddingScore(length, masked, accuracy(predicted, recordings), changed))
    return scores
