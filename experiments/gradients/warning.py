"""Three quantities that warn, for a network that is healthy, one that vanishes, one that explodes.

And what clipping does to their gradients: it shortens them.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.gradients.config import Config
from experiments.gradients.sweep import ACTIVATIONS, NUM_INPUTS, ORTHOGONAL, recurrent_kernel
from jaxrnn.diagnostics import carry_norms, gradient_norms, last_output_sensitivity

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
    """One network before training; the loss is the mean of the last output.

    Attributes:
        name: One of `NETS`.
        norms: Of the carry after every step, `[T]`, with inputs at every step.
        silent_norms: The same with an input at the first step only.
        recurrent: Norm of the gradient of the recurrent kernel.
        inputs: Norm of the gradient of what reads the inputs.
        sensitivity: Of the last output to every input, `[T]`.
        long_share: What steps more than `RECENT` back contribute to the gradient, relative to it.
        raw: Norm of the whole gradient.
        clipped: Its norm after clipping to `MAX_NORM`.
        cosine: Of the angle between both.
        long_share_clipped: `long_share` after clipping.
        norm_updated: The last of `norms` after one update, `RATE` times the clipped gradient.
        nothing: How many of the T inputs the loss does not depend on at all, in float32.
    """

    name: str
    norms: np.ndarray
    silent_norms: np.ndarray
    recurrent: float
    inputs: float
    sensitivity: np.ndarray
    long_share: float
    raw: float
    clipped: float
    cosine: float
    long_share_clipped: float
    norm_updated: float
    nothing: int


def warn(config: Config, name: str) -> Warned:
    """All quantities of one network."""
    net = NETS[name]
    cell = _cell(config.num_units, net.activation)
    params, xs = _problem(config, net)
    whole, recent = (gradient(cell, params, xs, steps) for steps in (len(xs), RECENT))
    clip = optax.clip_by_global_norm(MAX_NORM)
    clipped, _ = clip.update(whole, clip.init(params))
    scale = norm(clipped) / norm(whole)
    updated = jax.tree.map(lambda leaf, slope: leaf - RATE * slope, params, clipped)
    by_part = gradient_norms(whole)
    sensitivity = np.asarray(last_output_sensitivity(cell, params, xs), np.float64)
    return Warned(
        name,
        np.asarray(carry_norms(cell, params, xs).h, np.float64),
        np.asarray(carry_norms(cell, params, xs.at[1:].set(0)).h, np.float64),
        float(by_part.recurrent),
        float(by_part.input),
        sensitivity,
        share(whole, recent),
        norm(whole),
        norm(clipped),
        _cosine(whole, clipped),
        share(clipped, jax.tree.map(lambda leaf: np.float64(leaf) * scale, recent)),
        float(carry_norms(cell, updated, xs).h[-1]),
        int((sensitivity == 0).sum()),
    )


@functools.cache
def _cell(num_units, activation):
    return jr.elman(num_units, activation)


@functools.partial(jax.jit, static_argnums=0)
def gradient(cell: jr.Cell, params: Any, xs: Any, num_steps: Any) -> Any:
    """Of the mean of the last output, through the last `num_steps` steps."""
    late = jnp.arange(len(xs)) >= len(xs) - num_steps

    def loss(params):
        before = jr.unroll(cell, params, xs, mask=~late).carry
        return jr.unroll(cell, params, xs, mask=late, carry=jr.detach(before)).outputs[-1].mean()

    return jax.grad(loss)(params)


def share(whole: Any, recent: Any) -> float:
    """‖whole - recent‖ / ‖whole‖; NaN where the gradient is zero."""
    difference = jax.tree.map(lambda a, b: np.float64(a) - np.float64(b), whole, recent)
    return norm(difference) / norm(whole) if norm(whole) else float("nan")


def norm(tree: Any) -> float:
    """Of all leaves, in float64."""
    return float(np.linalg.norm(_flat(tree)))


def _cosine(first, second):
    lengths = norm(first) * norm(second)
    return float(_flat(first) @ _flat(second)) / lengths if lengths else float("nan")


def _flat(tree):
    return np.concatenate(
        [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    )


def _problem(config, net):
    generator = np.random.default_rng((config.first_seed, 2))
    kernel = generator.standard_normal((NUM_INPUTS, config.num_units)) / np.sqrt(NUM_INPUTS)
    recurrent = net.gain * recurrent_kernel(ORTHOGONAL, config.num_units, config.first_seed)
    arrays = net.input_scale * kernel, recurrent, np.zeros(config.num_units)
    xs = generator.standard_normal((config.num_steps, NUM_INPUTS))
    return jr.cells.ElmanParams(*map(jnp.float32, arrays)), jnp.float32(xs)
