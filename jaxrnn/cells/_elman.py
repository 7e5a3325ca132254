"""The simple recurrent network of Elman (1990)."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._activations import clipped
from jaxrnn.engine import checks, precision
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split


class ElmanParams(NamedTuple):
    """`kernel [D, H]`, `recurrent_kernel [H, H]`, `bias [H]`."""

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    roles = {"kernel": "input", "recurrent_kernel": "recurrent", "bias": "input"}


class ElmanCarry(NamedTuple):
    """`h [..., H]`."""

    h: Any


def project(params: ElmanParams, x: Any) -> Any:
    """z = x W + b, `[..., D] -> [..., H]`."""
    checks.width(x, params.kernel)
    return x @ params.kernel + params.bias


def mix(params: ElmanParams, carry: ElmanCarry, z: Any) -> Any:
    """u = z + h U, `[..., H]`."""
    return z + carry.h @ params.recurrent_kernel


def update(carry: ElmanCarry, u: Any, activation: Callable[[Any], Any] = jnp.tanh) -> ElmanCarry:
    """h = φ(u), `[..., H]`."""
    del carry
    return ElmanCarry(activation(u))


def emit(params: ElmanParams, carry: ElmanCarry, x: Any) -> Any:
    """y = h, `[..., H]`."""
    del params, x
    return carry.h


def initial_carry(params: ElmanParams, batch_shape: tuple[int, ...] = ()) -> ElmanCarry:
    """h = 0, `[*batch, H]`."""
    num_units = params.recurrent_kernel.shape[0]
    return ElmanCarry(jnp.zeros((*batch_shape, num_units), precision.compute_dtype(params)))


@model_factory
def elman(
    num_units: int,
    activation: Callable[[Any], Any] = jnp.tanh,
    *,
    clip: float | None = None,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The simple recurrent cell.

        hₜ = φ(xₜ W + hₜ₋₁ U + b),  yₜ = hₜ

    Elman 1990, "Finding structure in time". There is one bias, so DH + H² + H parameters; torch
    keeps two biases, of which only the sum matters. A `recurrent_kernel` that starts as the
    identity, with `jax.nn.relu`, is the IRNN of Le et al. 2015 (arXiv:1504.00941).

    Args:
        num_units: H.
        activation: φ, elementwise: `jnp.tanh`, `jax.nn.relu`, the identity, or any function.
        clip: bound of the input of φ, φ(min(max(u, -clip), clip)); None is no bound.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `ElmanCarry(h [..., H])`.

    Raises:
        TypeError: `num_units` is not an int, `activation` is not a function, or `clip` is not a
            number.
        ValueError: `num_units` is below 1, or `clip` is not above 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.elman(1, activation=lambda u: u)
        >>> params = jr.cells.ElmanParams(jnp.ones((1, 1)), jnp.full((1, 1), 0.5), jnp.zeros(1))
        >>> jr.unroll(cell, params, jnp.array([[1.0], [2.0], [0.0]])).outputs[:, 0]
        Array([1.  , 2.5 , 1.25], dtype=float32)
    """
    checks.positive(num_units, "num_units")
    checks.function(activation, "activation")
    bound = None if clip is None else checks.above_zero(clip, "clip")

    def init(key, num_inputs):
        key_input, key_recurrent = jax.random.split(key)
        return ElmanParams(
            kernel=initializers.input_kernel(key_input, num_inputs, num_units, param_dtype),
            recurrent_kernel=initializers.orthogonal_per_gate(
                key_recurrent, num_units, num_units, 1, param_dtype
            ),
            bias=jnp.zeros(num_units, param_dtype),
        )

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=Split(mix, partial(update, activation=clipped(activation, bound))),
        emit=emit,
        num_outputs=lambda num_inputs: num_units,
    )
