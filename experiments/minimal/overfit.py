"""One short sequence, until nothing of it is left unexplained; and a seed that is bound to fail."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.frame.checkpoints import Checkpoints
from experiments.minimal.config import Config
from experiments.minimal.training import (
    UPDATES_PER_CALL,
    Setting,
    Trained,
    initial_params,
    outputs,
    run_updates,
)

NUM_STEPS, WIDTH = 25, 32
PROVOKED_FACTOR = 1e30  # initial parameters whose squares no float32 holds


def overfit(
    config: Config, series: np.ndarray, checkpoints: Checkpoints, epoch_done: Callable[[int], Any]
) -> Trained:
    """Trains on the start of one series `[T]`; the seed behind the last one is bound to fail.

    The loss is the share of the variance of the targets that is left unexplained.
    """
    short = jnp.asarray(series[None, :NUM_STEPS, None], jnp.float32)
    setting = Setting(WIDTH, NUM_STEPS)

    def loss_fn(params, series, key):
        del key
        errors = outputs(setting, params, series[:, :-1]) - series[:, 1:]
        return (errors**2).mean() / series[:, 1:].var(), {}

    seeds = config.first_seed + np.arange(config.seeds + 1)
    provoked = jnp.where(np.arange(len(seeds)) == config.seeds, PROVOKED_FACTOR, 1.0)
    params = jax.tree.map(
        lambda leaf: leaf * provoked.reshape(-1, *(1,) * (leaf.ndim - 1)),
        initial_params(setting, seeds),
    )
    rate = optax.cosine_decay_schedule(1e-2, config.overfit_updates)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    repeated = jnp.broadcast_to(short, (len(seeds), UPDATES_PER_CALL, *short.shape))
    return run_updates(
        ("overfit", setting, config.overfit_updates),
        params,
        optimizer,
        loss_fn,
        lambda epoch: repeated,
        checkpoints,
        epoch_done,
    )
