"""Three bits to hold, and evidence to add up, with and without a leak."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NUM_BITS = 3
PULSE_SHARE = 0.05  # of the steps, for each bit
DRIFT, NOISE = 0.05, 0.1  # of the evidence: the largest mean of a step, and its deviation
FLIP_FLOP, EVIDENCE = "flip-flop", "evidence"


class Task(NamedTuple):
    """`draw(key, shape)` gives inputs and targets, both `[*shape, width]`; shape ends with T."""

    name: str
    width: int  # of inputs and targets
    time_constant: float  # steps over which the task forgets; infinite where it never does
    draw: Callable[[Any, Sequence[int]], tuple[Any, Any]]


def tasks(time_constants: Sequence[float]) -> list[Task]:
    leaky = [
        Task(f"leak {tau:g}", 1, tau, functools.partial(evidence, tau)) for tau in time_constants
    ]
    return [
        Task(FLIP_FLOP, NUM_BITS, np.inf, flip_flop),
        Task(EVIDENCE, 1, np.inf, functools.partial(evidence, np.inf)),
        *leaky,
    ]


def flip_flop(key: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Pulses of ±1 on three channels; the target is the sign of the last pulse of each.

    All channels have a pulse at the first step, so that no bit is ever unknown.
    """
    sign_key, pulse_key = jax.random.split(key)
    shape = (*shape, NUM_BITS)
    is_pulse = jax.random.bernoulli(pulse_key, PULSE_SHARE, shape).at[..., 0, :].set(True)
    pulses = jnp.where(is_pulse, jax.random.rademacher(sign_key, shape, jnp.float32), 0.0)
    steps = jnp.where(is_pulse, jnp.arange(shape[-2])[:, None], 0)
    last = lax.cummax(steps, axis=len(shape) - 2)
    return pulses, jnp.take_along_axis(pulses, last, axis=-2)


def evidence(time_constant: float, key: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Noisy evidence until a random step and zeros after it; the target is its leaky sum.

    yₜ = exp(-1 / τ) yₜ₋₁ + xₜ
    """
    keys = jax.random.split(key, 3)
    batch, num_steps = shape[:-1], shape[-1]
    drift = jax.random.uniform(keys[0], (*batch, 1), minval=-DRIFT, maxval=DRIFT)
    until = jax.random.randint(keys[1], (*batch, 1), num_steps // 6, num_steps)
    xs = drift + NOISE * jax.random.normal(keys[2], shape)
    xs = jnp.where(jnp.arange(num_steps) < until, xs, 0.0)
    decay = np.exp(-1 / time_constant)
    lags = np.arange(num_steps)[:, None] - np.arange(num_steps)
    weights = np.where(lags >= 0, decay ** np.maximum(lags, 0), 0.0)
    return xs[..., None], (xs @ weights.T)[..., None]
