"""Forecasts of the network and of baselines, their errors, and how sure a difference is.

A forecaster is `(past [..., t], horizon) -> [..., horizon]`, of changes from changes, without a
recurrent network. None has a constant term, so the unit of the changes does not matter; the one
that reads the mean of several series has their units.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.frame.stats import Interval, bootstrap
from experiments.minimal.model import Setting, make_model
from experiments.minimal.task import Task, scale, training_changes, with_mean
from experiments.minimal.train import outputs

Forecaster = Callable[[np.ndarray, int], np.ndarray]

MOVING_AVERAGES = (1, 2, 3, 4, 6, 9, 12, 18, 24)
SMOOTHINGS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
PULLS = (0.1, 0.2, 0.3, 0.4, 0.5)
ORDERS, RIDGES = (1, 2, 3, 6, 12), (1.0, 10.0, 100.0)
YEAR = 12
BLOCK, RESAMPLES = 3, 4000  # months that are drawn together, and how often
Free = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Baseline(NamedTuple):
    """`name`, what was chosen for it on the validation months, and `forecast`."""

    name: str
    chosen: str
    forecast: Forecaster


def last_value(past: np.ndarray, horizon: int) -> np.ndarray:
    """Employment stays: no change."""
    return _constant(np.zeros(past.shape[:-1]), horizon)


def drift(past: np.ndarray, horizon: int) -> np.ndarray:
    """The mean of all past changes, again and again."""
    return _constant(past.mean(axis=-1), horizon)


def seasonal_naive(past: np.ndarray, horizon: int) -> np.ndarray:
    """Employment is what it was a year before: xₜ₊ₕ = xₜ₊ₕ₋₁₂."""
    back = -past[..., -(YEAR - 1) :].sum(axis=-1, keepdims=True)
    return np.concatenate([back, past[..., past.shape[-1] - (YEAR - 1) :]], -1)[..., :horizon]


def seasonal_naive_with_drift(past: np.ndarray, horizon: int) -> np.ndarray:
    """What it was a year before, and the growth of that year: xₜ₊ₕ = xₜ₊ₕ₋₁₂ + xₜ - xₜ₋₁₂."""
    return past[..., past.shape[-1] - YEAR :][..., :horizon]


def moving_average(num_months: int) -> Forecaster:
    """The mean of the last changes, again and again."""
    return lambda past, horizon: _constant(past[..., -num_months:].mean(axis=-1), horizon)


def exponential_smoothing(alpha: float) -> Forecaster:
    """h ← α h + (1 - α) x over the past, from 0; then h, again and again."""

    def forecast(past, horizon):
        steps = np.arange(past.shape[-1])[::-1]
        return _constant((past * (1 - alpha) * alpha**steps).sum(axis=-1), horizon)

    return forecast


def pulled_smoothing(
    alpha: float, pull: float, unit: np.ndarray, is_training: np.ndarray
) -> Forecaster:
    """h + pull (h̄ - h), with the mean h̄ of all h that are trained on, in units `[E, 1]`."""
    smooth = exponential_smoothing(alpha)

    def forecast(past, horizon):
        level = smooth(past, horizon) / unit
        return unit * (level + pull * (level[is_training].mean(axis=0) - level))

    return forecast


def autoregression(weights: np.ndarray) -> Forecaster:
    """Σₖ wₖ xₜ₋ₖ, with its own forecasts in place of what is not known; the newest first in w."""

    def forecast(past, horizon):
        series = past[..., past.shape[-1] - len(weights) :]
        for _ in range(horizon):
            following = series[..., : -len(weights) - 1 : -1] @ weights
            series = np.concatenate([series, following[..., None]], axis=-1)
        return series[..., -horizon:]

    return forecast


def fit_autoregression(series: np.ndarray, order: int, ridge: float) -> np.ndarray:
    """Least squares over all series `[E, T]` with a penalty on the weights, `[order]`."""
    windows = np.lib.stride_tricks.sliding_window_view(series, order + 1, axis=1)
    windows = windows.reshape(-1, order + 1)
    past, target = windows[:, -2::-1], windows[:, -1]
    return np.linalg.solve(past.T @ past + ridge * np.eye(order), past.T @ target)


def one_step_errors(forecast: Forecaster, task: Task, start: int, stop: int) -> np.ndarray:
    """Absolute errors in months `start` to `stop`, `[E, ·]`, in units of `scale` before `start`."""
    forecasts = [forecast(task.changes[:, :month], 1)[:, 0] for month in range(start, stop)]
    errors = np.abs(np.stack(forecasts, axis=1) - task.changes[:, start:stop])
    return errors / scale(task.changes, start)


def best_on_validation(task: Task, candidates: Mapping[Any, Forecaster]) -> Any:
    """The name of the candidate with the smallest error on the validation months."""

    def error(name):
        errors = one_step_errors(candidates[name], task, task.validation_from, task.test_from)
        return errors[task.is_training].mean()

    return min(candidates, key=error)


def choose_smoothing(task: Task) -> float:
    return best_on_validation(task, {alpha: exponential_smoothing(alpha) for alpha in SMOOTHINGS})


def make_baselines(task: Task) -> list[Baseline]:
    """All baselines; what they leave open is chosen on the validation months, as for the network.

    The autoregression is fitted to the months before those to choose, and then to all before the
    test; all on the training industries.
    """

    best = functools.partial(best_on_validation, task)

    def fitted(until, order, ridge):
        return autoregression(fit_autoregression(training_changes(task, until), order, ridge))

    def pulled(until, pull):
        unit = scale(task.changes, until)
        return pulled_smoothing(alpha, pull, unit, task.is_training)

    num_months = best({number: moving_average(number) for number in MOVING_AVERAGES})
    alpha = choose_smoothing(task)
    pull = best({pull: pulled(task.validation_from, pull) for pull in PULLS})
    kinds = [(order, ridge) for order in ORDERS for ridge in RIDGES]
    order, ridge = best({kind: fitted(task.validation_from, *kind) for kind in kinds})
    autoregressive = fitted(task.test_from, order, ridge)
    return [
        Baseline("last value", "", last_value),
        Baseline("drift", "", drift),
        Baseline("seasonal naive", "", seasonal_naive),
        Baseline("seasonal naive with drift", "", seasonal_naive_with_drift),
        Baseline("moving average", f"{num_months} months", moving_average(num_months)),
        Baseline("exponential smoothing", f"α = {alpha}", exponential_smoothing(alpha)),
        Baseline(
            "smoothing, pulled to the mean",
            f"α = {alpha}, pull {pull}",
            pulled(task.test_from, pull),
        ),
        Baseline("autoregression", f"order {order}, ridge {ridge:g}", autoregressive),
    ]


def _constant(change: np.ndarray, horizon: int) -> np.ndarray:
    return np.repeat(change[..., None], horizon, axis=-1)


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


def one_step_runner(
    setting: Setting, params: Any, averaged: Any = slice(None)
) -> Callable[[np.ndarray], np.ndarray]:
    """`series [E, M] -> [S, E, M - 1]`, compiled: the truth is read at every step."""

    def run(xs):
        return jax.vmap(lambda params: outputs(setting, params, xs)[..., 0])(params)

    run = jax.jit(run)
    return lambda series: np.asarray(run(with_mean(jnp.float32(series[:, :-1]), averaged)))


def free_runner(setting: Setting, params: Any, averaged: Any, horizon: int) -> Free:
    """`(known [E, O, M], origins [O]) -> [S, E, O, H]`: months after an origin are masked."""
    model = make_model(setting)

    def run(prompt, mask):
        return jax.vmap(lambda p: jr.free_run(model, p, prompt, horizon, mask=mask).outputs)(params)

    run = jax.jit(run)

    def free(known, origins):
        mask = np.broadcast_to(np.arange(known.shape[-1]) < origins[:, None], known.shape)
        return np.asarray(run(with_mean(jnp.float32(known), averaged), mask))[..., 0]

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
    one_step: np.ndarray  # [S, E, N], errors in the test months, from the truth before each
    levels: Any  # [S, E, O, H], errors of the level after the origin; None: not run freely


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
    """The mean of `one - other`, `[S, E, N]`, over blocks of months: industries move together."""
    by_month = one.mean(axis=(0, 1)) - other.mean(axis=(0, 1))
    return bootstrap(by_month, resamples=RESAMPLES, block=BLOCK)
