"""Where tanh is flat and where a state overflows; what warns of a network, and clipping."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import jaxrnn as jr
from experiments.gradients.config import Config
from experiments.gradients.jacobians import ACTIVATIONS, NUM_INPUTS, ORTHOGONAL, elman_problem
from jaxrnn.diagnostics import carry_norms, gradient_norms, last_output_sensitivity, saturation

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


MAX_NORM, RATE = 1.0, 0.01
RECENT = 10


class Net(NamedTuple):
    """A plain cell: its activation, its spectral radius, and a factor on its inputs."""

    activation: Callable[[Any], Any]
    gain: float
    input_scale: float


HEALTHY, VANISHING, EXPLODING = "healthy", "vanishing", "exploding"
# The healthy one keeps to where tanh is nearly linear. The exploding one is linear: whether tanh or
# relu explode at a given radius depends on the kernel and the inputs.
NETS: Mapping[str, Net] = {
    HEALTHY: Net(jnp.tanh, 1.0, 0.02),
    VANISHING: Net(jnp.tanh, 0.5, 1.0),
    EXPLODING: Net(ACTIVATIONS["linear"], 1.2, 1.0),
}


class Warned(NamedTuple):
    """One network before training; the loss is the mean of the last output."""

    norms: np.ndarray  # of the carry after every step, [T], with inputs at every step
    silent_norms: np.ndarray  # the same with an input at the first step only
    ratio: float  # norm of the gradient of what reads the carry, over that of what reads the inputs
    sensitivity: np.ndarray  # of the last output to every input, [T]
    long_share: float  # share of the gradient from steps more than `RECENT` back
    raw: float  # norm of the whole gradient
    clipped: float  # its norm after clipping to `MAX_NORM`
    cosine: float  # of the angle between both
    long_share_clipped: float  # `long_share` after clipping
    norm_updated: float  # the last of `norms` after one update, `RATE` times the clipped gradient
    nothing: int  # how many of the T inputs the loss does not depend on at all, in float32

    @property
    def reach(self) -> float:
        """Sensitivity to the first input, relative to that to the last."""
        return self.sensitivity[0] / self.sensitivity[-1]


def warn(config: Config, name: str) -> Warned:
    net = NETS[name]
    cell = jr.elman(config.num_units, net.activation)
    params, xs = elman_problem(
        config, net.gain, ORTHOGONAL, config.first_seed, input_scale=net.input_scale
    )
    slope = gradient(cell, params, xs, len(xs))
    clip = optax.clip_by_global_norm(MAX_NORM)
    clipped, _ = clip.update(slope, clip.init(params))
    updated = jax.tree.map(lambda leaf, one: leaf - RATE * one, params, clipped)
    by_part: Any = gradient_norms(slope)
    whole, short = flat(slope), flat(clipped)
    recent = flat(gradient(cell, params, xs, RECENT))
    size, clipped_size = (float(np.linalg.norm(one)) for one in (whole, short))
    sensitivity = np.asarray(last_output_sensitivity(cell, params, xs), np.float64)
    return Warned(
        norms=np.asarray(carry_norms(cell, params, xs).h, np.float64),
        silent_norms=np.asarray(carry_norms(cell, params, xs.at[1:].set(0)).h, np.float64),
        ratio=float(by_part.recurrent / by_part.input),
        sensitivity=sensitivity,
        long_share=share(whole, recent),
        raw=size,
        clipped=clipped_size,
        cosine=float(whole @ short) / (size * clipped_size),
        long_share_clipped=share(short, recent * clipped_size / size),
        norm_updated=float(carry_norms(cell, updated, xs).h[-1]),
        nothing=int((sensitivity == 0).sum()),
    )


@functools.partial(jax.jit, static_argnums=0)
def gradient(cell: jr.Cell, params: Any, xs: Any, num_steps: Any) -> Any:
    """Of the mean of the last output, through the last `num_steps` steps."""
    late = jnp.arange(len(xs)) >= len(xs) - num_steps

    def loss(params):
        before = jr.unroll(cell, params, xs, mask=~late).carry
        return jr.unroll(cell, params, xs, mask=late, carry=jr.detach(before)).outputs[-1].mean()

    return jax.grad(loss)(params)


def share(whole: np.ndarray, recent: np.ndarray) -> float:
    """‖whole - recent‖ / ‖whole‖; NaN where the gradient is zero."""
    size = np.linalg.norm(whole)
    return float(np.linalg.norm(whole - recent) / size) if size else float("nan")


def flat(tree: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(tree)[0], np.float64)
