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
from jax.flatten_util import ravel_pytree

import jaxrnn as jr
from experiments.gradients.config import Config
from experiments.gradients.jacobians import ACTIVATIONS, ORTHOGONAL, elman_problem
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
