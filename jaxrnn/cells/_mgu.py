"""The minimal gated unit."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.engine import checks, precision
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split


class MGUParams(NamedTuple):
    """`kernel [D, 2*H]`, `recurrent_kernel [H, 2*H]`, `bias [2*H]`; gates in the order f, n."""

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    roles = {"kernel": "input", "recurrent_kernel": "recurrent", "bias": "input"}


class MGUCarry(NamedTuple):
    """`h [..., H]`."""

    h: Any


class MGUMix(NamedTuple):
    """The pre-activations of f and n, `[..., H]` each, which the pointwise part of a step reads."""

    f: Any
    n: Any


def project(params: MGUParams, x: Any) -> Any:
    """x W + b, `[..., D] -> [..., 2*H]`."""
    checks.width(x, params.kernel)
    return x @ params.kernel + params.bias


def mix(params: MGUParams, carry: MGUCarry, z: Any) -> MGUMix:
    """z_f + h U_f and z_n + (f ⊙ h) U_n, `[..., H]` each; the second product needs the gate."""
    z_f, z_n = jnp.split(z, 2, axis=-1)
    kernel_f, kernel_n = jnp.split(params.recurrent_kernel, 2, axis=-1)
    u_f = z_f + carry.h @ kernel_f
    return MGUMix(u_f, z_n + (jax.nn.sigmoid(u_f) * carry.h) @ kernel_n)


def update(carry: MGUCarry, u: MGUMix) -> MGUCarry:
    """h = (1 - f) ⊙ h + f ⊙ n, `[..., H]`."""
    f = jax.nn.sigmoid(u.f)
    return MGUCarry((1 - f) * carry.h + f * jnp.tanh(u.n))


def emit(params: MGUParams, carry: MGUCarry, x: Any) -> Any:
    """y = h, `[..., H]`."""
    del params, x
    return carry.h


def initial_carry(params: MGUParams, batch_shape: tuple[int, ...] = ()) -> MGUCarry:
    """h = 0, `[*batch, H]`."""
    num_units = params.recurrent_kernel.shape[0]
    return MGUCarry(jnp.zeros((*batch_shape, num_units), precision.compute_dtype(params)))


@model_factory
def mgu(num_units: int, *, param_dtype: Any = jnp.float32) -> Cell:
    """The minimal gated unit: a GRU whose reset and update gates are the same.

        f = σ(xₜ W_f + hₜ₋₁ U_f + b_f),  n = tanh(xₜ W_n + (f ⊙ hₜ₋₁) U_n + b_n)
        hₜ = (1 - f) ⊙ hₜ₋₁ + f ⊙ n,  yₜ = hₜ

    Zhou et al. 2016 (arXiv:1603.09420). f = 0 keeps the old h, and f = 1 replaces it. flax linen's
    cell is a different function. It gates the product, f ⊙ (hₜ₋₁ U_n + c), and its f keeps the old
    h, (1 - f) ⊙ n + f ⊙ hₜ₋₁, so there a gate that replaces h also hides the old h from n. Its bias
    of f starts at 1, here at 0. The two agree where U_n = 0 and c = 0, with the parameters of f
    negated.

    Args:
        num_units: H.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `MGUCarry(h [..., H])`; 2(DH + H² + H) parameters.

    Raises:
        TypeError: `num_units` is not an int.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.mgu(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.unroll(cell, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 4)
    """
    checks.positive(num_units, "num_units")

    def init(key, num_inputs):
        key_input, key_recurrent = jax.random.split(key)
        return MGUParams(
            kernel=initializers.input_kernel(key_input, num_inputs, 2 * num_units, param_dtype),
            recurrent_kernel=initializers.orthogonal_per_gate(
                key_recurrent, num_units, num_units, 2, param_dtype
            ),
            bias=jnp.zeros(2 * num_units, param_dtype),
        )

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=Split(mix, update),
        emit=emit,
        num_outputs=lambda num_inputs: num_units,
    )
