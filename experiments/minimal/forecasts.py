"""Forecasts from the truth and from own forecasts, their errors, and how sure a difference is."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.frame.stats import Interval, bootstrap
from experiments.minimal.baselines import Baseline, one_step_errors
from experiments.minimal.task import Task, scale
from experiments.minimal.train import Setting, make_model, outputs

BLOCK, RESAMPLES = 3, 4000  # months that are drawn together, and how often

Free = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Forecasts(NamedTuple):
    """Forecasts of changes, in the unit of the series, for all seeds."""

    origins: np.ndarray  # [O], how many months are known to each free run
    one_step: np.ndarray  # [S, E, M - 1], of month 1 and after, from the true months before it
    free: np.ndarray  # [S, E, O, H], from the origin on, from its own forecasts
    leaked: int  # how many of `free` change when what comes after the origins does
    forced_sees: bool  # whether `one_step` changes then, as it must

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


class Entry(NamedTuple):
    """One model or baseline."""

    name: str  # what it is called
    chosen: str  # what was chosen for it on the validation months
    # [S, E, N], errors in the test months, each forecast from the truth before it
    one_step: np.ndarray
    # [S, E, O, H], errors of the level so many months after the origin; None for a model that was
    # not run freely
    levels: np.ndarray | None


def run_freely(entries: Sequence[Entry]) -> list[tuple[Entry, np.ndarray]]:
    """The entries that have errors of the level, each with the errors."""
    return [(entry, entry.levels) for entry in entries if entry.levels is not None]


def model_entry(
    name: str, chosen: str, task: Task, one_step: np.ndarray, forecasts: Forecasts | None
) -> Entry:
    """The errors of a model whose forecasts are in units of `scale` before the test."""
    truth = task.changes / scale(task.changes, task.test_from)
    errors = np.abs(one_step - truth[:, 1:])[..., task.test_from - 1 :]
    levels = None
    if forecasts is not None:
        levels = level_errors(forecasts.free, truth, forecasts.origins)
    return Entry(name, chosen, errors, levels)


def baseline_entry(baseline: Baseline, task: Task, origins: np.ndarray, horizon: int) -> Entry:
    """The errors of a baseline, as of one seed."""
    unit = scale(task.changes, task.test_from)
    errors = one_step_errors(baseline.forecast, task, task.test_from, task.changes.shape[1])
    free = [baseline.forecast(task.changes[:, :origin], horizon) / unit for origin in origins]
    levels = level_errors(np.stack(free, axis=1), task.changes / unit, origins)
    return Entry(baseline.name, baseline.chosen, errors[None], levels[None])


def level_errors(forecasts: np.ndarray, truth: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Absolute errors of the sums of changes since the origin, `[..., E, O, H]`."""
    months = origins[:, None] + np.arange(forecasts.shape[-1])
    return np.abs(np.cumsum(forecasts - truth[:, months], axis=-1))


def change_errors(forecasts: np.ndarray, truth: np.ndarray, origins: np.ndarray) -> np.ndarray:
    """Absolute errors of the changes themselves, `[..., E, O, H]`."""
    months = origins[:, None] + np.arange(forecasts.shape[-1])
    return np.abs(forecasts - truth[:, months])


def difference(one: np.ndarray, other: np.ndarray) -> Interval:
    """The mean of `one - other`, errors `[S, E, N]`, with an interval over blocks of months.

    Months are what is drawn: industries move together, and seeds share the data.
    """
    by_month = one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))
    return bootstrap(by_month, resamples=RESAMPLES, block=BLOCK)
