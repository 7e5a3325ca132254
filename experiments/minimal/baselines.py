"""Forecasts without a recurrent network, each from the past alone.

A forecaster is `(past [..., t], horizon) -> [..., horizon]`, of changes from changes. None has a
constant term, so the unit of the changes does not matter.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.minimal.task import Task, scale, training_changes

Forecaster = Callable[[np.ndarray, int], np.ndarray]

MOVING_AVERAGES = (1, 2, 3, 4, 6, 9, 12, 18, 24)
SMOOTHINGS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
ORDERS, RIDGES = (1, 2, 3, 6, 12), (1.0, 10.0, 100.0)
YEAR = 12


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
    """Absolute errors of the changes in months `start` to `stop`, from all before each, `[E, ·]`.

    In units of `scale` before `start`.
    """
    forecasts = [forecast(task.changes[:, :month], 1)[:, 0] for month in range(start, stop)]
    errors = np.abs(np.stack(forecasts, axis=1) - task.changes[:, start:stop])
    return errors / scale(task.changes, start)


def make_baselines(task: Task) -> list[Baseline]:
    """All baselines; what they leave open is chosen on the validation months, as for the network.

    The autoregression is fitted to the months before those to choose, and then to all before the
    test; all on the training industries.
    """

    def best(candidates: Mapping[Any, Forecaster]) -> Any:
        def error(name):
            errors = one_step_errors(candidates[name], task, task.validation_from, task.test_from)
            return errors[task.is_training].mean()

        return min(candidates, key=error)

    def fitted(until, order, ridge):
        return autoregression(fit_autoregression(training_changes(task, until), order, ridge))

    num_months = best({number: moving_average(number) for number in MOVING_AVERAGES})
    alpha = best({alpha: exponential_smoothing(alpha) for alpha in SMOOTHINGS})
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
        Baseline("autoregression", f"order {order}, ridge {ridge:g}", autoregressive),
    ]


def _constant(change: np.ndarray, horizon: int) -> np.ndarray:
    return np.repeat(change[..., None], horizon, axis=-1)
