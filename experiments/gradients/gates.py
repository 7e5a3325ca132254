"""Gates: how far the last output looks back, before any training."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

import jaxrnn as jr
from experiments.gradients.config import Config
from experiments.gradients.sweep import NUM_INPUTS
from jaxrnn.diagnostics import (
    jacobian_spectrum,
    last_output_sensitivity,
    lyapunov_exponents,
    memory_horizon,
)

SPECTRUM_STEPS = 40
HEARD = 1e-3
ELMAN, CHRONO = "Elman", "LSTM, chrono"

# From units and steps to a cell.
CELLS: Mapping[str, Callable[[int, int], jr.Cell]] = {
    ELMAN: lambda units, steps: jr.elman(units),
    "GRU": lambda units, steps: jr.gru(units),
    "LSTM, forget bias 0": lambda units, steps: jr.lstm(units, forget_bias=0.0),
    "LSTM, forget bias 1": lambda units, steps: jr.lstm(units, forget_bias=1.0),
    CHRONO: lambda units, steps: jr.lstm(units, chrono=steps),
}


class Gated(NamedTuple):
    """One cell as it is drawn.

    Attributes:
        name: One of `CELLS`.
        sensitivity: Of the last output to every input, `[S, T]`.
        horizons: Steps back until `HEARD` of the largest sensitivity is left, `[S]`.
        exponents: The largest Lyapunov exponent, nats a step, `[S]`.
        spectrum: Logarithms of the singular values of ∂hₜ/∂h₀ for the first seed, `[t, N]`; of the
            first and the last cell only.
    """

    name: str
    sensitivity: np.ndarray
    horizons: np.ndarray
    exponents: np.ndarray
    spectrum: np.ndarray | None


def look_at(config: Config, name: str) -> Gated:
    """Every seed of one cell; inputs are white noise."""
    cell = CELLS[name](config.num_units, config.num_steps)

    @jax.jit
    @jax.vmap
    def look(params, xs):
        return (
            last_output_sensitivity(cell, params, xs),
            memory_horizon(cell, params, xs, threshold=HEARD),
            lyapunov_exponents(cell, params, xs, num_exponents=1)[0],
        )

    keys = jax.vmap(jax.random.key)(np.array(config.all_seeds))
    params = jax.vmap(lambda key: cell.init(key, NUM_INPUTS))(keys)
    xs = jax.vmap(lambda key: jax.random.normal(key, (config.num_steps, NUM_INPUTS)))(keys)
    sensitivity, horizons, exponents = (
        np.asarray(values, np.float64) for values in look(params, xs)
    )
    if name not in (ELMAN, CHRONO):
        return Gated(name, sensitivity, horizons, exponents, None)
    first = jax.tree.map(lambda leaf: leaf[0], params)
    spectrum = jacobian_spectrum(cell, first, xs[0, :SPECTRUM_STEPS])
    logs = np.asarray(spectrum, np.float64)
    return Gated(name, sensitivity, horizons, exponents, logs)
