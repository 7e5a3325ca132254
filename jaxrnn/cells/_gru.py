"""The gated recurrent unit, with the reset gate after or before the recurrent product."""

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


class GRUParams(NamedTuple):
    """Parameters, with the gates in the order r, z, n.

    `kernel [D, 3*H]`, `recurrent_kernel [H, 3*H]`, `bias [3*H]`, and `recurrent_bias [H]` of n in
    the reset-after form (None in the other).
    """

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    recurrent_bias: Any = None
    roles = {
        "kernel": "input",
        "recurrent_kernel": "recurrent",
        "bias": "input",
        "recurrent_bias": "recurrent",
    }


class GRUCarry(NamedTuple):
    """`h [..., H]`."""

    h: Any


class GRUMix(NamedTuple):
    """The pre-activations that the pointwise part of a step reads.

    `gates [..., 2*H]` are those of r and z, and `n [..., H]` still lacks r ⊙ `recurrent [..., H]`.
    In the reset-before form r is already applied: `gates [..., H]` is z, and `recurrent` is None.
    """

    gates: Any
    n: Any
    recurrent: Any = None


def project(params: GRUParams, x: Any) -> Any:
    """x W + b, `[..., D] -> [..., 3*H]`."""
    checks.width(x, params.kernel)
    return x @ params.kernel + params.bias


def mix(
    params: GRUParams,
    carry: GRUCarry,
    z: Any,
    gate_activation: Callable[[Any], Any] = jax.nn.sigmoid,
) -> GRUMix:
    """One product h U, or in the reset-before form h U_rz and (r ⊙ h) U_n, `[..., H]` each."""
    num_units = carry.h.shape[-1]
    z_gates, z_n = jnp.split(z, [2 * num_units], axis=-1)
    if params.recurrent_bias is not None:
        u_gates, u_n = jnp.split(carry.h @ params.recurrent_kernel, [2 * num_units], axis=-1)
        return GRUMix(z_gates + u_gates, z_n, u_n + params.recurrent_bias)
    kernel_gates, kernel_n = jnp.split(params.recurrent_kernel, [2 * num_units], axis=-1)
    r, gates = jnp.split(z_gates + carry.h @ kernel_gates, 2, axis=-1)
    return GRUMix(gates, z_n + (gate_activation(r) * carry.h) @ kernel_n)


def update(
    carry: GRUCarry,
    u: GRUMix,
    activation: Callable[[Any], Any] = jnp.tanh,
    gate_activation: Callable[[Any], Any] = jax.nn.sigmoid,
) -> GRUCarry:
    """h = (1 - z) ⊙ n + z ⊙ h, `[..., H]`."""
    # Both gates at once, and split afterwards: XLA's CPU backend does not vectorise a loop that
    # takes two slices of one array through `exp` or `tanh`, which is ten times slower.
    z, n = gate_activation(u.gates), u.n
    if u.recurrent is not None:
        r, z = jnp.split(z, 2, axis=-1)
        n = n + r * u.recurrent
    return GRUCarry((1 - z) * activation(n) + z * carry.h)


def emit(params: GRUParams, carry: GRUCarry, x: Any) -> Any:
    """y = h, `[..., H]`."""
    del params, x
    return carry.h


def initial_carry(params: GRUParams, batch_shape: tuple[int, ...] = ()) -> GRUCarry:
    """h = 0, `[*batch, H]`."""
    num_units = params.recurrent_kernel.shape[0]
    return GRUCarry(jnp.zeros((*batch_shape, num_units), precision.compute_dtype(params)))


@model_factory
def gru(
    num_units: int,
    *,
    reset_after: bool = True,
    activation: Callable[[Any], Any] = jnp.tanh,
    gate_activation: Callable[[Any], Any] = jax.nn.sigmoid,
    clip: float | None = None,
    param_dtype: Any = jnp.float32,
) -> Cell:
    """The gated recurrent unit.

        r, z = σ(xₜ W + hₜ₋₁ U + b)
        n = φ(xₜ W_n + b_n + r ⊙ (hₜ₋₁ U_n + c))    reset_after=True, c is `recurrent_bias`
        n = φ(xₜ W_n + b_n + (r ⊙ hₜ₋₁) U_n)        reset_after=False
        hₜ = (1 - z) ⊙ n + z ⊙ hₜ₋₁,  yₜ = hₜ

    φ is tanh and σ the sigmoid, unless the options give other functions.

    Cho et al. 2014 (arXiv:1406.1078; v3 puts the reset gate before the product, v1 after it), with
    biases. cuDNN, torch and flax linen put it after, so that h needs one product instead of two.
    The two forms are different functions. z keeps the old h, as in Cho et al., torch and keras; in
    Chung et al. 2014 (arXiv:1412.3555) and haiku z admits the new one, which is the same cell with
    the parameters of z negated. r and z have one bias each; torch keeps two, of which only the sum
    matters.

    Args:
        num_units: H.
        reset_after: whether the reset gate comes after the recurrent product.
        activation: φ, elementwise, of n.
        gate_activation: σ, elementwise, of r and z; `jr.cells.hard_sigmoid` is that of old keras
            models.
        clip: bound of the inputs of σ and φ, which become min(max(u, -clip), clip); None is no
            bound.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `GRUCarry(h [..., H])`; 3(DH + H² + H) parameters,
        H more with `reset_after`.

    Raises:
        TypeError: `num_units` is not an int, `reset_after` is not a bool, an activation is not a
            function, or `clip` is not a number.
        ValueError: `num_units` is below 1, or `clip` is not above 0.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.unroll(cell, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 4)
    """
    checks.positive(num_units, "num_units")
    checks.boolean(reset_after, "reset_after")
    bound = None if clip is None else checks.above_zero(clip, "clip")
    activation = clipped(checks.function(activation, "activation"), bound)
    gate_activation = clipped(checks.function(gate_activation, "gate_activation"), bound)

    def init(key, num_inputs):
        key_input, key_recurrent = jax.random.split(key)
        return GRUParams(
            kernel=initializers.input_kernel(key_input, num_inputs, 3 * num_units, param_dtype),
            recurrent_kernel=initializers.orthogonal_per_gate(
                key_recurrent, num_units, num_units, 3, param_dtype
            ),
            bias=jnp.zeros(3 * num_units, param_dtype),
            recurrent_bias=jnp.zeros(num_units, param_dtype) if reset_after else None,
        )

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=Split(
            partial(mix, gate_activation=gate_activation),
            partial(update, activation=activation, gate_activation=gate_activation),
        ),
        emit=emit,
        num_outputs=lambda num_inputs: num_units,
    )
