"""Number formats: where tanh is flat, and where a growing state ends."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.gradients.config import Config
from experiments.gradients.jacobians import ACTIVATIONS, NUM_INPUTS
from jaxrnn.diagnostics import carry_norms, saturation

FORMATS: Mapping[str, Any] = {
    "float16": jnp.float16,
    "bfloat16": jnp.bfloat16,
    "float32": jnp.float32,
}
ARGUMENTS = np.arange(0, 12, 1 / 256)
INPUT_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
RATES = (0.01, 0.02, 0.03, 0.05)
GROWTH_STEPS = 3000
IN_LIBRARY = "float16, float32 carry"


class Saturated(NamedTuple):
    """Flat places of tanh.

    Attributes:
        slopes: Format to the derivative at `ARGUMENTS`.
        ends: Format to the smallest argument from which on it is exactly 0.
        ones: Format to the smallest argument from which on tanh is exactly 1.
        shares: Format to the mean share of saturated units of a tanh cell, by `INPUT_SCALES`.
    """

    slopes: dict[str, np.ndarray]
    ends: dict[str, float]
    ones: dict[str, float]
    shares: dict[str, np.ndarray]


class Grown(NamedTuple):
    """A state that is multiplied by 1 + rate at every step, from 1 on.

    Attributes:
        factor: 1 + rate in float16.
        states: Name to the state after every step, `[GROWTH_STEPS]`.
    """

    factor: float
    states: dict[str, np.ndarray]

    def overflow(self, name: str) -> int | None:
        """The first step after which the state is not finite."""
        bad = np.flatnonzero(~np.isfinite(self.states[name]))
        return int(bad[0]) + 1 if len(bad) else None

    def predicted(self, largest: float = 65504.0) -> int:
        """The first step at which an exact state is above the largest number of a format."""
        return math.floor(math.log(largest) / math.log(self.factor)) + 1


def saturate(config: Config) -> Saturated:
    """tanh and its derivative by argument, and a cell whose inputs grow."""
    slopes, ends, ones = {}, {}, {}
    tanh_and_slope = jax.jit(jax.vmap(jax.value_and_grad(jnp.tanh)))
    for name, dtype in FORMATS.items():
        arguments = jnp.asarray(ARGUMENTS, dtype)
        places, value, slopes[name] = (
            np.asarray(numbers, np.float64) for numbers in (arguments, *tanh_and_slope(arguments))
        )
        ones[name], ends[name] = from_on(places, value == 1), from_on(places, slopes[name] == 0)
    cell = jr.elman(config.num_units)
    params = cell.init(jax.random.key(config.first_seed), NUM_INPUTS)
    noise = jax.random.normal(jax.random.key(config.first_seed), (config.num_steps, NUM_INPUTS))
    xs = jnp.stack([scale * noise for scale in INPUT_SCALES])
    shares = {
        name: np.asarray(saturation(cell, params, xs, dtype=dtype).mean(-1))
        for name, dtype in FORMATS.items()
    }
    return Saturated(slopes, ends, ones, shares)


def from_on(places: np.ndarray, holds: np.ndarray) -> float:
    """The smallest place from which on it holds everywhere; infinite if it never does."""
    fails = np.flatnonzero(~holds)
    start = fails[-1] + 1 if len(fails) else 0
    return float(places[start]) if start < len(places) else math.inf


def grow(rate: float) -> Grown:
    """The state in float16, in bfloat16, and in the library with parameters in float16."""
    factor = np.float16(1 + rate)
    by_hand = {name: _multiplied(factor, FORMATS[name]) for name in ("float16", "bfloat16")}
    cell = jr.elman(1, ACTIVATIONS["linear"], param_dtype=jnp.float16)
    params = cell.init(jax.random.key(0), 1)._replace(recurrent_kernel=jnp.array([[factor]]))
    xs = jnp.zeros((GROWTH_STEPS, 1), jnp.float16)
    start = cell.initial_carry(params)._replace(h=jnp.ones(1))
    in_library = carry_norms(cell, params, xs, carry=start).h
    states = {**by_hand, IN_LIBRARY: in_library}
    return Grown(float(factor), {n: np.asarray(h, np.float64) for n, h in states.items()})


def _multiplied(factor, dtype):
    def advance(h, _):
        h = h * factor.astype(dtype)
        return h, h

    return jax.lax.scan(advance, jnp.ones((), dtype), length=GROWTH_STEPS)[1]
