"""The spectral radius: how fast products of Jacobians grow with it, by activation and kernel."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.gradients.config import Config
from jaxrnn.diagnostics import lyapunov_exponents

ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {
    "linear": lambda u: u,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
}
ORTHOGONAL, GAUSSIAN = "orthogonal", "Gaussian"
KERNELS = (ORTHOGONAL, GAUSSIAN)
NUM_INPUTS = 4


class Swept(NamedTuple):
    """One activation at every radius.

    Attributes:
        activation: Its name.
        exponents: Largest Lyapunov exponents, nats a step, `[kernels, gains, S]`.
        norms: Of the carry after every step, `[kernels, gains, S, T]`.
        means: Over the units, of the carry after every step, `[kernels, gains, S, T]`.
    """

    activation: str
    exponents: np.ndarray
    norms: np.ndarray
    means: np.ndarray


def recurrent_kernel(kind: str, num_units: int, seed: int) -> np.ndarray:
    """A kernel of spectral radius 1: all singular values 1, or independent normal numbers."""
    drawn = np.random.default_rng((seed, KERNELS.index(kind))).standard_normal((num_units,) * 2)
    if kind == ORTHOGONAL:
        q, r = np.linalg.qr(drawn)
        return q * np.sign(np.diag(r))
    return drawn / np.abs(np.linalg.eigvals(drawn)).max()


def sweep(config: Config, activation: str) -> Swept:
    """All kernels, radii and seeds of one activation in one call."""
    cell = jr.elman(config.num_units, ACTIVATIONS[activation])

    @jax.jit
    @jax.vmap
    def look(params, xs):
        transient = config.num_steps // 5
        exponents = lyapunov_exponents(
            cell, params, xs, num_exponents=1, num_transient_steps=transient
        )
        return exponents[0], jr.unroll(cell, params, xs).outputs

    params, xs = problems(config)
    shape = len(KERNELS), len(config.gains), config.seeds
    exponents, h = (np.asarray(values, np.float64) for values in look(params, xs))
    looked = exponents, np.linalg.norm(h, axis=-1), h.mean(-1)
    return Swept(activation, *(one.reshape(*shape, *one.shape[1:]) for one in looked))


def problems(config: Config) -> tuple[jr.cells.ElmanParams, jax.Array]:
    """Parameters and inputs of every kernel, radius and seed, in that order."""
    shape = NUM_INPUTS, config.num_units
    params, inputs = [], []
    for kind in KERNELS:
        for gain in config.gains:
            for seed in config.all_seeds:
                generator = np.random.default_rng((seed, len(KERNELS)))
                kernel = generator.standard_normal(shape) / np.sqrt(NUM_INPUTS)
                recurrent = gain * recurrent_kernel(kind, config.num_units, seed)
                arrays = kernel, recurrent, np.zeros(config.num_units)
                params.append(jr.cells.ElmanParams(*(np.float32(array) for array in arrays)))
                inputs.append(np.float32(generator.standard_normal((config.num_steps, NUM_INPUTS))))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    return stacked, jnp.stack(inputs)
