"""Trains all seeds of one setting at once: 25 updates are one call, the seeds are a `vmap`."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import failed_rows
from experiments.minimal.config import Config
from jaxrnn.training import LossFn

UPDATES_PER_CALL = 25
SCALE_NOISE = 0.5  # deviation of the log of the factor by which a series is multiplied


class Setting(NamedTuple):
    """What is trained.

    Attributes:
        width: Units of the GRU.
        truncation: Steps a gradient goes back through.
        stateless: Whether the carry is reset in front of every step.
    """

    width: int
    truncation: int
    stateless: bool = False

    @property
    def name(self) -> str:
        """What the setting is called in tables and files."""
        kind = "stateless" if self.stateless else "GRU"
        return f"{kind} {self.width}, truncation {self.truncation}"


class Trained(NamedTuple):
    """One setting after training, all seeds.

    Attributes:
        purpose: "choice", "test" or "overfit".
        setting: What was trained.
        evaluator: What ran the recurrence.
        num_params: Parameters of one seed.
        params: A tree with a leading axis of seeds.
        history: Name to `[S, U]`, one number a seed and update.
        failed: bool `[S]`, something was not finite.
        seconds: Wall time of what was run now.
    """

    purpose: str
    setting: Setting
    evaluator: str
    num_params: int
    params: Any
    history: dict[str, np.ndarray]
    failed: np.ndarray
    seconds: float


def make_model(width: int) -> jr.Layer:
    """One change in, the next one out."""
    return jr.serial(jr.gru(width), jr.dense(1))


def outputs(setting: Setting, params: Any, xs: Any, mask: Any = None) -> Any:
    """What the model puts out `[B, T, 1]`; no gradient crosses from one chunk to the one before."""
    model = make_model(setting.width)
    batch, num_steps, _ = xs.shape
    size = min(setting.truncation, num_steps)
    padding = -num_steps % size
    mask = jnp.ones((batch, num_steps), bool) if mask is None else mask

    def chunks(array):
        widths = ((0, 0), (0, padding)) + ((0, 0),) * (array.ndim - 2)
        padded = jnp.pad(array, widths).reshape(batch, -1, size, *array.shape[2:])
        return jnp.moveaxis(padded, 1, 0)

    def one_chunk(carry, chunk):
        xs, mask = chunk
        reset = jnp.ones_like(mask) if setting.stateless else None
        rollout = jr.unroll(model, params, xs, carry=jr.detach(carry), mask=mask, reset=reset)
        return rollout.carry, rollout.outputs

    carry = model.initial_carry(params, (batch,))
    _, ys = jax.lax.scan(one_chunk, carry, (chunks(xs), chunks(mask)))
    return jnp.moveaxis(ys, 0, 1).reshape(batch, -1, 1)[:, :num_steps]


def make_loss(setting: Setting) -> LossFn:
    """The mean Huber loss of the next change, over all steps but the last."""

    def loss_fn(params, series, key):
        del key
        predicted = outputs(setting, params, series[:, :-1])
        return optax.huber_loss(predicted, series[:, 1:], delta=1.0).mean(), {}

    return loss_fn


def augmented(key: Any, series: Any, noise: Any) -> Any:
    """Series `[E, T, 1]` with noise, each multiplied by a factor of either sign."""
    num_series, num_steps, _ = series.shape
    drawn = jax.random.normal(key, (num_series, num_steps + 2, 1))  # one draw compiles in a third
    factor = jnp.exp(SCALE_NOISE * drawn[:, :1]) * jnp.sign(drawn[:, 1:2])
    return factor * (series + noise * drawn[:, 2:])


# Apart from the updates, and compiled once for all settings that are trained on the same series.
@jax.jit
def batches(seeds: Any, epoch: Any, series: Any, noise: Any) -> Any:
    """What every seed sees in the updates of an epoch, `[S, 25, E, T, 1]`."""

    def of_one_seed(seed):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(1), seed), epoch)
        keys = jax.random.split(key, UPDATES_PER_CALL)
        return jax.vmap(lambda key: augmented(key, series, noise))(keys)

    return jax.vmap(of_one_seed)(seeds)


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """AdamW behind a clip of the global norm."""
    return optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.adamw(config.learning_rate, weight_decay=config.weight_decay),
    )


def initial_params(setting: Setting, seeds: Any) -> Any:
    """The parameters of every seed."""
    model = make_model(setting.width)
    return jax.vmap(lambda seed: model.init(jax.random.key(seed), 1))(seeds)


def train(
    config: Config,
    purpose: str,
    setting: Setting,
    series: np.ndarray,
    checkpoints: Checkpoints,
    epoch_done: Callable[[int], Any],
) -> Trained:
    """Trains every seed on series `[E, T]`; noise and factors are drawn anew for every update."""
    data = jnp.asarray(series[..., None], jnp.float32)
    seeds = config.first_seed + np.arange(config.seeds)
    return run_updates(
        (purpose, setting, config.updates),
        initial_params(setting, seeds),
        make_optimizer(config),
        make_loss(setting),
        lambda epoch: batches(seeds, epoch, data, config.input_noise),
        checkpoints,
        epoch_done,
    )


def run_updates(
    what: tuple[str, Setting, int],
    params: Any,
    optimizer: optax.GradientTransformation,
    loss_fn: LossFn,
    epoch_batches: Callable[[int], Any],
    checkpoints: Checkpoints,
    epoch_done: Callable[[int], Any],
) -> Trained:
    """So many updates of params `[S, ...]` on batches `[S, 25, ...]`."""
    start = time.perf_counter()
    purpose, setting, updates = what
    run_epoch = jax.jit(jax.vmap(jr.make_epoch_step(loss_fn, optimizer)), donate_argnums=0)

    def one_epoch(state, epoch):
        state, metrics = run_epoch(state, epoch_batches(epoch))
        return state, {name: value.T for name, value in metrics.items()}

    state = jax.vmap(lambda params: jr.TrainState.create(params, optimizer))(params)
    state, epochs = checkpoints.run(
        f"{purpose} {setting.name}",
        state,
        updates // UPDATES_PER_CALL,
        one_epoch,
        every=4,
        epoch_done=epoch_done,
    )
    history = {name: value.reshape(-1, value.shape[-1]).T for name, value in epochs.items()}
    leaves = jax.tree.leaves(state.params)
    return Trained(
        purpose,
        setting,
        evaluator_name(setting, jax.tree.map(lambda leaf: leaf[0], state.params)),
        sum(leaf[0].size for leaf in leaves),
        jax.device_get(state.params),
        history,
        failed_rows(history, state.params),
        time.perf_counter() - start,
    )


def evaluator_name(setting: Setting, params: Any) -> str:
    """What ran the recurrence, as `unroll` says itself."""
    xs = jnp.zeros((1, setting.truncation, 1))
    rollout = jax.eval_shape(functools.partial(jr.unroll, make_model(setting.width)), params, xs)
    return rollout.info[0].evaluator
