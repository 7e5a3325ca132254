"""Truncated backpropagation over streams of text, a pass over all of it an epoch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.characters.config import Config
from experiments.characters.model import BITS, Sized
from experiments.characters.text import Chunks, reset_every_chunk, training_chunks
from experiments.checkpoints import Checkpoints
from experiments.fitting import Fitted, Fitter


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


class Trainer:
    """Trains one model in any mode; compiled once.

    Args:
        config: The options.
        model: Which.
        texts: What to learn from.
    """

    def __init__(self, config: Config, model: Sized, texts: list[str]):
        self.config, self.model = config, model
        self.texts = [text[: max(2, int(config.training_share * len(text)))] for text in texts]
        self.num_updates = len(self._batches("carried", 0).xs)
        self.fitter = Fitter(
            make_loss(model), make_optimizer(config, self.num_updates), make_epoch=self._make_epoch
        )

    def train(
        self, mode: str, checkpoints: Checkpoints, epoch_done: Callable[[int], Any]
    ) -> Trained:
        """All epochs, from the same parameters and with the same text in each mode."""
        fitted = self.fitter.fit(
            f"{self.model.mixer} {mode}",
            self.model.init(self.config.seed),
            lambda epoch: self._batches(mode, epoch),
            self.config.epochs,
            checkpoints,
            every=2,
            epoch_done=epoch_done,
        )
        return Trained(self.model, mode, fitted)

    def _batches(self, mode: str, epoch: int) -> Chunks:
        config = self.config
        chunks = training_chunks(self.texts, config.batch_size, config.chunk, (config.seed, epoch))
        return reset_every_chunk(chunks) if mode == "reset" else chunks

    def _make_epoch(self, loss_fn, optimizer):
        return make_stream_epoch(loss_fn, optimizer, self.model, self.config.batch_size)


def make_loss(model: Sized) -> Callable[..., Any]:
    """Bits per character of a chunk, from the carry in front of it."""
    layer = model.layer()

    def loss_fn(params, carry, chunk, key):
        rollout = jr.unroll(layer, params, chunk.xs, carry=carry, reset=chunk.reset, key=key)
        losses = BITS * jr.categorical_loss(rollout.outputs, chunk.ys)
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


def make_optimizer(config: Config, updates_per_epoch: int) -> optax.GradientTransformation:
    """AdamW behind a clip of the global norm; the rate rises, then falls along a cosine."""
    num_updates = config.epochs * updates_per_epoch
    rate = optax.warmup_cosine_decay_schedule(
        0.1 * config.learning_rate,
        config.learning_rate,
        max(1, num_updates // 20),
        max(2, num_updates),
        0.01 * config.learning_rate,
    )
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.adamw(rate, weight_decay=config.weight_decay),
    )


def clipped_share(fitted: Fitted, largest: float) -> float:
    """The share of the updates whose gradient was longer than `largest`."""
    return float(np.mean(fitted.history["gradient_norm"] > largest))
