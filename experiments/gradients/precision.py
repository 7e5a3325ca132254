"""Number formats: where tanh is flat, and where a growing state ends."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.gradients.config import Config
from experiments.gradients.jacobians import ACTIVATIONS, NUM_INPUTS
from jaxrnn.diagnostics import carry_norms, saturation

FORMATS = {"float16": jnp.float16, "bfloat16": jnp.bfloat16, "float32": jnp.float32}
ARGUMENTS = np.arange(0, 12, 1 / 256)
INPUT_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
RATES = (0.01, 0.02, 0.03, 0.05)
GROWTH_STEPS = 3000
IN_LIBRARY = "float16, float32 carry"


class Saturated(NamedTuple):
    """Flat places of tanh in one format."""

    slopes: np.ndarray  # the derivative at `ARGUMENTS`
    end: float  # the smallest argument from which on it is exactly 0
    one: float  # the smallest argument from which on tanh is exactly 1
    shares: np.ndarray  # the share of saturated units of a tanh cell, by `INPUT_SCALES`


class Grown(NamedTuple):
    """A state that is multiplied by 1 + rate at every step, from 1 on."""

    factor: float  # 1 + rate in float16
    states: dict[str, np.ndarray]  # name to the state after every step, [GROWTH_STEPS]

    def overflow(self, name: str) -> int | None:
        """The first step after which the state is not finite."""
        bad = np.flatnonzero(~np.isfinite(self.states[name]))
        return int(bad[0]) + 1 if len(bad) else None

    def predicted(self, largest: float = 65504.0) -> int:
        """The first step at which an exact state is above the largest number of a format."""
        return math.floor(math.log(largest) / math.log(self.factor)) + 1


def saturate(config: Config, name: str) -> Saturated:
    """tanh and its derivative by argument, and a cell whose inputs grow."""
    arguments = jnp.asarray(ARGUMENTS, FORMATS[name])
    computed = jax.jit(jax.vmap(jax.value_and_grad(jnp.tanh)))(arguments)
    places, values, slopes = (np.asarray(one, np.float64) for one in (arguments, *computed))
    cell = jr.elman(config.num_units)
    params = cell.init(jax.random.key(config.first_seed), NUM_INPUTS)
    noise = jax.random.normal(jax.random.key(config.first_seed), (config.num_steps, NUM_INPUTS))
    xs = jnp.stack([scale * noise for scale in INPUT_SCALES])
    shares = np.asarray(saturation(cell, params, xs, dtype=FORMATS[name]).mean(-1))
    return Saturated(slopes, from_on(places, slopes == 0), from_on(places, values == 1), shares)


def from_on(places: np.ndarray, holds: np.ndarray) -> float:
    """The smallest place from which on it holds everywhere; infinite if it never does."""
    fails = np.flatnonzero(~holds)
    start = fails[-1] + 1 if len(fails) else 0
    return float(places[start]) if start < len(places) else math.inf


def grow(rate: float) -> Grown:
    """The state in float16, in bfloat16, and in the library with parameters in float16."""
    factor = np.float16(1 + rate)
    with np.errstate(over="ignore"):
        by_hand = {
            name: np.multiply.accumulate(np.full(GROWTH_STEPS, factor, FORMATS[name]))
            for name in ("float16", "bfloat16")
        }
    cell = jr.elman(1, ACTIVATIONS["linear"], param_dtype=jnp.float16)
    params = cell.init(jax.random.key(0), 1)._replace(recurrent_kernel=jnp.array([[factor]]))
    xs = jnp.zeros((GROWTH_STEPS, 1), jnp.float16)
    start = cell.initial_carry(params)._replace(h=jnp.ones(1))
    in_library = carry_norms(cell, params, xs, carry=start).h
    states = {**by_hand, IN_LIBRARY: in_library}
    return Grown(float(factor), {n: np.asarray(h, np.float64) for n, h in states.items()})
