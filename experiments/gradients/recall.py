"""Recall of one symbol after a delay: the task, the loss with a cut gradient, and the trainings.

A sequence is random symbols; one of them is marked, and at the last step it is asked for. Rows are
aligned at their end: what stands before the marked step is masked, so all delays share a shape.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitted, Fitter
from experiments.gradients.config import Config
from experiments.gradients.sweep import ORTHOGONAL, recurrent_kernel

NUM_SYMBOLS, BATCH, UPDATES_PER_EPOCH = 4, 32, 50
VANISHING_GAIN, EXPLODING_GAIN = 0.5, 3.0
JUDGED = 100
EPOCHS_PER_CHECKPOINT = 8
TANH, LSTM = "tanh", "LSTM"
CELLS = (TANH, LSTM)


class Recalled(NamedTuple):
    """A training with a cut gradient.

    Attributes:
        cell: One of `CELLS`.
        delay: Steps from the symbol to its recall.
        truncation: Steps the gradient went back through.
        seed: Of parameters and data.
        fitted: What came out.
    """

    cell: str
    delay: int
    truncation: int
    seed: int
    fitted: Fitted


class Clipped(NamedTuple):
    """A training of the tanh cell by gradient descent, through the whole sequence.

    Attributes:
        gain: Spectral radius of the recurrent kernel before training.
        clip: Largest norm of a gradient; infinite where it was not clipped.
        seed: Of parameters and data.
        fitted: What came out.
    """

    gain: float
    clip: float
    seed: int
    fitted: Fitted


def accuracy(fitted: Fitted) -> float:
    """The mean over the last updates, each on new sequences; NaN where the training failed."""
    return float("nan") if fitted.failed else float(last(fitted, "accuracy").mean())


def last(fitted: Fitted, name: str) -> np.ndarray:
    """Numbers of the last updates."""
    return np.ravel(fitted.history[name])[-JUDGED:]


def num_steps(config: Config) -> int:
    """T: what the longest delay takes."""
    return max(config.delays) + 1


def batches(config: Config, delay: int, truncation: int, seed: int) -> Callable[[int], Any]:
    """From an epoch to its minibatches; every sequence is drawn anew."""

    def of_epoch(epoch):
        generator = np.random.default_rng((seed, epoch))
        shape = (UPDATES_PER_EPOCH, BATCH, num_steps(config))
        symbols = generator.integers(NUM_SYMBOLS, size=shape)
        start = num_steps(config) - 1 - delay
        marks = np.zeros((*shape, 1), np.float32)
        marks[:, :, start] = 1
        return {
            "xs": np.concatenate([np.eye(NUM_SYMBOLS, dtype=np.float32)[symbols], marks], axis=-1),
            "target": symbols[:, :, start],
            "start": np.full(UPDATES_PER_EPOCH, start),
            "cut": np.full(UPDATES_PER_EPOCH, num_steps(config) - truncation),
        }

    return of_epoch


def loss_of(model: jr.Layer) -> Callable[..., Any]:
    """Cross-entropy of the recall; no gradient reaches the steps before `cut`."""

    def loss_fn(params, batch, key):
        del key
        xs, steps = batch["xs"], jnp.arange(batch["xs"].shape[1])

        def run(real, carry):
            mask = jnp.broadcast_to(real, xs.shape[:2])
            return jr.unroll(model, params, xs, mask=mask, carry=carry)

        before = run((steps >= batch["start"]) & (steps < batch["cut"]), None)
        after = run(steps >= jnp.maximum(batch["start"], batch["cut"]), jr.detach(before.carry))
        logits = after.outputs[:, -1]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"]).mean()
        return loss, {"accuracy": (logits.argmax(-1) == batch["target"]).mean()}

    return loss_fn


def num_truncated(config: Config) -> int:
    """How many `train_truncated` yields."""
    return len(CELLS) * config.seeds * len(config.delays) * len(config.truncations)


def num_clipped(config: Config) -> int:
    """How many `train_clipped` yields."""
    return config.seeds * 2 * (1 + len(config.clips))


def num_epochs(config: Config) -> int:
    """Calls of a training."""
    return config.updates // UPDATES_PER_EPOCH


def train_truncated(config: Config, checkpoints: Checkpoints, epoch_done: Callable[[int], Any]):
    """Every cell, delay, truncation and seed."""
    for cell in CELLS:
        model, start = _start(config, cell)
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(config.learning_rate))
        fitter = Fitter(loss_of(model), optimizer)
        for delay in config.delays:
            for truncation in config.truncations:
                for seed in config.all_seeds:
                    fitted = fitter.fit(
                        f"{cell} delay {delay} truncation {truncation} seed {seed}",
                        start(seed),
                        batches(config, delay, truncation, seed),
                        num_epochs(config),
                        checkpoints,
                        every=EPOCHS_PER_CHECKPOINT,
                        epoch_done=epoch_done,
                    )
                    yield Recalled(cell, delay, truncation, seed, fitted)


def _start(config, cell):
    """The model, and from a seed to where it starts: an orthogonal kernel, or forget bias 1."""
    if cell == TANH:
        return tanh_model(config), lambda seed: tanh_params(config, 1.0, seed)
    model = jr.serial(jr.lstm(config.num_units), jr.dense(NUM_SYMBOLS))
    return model, lambda seed: model.init(jax.random.key(seed), NUM_SYMBOLS + 1)


def train_clipped(config: Config, checkpoints: Checkpoints, epoch_done: Callable[[int], Any]):
    """A start that vanishes and one that explodes, clipped and not, at the longest delay."""
    model = tanh_model(config)
    delay, whole = max(config.delays), num_steps(config)
    for clip in (float("inf"), *config.clips):
        descent = optax.sgd(config.sgd_learning_rate)
        limited = optax.chain(optax.clip_by_global_norm(clip), descent)
        fitter = Fitter(loss_of(model), descent if clip == float("inf") else limited)
        for gain in (VANISHING_GAIN, EXPLODING_GAIN):
            for seed in config.all_seeds:
                fitted = fitter.fit(
                    f"gain {gain} clip {clip} seed {seed}",
                    tanh_params(config, gain, seed),
                    batches(config, delay, whole, seed),
                    num_epochs(config),
                    checkpoints,
                    every=EPOCHS_PER_CHECKPOINT,
                    epoch_done=epoch_done,
                )
                yield Clipped(gain, clip, seed, fitted)


def tanh_model(config: Config) -> jr.Layer:
    """The plain cell and a readout."""
    return jr.serial(jr.elman(config.num_units), jr.dense(NUM_SYMBOLS))


def tanh_params(config: Config, gain: float, seed: int) -> Any:
    """Parameters with a recurrent kernel that is orthogonal but for a factor."""
    cell, readout = tanh_model(config).init(jax.random.key(seed), NUM_SYMBOLS + 1)
    kernel = gain * recurrent_kernel(ORTHOGONAL, config.num_units, seed)
    return type((cell, readout))((cell._replace(recurrent_kernel=jnp.float32(kernel)), readout))
