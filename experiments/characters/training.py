"""Truncated backpropagation over streams of text, a pass over all of it an epoch."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.characters.config import Config
from experiments.characters.model import BITS, Sized
from experiments.characters.text import reset_every_chunk, training_chunks
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitted, Fitter


class Trained(NamedTuple):
    """A model after training.

    Attributes:
        model: Which.
        mode: What happened to the carry between the chunks.
        fitted: What came of it; the losses in its history are in bits.
    """

    model: Sized
    mode: str
    fitted: Fitted

    @property
    def name(self) -> str:
        """What it is called in files."""
        return f"{self.model.mixer} {self.mode}"


class Descent(NamedTuple):
    """AdamW behind a clip of the global norm; the rate rises, then falls along a cosine."""

    learning_rate: float
    weight_decay: float
    gradient_clip: float
    num_updates: int

    def optimizer(self) -> optax.GradientTransformation:
        """As optax has it."""
        rate = optax.warmup_cosine_decay_schedule(
            0.1 * self.learning_rate,
            self.learning_rate,
            max(1, self.num_updates // 20),
            max(2, self.num_updates),
            0.01 * self.learning_rate,
        )
        return optax.chain(
            optax.clip_by_global_norm(self.gradient_clip),
            optax.adamw(rate, weight_decay=self.weight_decay),
        )


def train(
    config: Config,
    model: Sized,
    mode: str,
    texts: Iterable[str],
    checkpoints: Checkpoints,
    epoch_done: Callable[[int], Any],
) -> Trained:
    """All epochs, from the same parameters and with the same text in each mode."""
    texts = [text[: max(2, int(config.training_share * len(text)))] for text in texts]

    def batches(epoch):
        seed = config.seed, epoch
        chunks = training_chunks(texts, config.batch_size, config.chunk, seed)
        return reset_every_chunk(chunks) if mode == "reset" else chunks

    descent = Descent(
        config.learning_rate,
        config.weight_decay,
        config.gradient_clip,
        config.epochs * len(batches(0).xs),
    )
    fitted = make_fitter(model, descent, config.batch_size).fit(
        f"{model.mixer} {mode}",
        model.init(config.seed),
        batches,
        config.epochs,
        checkpoints,
        every=2,
        epoch_done=epoch_done,
    )
    return Trained(model, mode, fitted)


@functools.cache
def make_fitter(model: Sized, descent: Descent, batch_size: int) -> Fitter:
    """What trains a model in any mode; compiled once."""

    def make_epoch(loss_fn, optimizer):
        return make_stream_epoch(loss_fn, optimizer, model, batch_size)

    return Fitter(make_loss(model), descent.optimizer(), make_epoch=make_epoch)


def make_loss(model: Sized) -> Callable[..., Any]:
    """Bits per character of a chunk, from the carry in front of it."""
    layer = model.layer()

    def loss_fn(params, carry, chunk, key):
        rollout = jr.unroll(layer, params, chunk.xs, carry=carry, reset=chunk.reset, key=key)
        losses = BITS * jr.cross_entropy(rollout.outputs, chunk.ys)
        return jr.mean_over_steps(losses), (rollout.carry, {})

    return loss_fn


def make_stream_epoch(
    loss_fn: Any, optimizer: optax.GradientTransformation, model: Sized, batch_size: int
) -> Callable[..., Any]:
    """`(state, chunks, key) -> (state, metrics)`: a scan of TBPTT steps, the carry between them."""
    tbptt_step = jr.make_tbptt_step(loss_fn, optimizer)

    def epoch(state, chunks, key):
        del key
        carry = model.layer().initial_carry(state.params, (batch_size,))

        def update(state_and_carry, chunk):
            state, carry, metrics = tbptt_step(*state_and_carry, chunk)
            return (state, carry), metrics

        (state, _), metrics = jax.lax.scan(
            update, (state, carry), jax.tree.map(jnp.asarray, chunks)
        )
        return state, metrics

    return epoch


def clipped_share(fitted: Fitted, largest: float) -> float:
    """The share of the updates whose gradient was longer than `largest`."""
    return float(np.mean(fitted.history["gradient_norm"] > largest))
