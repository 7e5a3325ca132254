"""The product of Jacobians: worked examples, the spectral radius, gates."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from experiments.gradients.config import Config
from jaxrnn.diagnostics import (
    carry_jacobians,
    jacobian_spectrum,
    last_output_sensitivity,
    lyapunov_exponents,
    memory_horizon,
)

ALPHA, INPUTS, STATES = 0.5, (2.0, 0.0, 4.0), (1.0, 0.5, 2.25)
PRODUCT_UNITS, PRODUCT_STEPS = 8, 12

ACTIVATIONS: Mapping[str, Any] = {"linear": lambda u: u, "tanh": jnp.tanh, "relu": jax.nn.relu}
KERNELS = ORTHOGONAL, GAUSSIAN = "orthogonal", "Gaussian"
NUM_INPUTS = 4

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


class Worked(NamedTuple):
    """What was computed of the examples."""

    in_order: float  # distance of ∂h_T/∂h₀ from J_T ⋯ J₁, relative to it
    reversed: float  # its distance from J₁ ⋯ J_T
    average: tuple[float, ...]  # h₁, h₂, h₃ and ∂h₃/∂h₀ of an exponential average from h₀ = 0
    detached: tuple[float, ...]  # the same, with the carry detached after the second step


def work_out(seed: int) -> Worked:
    cell = jr.elman(PRODUCT_UNITS)
    keys = jax.random.split(jax.random.key(seed))
    params, xs = cell.init(keys[0], 2), 0.3 * jax.random.normal(keys[1], (PRODUCT_STEPS, 2))
    factors = np.asarray(carry_jacobians(cell, params, xs), np.float64)
    exact = jax.jacrev(lambda h: jr.unroll(cell, params, xs, carry=jr.cells.ElmanCarry(h)).carry.h)(
        jnp.zeros(PRODUCT_UNITS)
    )
    in_order, in_reverse = (
        float(np.linalg.norm(product(ordered) - exact) / np.linalg.norm(exact))
        for ordered in (factors, factors[::-1])
    )
    return Worked(in_order, in_reverse, _average(cut=False), _average(cut=True))


def product(factors: np.ndarray) -> np.ndarray:
    """The last factor times the one before it, and so on down to the first."""
    result = np.eye(factors.shape[-1])
    for factor in factors:
        result = factor @ result
    return result


def _average(cut: bool) -> tuple[float, ...]:
    """The states of `INPUTS`, and the derivative of the last one by the first carry."""
    cell = jr.ema(ALPHA)
    params = cell.init(jax.random.key(0), 1)
    xs = jnp.array(INPUTS)[:, None]

    def run(carry):
        first = jr.unroll(cell, params, xs[:2], carry=carry)
        between = jr.detach(first.carry) if cut else first.carry
        second = jr.unroll(cell, params, xs[2:], carry=between)
        return second.outputs[0, 0], jnp.concatenate([first.outputs, second.outputs])[:, 0]

    slope, states = jax.grad(run, has_aux=True)(cell.initial_carry(params))
    return *map(float, states), float(jax.tree.leaves(slope)[0][0])


class Swept(NamedTuple):
    """One activation at every radius."""

    exponents: np.ndarray  # largest Lyapunov exponents, nats a step, [kernels, gains, S]
    norms: np.ndarray  # of the carry after every step, [kernels, gains, S, T]
    means: np.ndarray  # over the units, of the carry after every step, [kernels, gains, S, T]


def sweep(config: Config, activation: str) -> Swept:
    """All kernels, radii and seeds of one activation in one call."""
    cell = jr.elman(config.num_units, ACTIVATIONS[activation])
    first = config.num_steps // 5

    @jax.jit
    @jax.vmap
    def look(params, xs):
        exponents = lyapunov_exponents(cell, params, xs, num_exponents=1, num_transient_steps=first)
        return exponents[0], jr.unroll(cell, params, xs).outputs

    problems = [
        elman_problem(config, gain, kind, seed)
        for kind in KERNELS
        for gain in config.gains
        for seed in config.all_seeds
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)
    exponents, h = (np.asarray(values, np.float64) for values in look(*stacked))
    shape = len(KERNELS), len(config.gains), config.seeds
    looked = exponents, np.linalg.norm(h, axis=-1), h.mean(-1)
    return Swept(*(one.reshape(*shape, *one.shape[1:]) for one in looked))


def elman_problem(
    config: Config, gain: float, kind: str, seed: int, input_scale: float = 1.0
) -> tuple[jr.cells.ElmanParams, jax.Array]:
    """Parameters of a plain cell with that spectral radius, and white noise as inputs."""
    generator = np.random.default_rng((seed, len(KERNELS)))
    kernel = generator.standard_normal((NUM_INPUTS, config.num_units)) / np.sqrt(NUM_INPUTS)
    recurrent = gain * recurrent_kernel(kind, config.num_units, seed)
    arrays = input_scale * kernel, recurrent, np.zeros(config.num_units)
    xs = generator.standard_normal((config.num_steps, NUM_INPUTS))
    return jr.cells.ElmanParams(*map(jnp.float32, arrays)), jnp.float32(xs)


def recurrent_kernel(kind: str, num_units: int, seed: int) -> np.ndarray:
    """A kernel of spectral radius 1: all singular values 1, or independent normal numbers."""
    drawn = np.random.default_rng((seed, KERNELS.index(kind))).standard_normal((num_units,) * 2)
    if kind == ORTHOGONAL:
        q, r = np.linalg.qr(drawn)
        return q * np.sign(np.diag(r))
    return drawn / np.abs(np.linalg.eigvals(drawn)).max()


class Gated(NamedTuple):
    """One cell as it is drawn."""

    sensitivity: np.ndarray  # of the last output to every input, [S, T]
    horizons: np.ndarray  # steps back until `HEARD` of the largest sensitivity is left, [S]
    exponents: np.ndarray  # the largest Lyapunov exponent, nats a step, [S]

    @property
    def reach(self) -> np.ndarray:
        """Sensitivity to the first input, relative to that to the last, `[S]`."""
        return self.sensitivity[:, 0] / self.sensitivity[:, -1]


def look_at(config: Config, name: str) -> Gated:
    """Every seed of one cell; inputs are white noise."""
    cell, params, xs = _drawn(config, name)

    @jax.jit
    @jax.vmap
    def look(params, xs):
        return (
            last_output_sensitivity(cell, params, xs),
            memory_horizon(cell, params, xs, threshold=HEARD),
            lyapunov_exponents(cell, params, xs, num_exponents=1)[0],
        )

    return Gated(*(np.asarray(values, np.float64) for values in look(params, xs)))


def spectrum(config: Config, name: str) -> np.ndarray:
    """Logarithms of the singular values of ∂hₜ/∂h₀ for the first seed, `[t, N]`."""
    cell, params, xs = _drawn(config, name)
    first = jax.tree.map(lambda leaf: leaf[0], params)
    return np.asarray(jacobian_spectrum(cell, first, xs[0, :SPECTRUM_STEPS]), np.float64)


def _drawn(config, name):
    cell = CELLS[name](config.num_units, config.num_steps)
    keys = jax.vmap(jax.random.key)(np.array(config.all_seeds))
    params = jax.vmap(lambda key: cell.init(key, NUM_INPUTS))(keys)
    shape = config.num_steps, NUM_INPUTS
    return cell, params, jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
