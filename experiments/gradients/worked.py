"""What can be worked out by hand: the order of the factors, an average, and a detached carry."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from jaxrnn.diagnostics import carry_jacobians

ALPHA, INPUTS, STATES = 0.5, (2.0, 0.0, 4.0), (1.0, 0.5, 2.25)


class Worked(NamedTuple):
    """What was computed of the examples.

    Attributes:
        in_order: Distance of ∂h_T/∂h₀ from J_T ⋯ J₁, relative to it.
        reversed: Its distance from J₁ ⋯ J_T.
        states: Of an exponential average, α = 1/2, h₀ = 0, of the inputs 2, 0, 4.
        sensitivity: ∂h₃/∂h₀ of that.
        detached_states: The same states, with the carry detached after the second.
        detached_sensitivity: ∂h₃/∂h₀ of that.
    """

    in_order: float
    reversed: float
    states: tuple[float, ...]
    sensitivity: float
    detached_states: tuple[float, ...]
    detached_sensitivity: float


def work_out(num_units: int, num_steps: int, seed: int) -> Worked:
    """The product of Jacobians of a tanh cell, and the average."""
    cell = jr.elman(num_units)
    keys = jax.random.split(jax.random.key(seed))
    params, xs = cell.init(keys[0], 2), 0.3 * jax.random.normal(keys[1], (num_steps, 2))
    factors = np.asarray(carry_jacobians(cell, params, xs), np.float64)
    exact = jax.jacrev(lambda h: jr.unroll(cell, params, xs, carry=jr.cells.ElmanCarry(h)).carry.h)(
        jnp.zeros(num_units)
    )
    products = product(factors), product(factors[::-1])
    in_order, in_reverse = (
        float(np.linalg.norm(one - exact) / np.linalg.norm(exact)) for one in products
    )
    return Worked(in_order, in_reverse, *_average(cut=False), *_average(cut=True))


def product(factors: np.ndarray) -> np.ndarray:
    """The last factor times the one before it, and so on down to the first."""
    result = np.eye(factors.shape[-1])
    for factor in factors:
        result = factor @ result
    return result


def _average(cut: bool) -> tuple[tuple[float, ...], float]:
    """The states, and the derivative of the last one by the first carry."""
    cell = jr.ema(ALPHA)
    params = cell.init(jax.random.key(0), 1)
    xs = jnp.array(INPUTS)[:, None]

    def run(carry):
        first = jr.unroll(cell, params, xs[:2], carry=carry)
        between = jr.detach(first.carry) if cut else first.carry
        second = jr.unroll(cell, params, xs[2:], carry=between)
        return second.outputs[0, 0], jnp.concatenate([first.outputs, second.outputs])[:, 0]

    slope, states = jax.grad(run, has_aux=True)(cell.initial_carry(params))
    return tuple(map(float, states)), float(jax.tree.leaves(slope)[0][0])
