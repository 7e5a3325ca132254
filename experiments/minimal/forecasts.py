"""Forecasts of a trained model: from the truth at every step, and from its own forecasts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.minimal.training import Setting, make_model, outputs

Free = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Forecasts(NamedTuple):
    """Forecasts of changes, in the unit of the series, for all seeds.

    Attributes:
        origins: `[O]`, how many months are known to each free run.
        one_step: `[S, E, M - 1]`, of month 1 and after, from the true months before it.
        free: `[S, E, O, H]`, from the origin on, from its own forecasts.
        leaked: How many of `free` change when what comes after the origins does.
        forced_sees: Whether `one_step` changes then, as it must.
    """

    origins: np.ndarray
    one_step: np.ndarray
    free: np.ndarray
    leaked: int
    forced_sees: bool

    def forced(self) -> np.ndarray:
        """The one-step forecasts of the months that `free` is of, `[S, E, O, H]`."""
        months = self.origins[:, None] + np.arange(self.free.shape[-1])
        return self.one_step[..., months - 1]


def one_step_runner(setting: Setting, params: Any) -> Callable[[np.ndarray], np.ndarray]:
    """`series [E, M] -> [S, E, M - 1]`, compiled: the truth is read at every step."""

    def run(xs):
        return jax.vmap(lambda params: outputs(setting, params, xs)[..., 0])(params)

    run = jax.jit(run)
    return lambda series: np.asarray(run(jnp.asarray(series[:, :-1, None], jnp.float32)))


def free_runner(setting: Setting, params: Any, horizon: int) -> Free:
    """`(known [E, O, M], origins [O]) -> [S, E, O, H]`: months after an origin are masked."""
    model = make_model(setting.width)

    def run(prompt, mask):
        return jax.vmap(lambda p: jr.free_run(model, p, prompt, horizon, mask=mask).outputs)(params)

    run = jax.jit(run)

    def free(known, origins):
        mask = np.broadcast_to(np.arange(known.shape[-1]) < origins[:, None], known.shape)
        return np.asarray(run(jnp.asarray(known[..., None], jnp.float32), mask))[..., 0]

    return free


def make_forecasts(
    one_step: Callable[[np.ndarray], np.ndarray],
    free: Free,
    series: np.ndarray,
    origins: np.ndarray,
) -> Forecasts:
    """Runs both on series `[E, M]`, and once more with NaN for all that comes after an origin."""
    known = np.repeat(series[:, None], len(origins), axis=1)
    after = np.arange(series.shape[1]) >= origins[:, None]
    forced = one_step(series)
    without_truth = np.where(np.arange(series.shape[1]) >= origins[0], np.nan, series)
    made = free(known, origins)
    other = free(np.where(after, np.nan, known), origins)
    same = (made == other) | (np.isnan(made) & np.isnan(other))
    return Forecasts(
        origins,
        forced,
        made,
        leaked=int((~same).sum()),
        forced_sees=not np.array_equal(forced, one_step(without_truth), equal_nan=True),
    )
