"""Trains all seeds of one setting side by side, on the industries or on one short sequence."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitted, Fitter
from experiments.minimal.config import UPDATES_PER_EPOCH, Config
from experiments.minimal.model import NUM_FEATURES, Setting, make_model, with_share
from experiments.minimal.task import with_mean

OVERFIT_STEPS, OVERFIT_WIDTH = 25, 32
PROVOKED_FACTOR = 1e30  # initial parameters whose squares no float32 holds
SCALE_NOISE = 0.5  # deviation of the log of the factor by which a series is multiplied


class Trained(NamedTuple):
    """One setting after training, all seeds."""

    purpose: str  # "choice", "test" or "overfit"
    setting: Setting  # what was trained
    evaluator: str  # what ran the recurrence
    fitted: Fitted  # parameters and history
    errors: np.ndarray | None = None  # [S], in the months to choose by

    @property
    def name(self) -> str:
        return f"{self.purpose}: {self.setting.name}"

    @property
    def error(self) -> float:
        """The mean over the seeds that did not fail; infinite if all did."""
        kept = self.fitted.of_good_seeds(self.errors)
        return float(kept.mean()) if len(kept) else float("inf")

    @property
    def provoked(self) -> np.ndarray:
        """bool `[S]`, whether the seed is bound to fail."""
        seeds = np.arange(len(self.fitted.failed))
        return (seeds == seeds[-1]) & (self.purpose == "overfit")


def outputs(setting: Setting, params: Any, xs: Any, mask: Any = None) -> Any:
    """What the model puts out `[B, T, 2]`; no gradient crosses from one chunk to the one before."""
    model = make_model(setting)
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
    return jnp.moveaxis(ys, 0, 1).reshape(batch, -1, NUM_FEATURES)[:, :num_steps]


def augmented(key: Any, series: Any, noise: Any) -> Any:
    """Series `[E, T]` with noise beside their mean, multiplied by factors of either sign."""
    num_series, num_steps = series.shape
    drawn = jax.random.normal(key, (num_series, num_steps + 2))  # one draw compiles in a third
    factor = jnp.exp(SCALE_NOISE * drawn[:, 0]) * jnp.sign(drawn[:, 1])
    noisy = series + noise * drawn[:, 2:]
    return factor[:, None, None] * with_mean(noisy)


# Apart from the updates, and compiled once for all settings that are trained on the same series.
@jax.jit
def batches(seeds: Any, epoch: Any, series: Any, noise: Any) -> Any:
    """What every seed sees in the updates of an epoch, `[S, 25, E, T, 2]`."""

    def of_one_seed(seed):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(1), seed), epoch)
        keys = jax.random.split(key, UPDATES_PER_EPOCH)
        return jax.vmap(lambda key: augmented(key, series, noise))(keys)

    return jax.vmap(of_one_seed)(seeds)


def initial_params(setting: Setting, seeds: Any) -> Any:
    model = make_model(setting)
    return jax.vmap(lambda seed: model.init(jax.random.key(seed), NUM_FEATURES))(seeds)


def train(
    config: Config,
    purpose: str,
    setting: Setting,
    series: np.ndarray,
    checkpoints: Checkpoints,
    advance: Advance,
) -> Trained:
    """Trains the correction, from 0 on, by the Huber loss of the following changes.

    Every seed sees the series `[E, T]` with other noise.
    """
    data = jnp.asarray(series, jnp.float32)
    seeds = np.array(config.all_seeds)

    def loss_fn(params, series, key):
        del key
        made = outputs(setting, params, series)
        months = range(1, setting.ahead + 1)
        losses = [optax.huber_loss(made[:, :-month], series[:, month:]).mean() for month in months]
        return sum(losses) / len(losses), {}

    adamw = optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.adamw(config.learning_rate, weight_decay=config.weight_decay),
    )
    optimizer = optax.multi_transform(
        {"smoothing": optax.set_to_zero(), "correction": adamw}, ("smoothing", "correction")
    )
    fitted = Fitter(loss_fn, optimizer).fit_seeds(
        f"{purpose} {setting.name}",
        with_share(initial_params(setting, seeds), 0.0),
        lambda epoch: batches(seeds, epoch, data, config.input_noise),
        config.updates // UPDATES_PER_EPOCH,
        checkpoints,
        every=4,
        advance=advance,
    )
    return Trained(purpose, setting, evaluator_name(setting), fitted)


def overfit(
    config: Config, decay: float, series: Any, checkpoints: Checkpoints, advance: Advance
) -> Trained:
    """Trains on the start of a series `[T, 2]`, on its share of variance; the last seed must fail.

    All parameters are trained, those of the smoothing too.
    """
    short = jnp.asarray(series[None, :OVERFIT_STEPS], jnp.float32)
    setting = Setting(OVERFIT_WIDTH, OVERFIT_STEPS, decay)

    def loss_fn(params, series, key):
        del key
        errors = outputs(setting, params, series)[:, :-1, 0] - series[:, 1:, 0]
        return (errors**2).mean() / series[:, 1:, 0].var(), {}

    seeds = config.first_seed + np.arange(config.seeds + 1)
    params = jax.tree.map(
        lambda leaf: leaf.at[-1].multiply(PROVOKED_FACTOR), initial_params(setting, seeds)
    )
    rate = optax.cosine_decay_schedule(1e-2, config.overfit_updates)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    repeated = jnp.broadcast_to(short, (len(seeds), UPDATES_PER_EPOCH, *short.shape))
    epochs = config.overfit_updates // UPDATES_PER_EPOCH
    fitted = Fitter(loss_fn, optimizer).fit_seeds(
        f"overfit {setting.name}", params, lambda epoch: repeated, epochs, checkpoints,
        every=4, advance=advance
    )  # fmt: skip
    return Trained("overfit", setting, evaluator_name(setting), fitted)


def evaluator_name(setting: Setting) -> str:
    """What ran the recurrence, as `unroll` says itself."""
    model = make_model(setting)
    params = model.init(jax.random.key(0), NUM_FEATURES)
    xs = jnp.zeros((1, setting.truncation, NUM_FEATURES))
    smoothing, (gru, _) = jax.eval_shape(functools.partial(jr.unroll, model), params, xs).info
    return repr(gru)
