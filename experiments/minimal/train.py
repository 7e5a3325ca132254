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

OVERFIT_STEPS, OVERFIT_WIDTH = 25, 32
PROVOKED_FACTOR = 1e30  # initial parameters whose squares no float32 holds
SCALE_NOISE = 0.5  # deviation of the log of the factor by which a series is multiplied


class Setting(NamedTuple):
    """What is trained."""

    width: int  # units of the GRU
    truncation: int  # steps a gradient goes back through
    stateless: bool = False  # whether the carry is reset before every step

    @property
    def name(self) -> str:
        kind = "stateless" if self.stateless else "GRU"
        return f"{kind} {self.width}, truncation {self.truncation}"


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
        keys = jax.random.split(key, UPDATES_PER_EPOCH)
        return jax.vmap(lambda key: augmented(key, series, noise))(keys)

    return jax.vmap(of_one_seed)(seeds)


def initial_params(setting: Setting, seeds: Any) -> Any:
    model = make_model(setting.width)
    return jax.vmap(lambda seed: model.init(jax.random.key(seed), 1))(seeds)


def train(
    config: Config,
    purpose: str,
    setting: Setting,
    series: np.ndarray,
    checkpoints: Checkpoints,
    advance: Advance,
) -> Trained:
    """Trains every seed on series `[E, T]`, noise anew, by the Huber loss of the next change."""
    data = jnp.asarray(series[..., None], jnp.float32)
    seeds = np.array(config.all_seeds)

    def loss_fn(params, series, key):
        del key
        predicted = outputs(setting, params, series[:, :-1])
        return optax.huber_loss(predicted, series[:, 1:], delta=1.0).mean(), {}

    optimizer = optax.chain(
        optax.clip_by_global_norm(config.gradient_clip),
        optax.adamw(config.learning_rate, weight_decay=config.weight_decay),
    )
    fitted = Fitter(loss_fn, optimizer).fit_seeds(
        f"{purpose} {setting.name}",
        initial_params(setting, seeds),
        lambda epoch: batches(seeds, epoch, data, config.input_noise),
        config.updates // UPDATES_PER_EPOCH,
        checkpoints,
        every=4,
        advance=advance,
    )
    return Trained(purpose, setting, evaluator_name(setting), fitted)


def overfit(config: Config, series: Any, checkpoints: Checkpoints, advance: Advance) -> Trained:
    """Trains on the start of a series `[T]`, on its share of variance; the last seed must fail."""
    short = jnp.asarray(series[None, :OVERFIT_STEPS, None], jnp.float32)
    setting = Setting(OVERFIT_WIDTH, OVERFIT_STEPS)

    def loss_fn(params, series, key):
        del key
        errors = outputs(setting, params, series[:, :-1]) - series[:, 1:]
        return (errors**2).mean() / series[:, 1:].var(), {}

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
    model = make_model(setting.width)
    params = model.init(jax.random.key(0), 1)
    xs = jnp.zeros((1, setting.truncation, 1))
    return repr(jax.eval_shape(functools.partial(jr.unroll, model), params, xs).info[0])
