"""The character model that is served, and its training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.data.topics import ALPHABET, encode
from experiments.serve.config import Config

ROWS, STEPS = 16, 64


def network(width: int) -> jr.Model:
    return jr.serial(jr.embed(32), jr.gru(width), jr.dense(len(ALPHABET), jax.nn.log_softmax))


def train(config: Config, texts: list[str]) -> tuple[jr.Model, Any, float]:
    """The model, its parameters, and the bits per character of its last update."""
    model = network(config.width)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))

    def loss_fn(params, carry, batch, key):
        tokens, mask = batch.xs, batch.mask[:, 1:]
        rollout = jr.unroll(
            model, params, tokens[:, :-1], carry=carry, mask=mask, reset=batch.reset[:, :-1]
        )
        # The model returns logarithms of odds, which are logits too.
        losses = jr.cross_entropy(rollout.outputs, tokens[:, 1:], mask)
        return jr.mean_over_steps(losses, mask, empty=0.0), (rollout.carry, {})

    params = model.init(jax.random.key(0), len(ALPHABET))
    state = jr.TrainState.create(params, optimizer)
    carry = model.initial_carry(params, (ROWS,))
    update = jax.jit(jr.make_tbptt_step(loss_fn, optimizer))
    streams = [encode(text) for text in texts]
    metrics = {"loss": jnp.nan}
    batches = jr.stream_batches(streams, ROWS, STEPS, generator=0)
    for _, batch in zip(range(config.updates), batches, strict=False):
        state, carry, metrics = update(state, carry, batch)
    return model, state.params, float(metrics["loss"]) / np.log(2)
