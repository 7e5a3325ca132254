"""The ParaGRU, a gated recurrent unit whose recurrent matrices are diagonal."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._gru import GRUCarry, GRUMix, emit, project, update
from jaxrnn.engine import checks, precision
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split


class ParaGRUParams(NamedTuple):
    """`kernel [D, 3*H]`, `recurrent_kernel [3*H]` and `bias [3*H]`; gates in the order r, z, n.

    `recurrent_kernel` holds the diagonals of three matrices.
    """

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    roles = {"kernel": "input", "recurrent_kernel": "recurrent", "bias": "input"}


def mix(params: ParaGRUParams, carry: GRUCarry, z: Any) -> GRUMix:
    """The pre-activations of z and n, `[..., H]` each; that of n needs the reset gate."""
    z_r, z_z, z_n = jnp.split(z, 3, axis=-1)
    u_r, u_z, u_n = jnp.split(params.recurrent_kernel, 3)
    r = jax.nn.sigmoid(z_r + u_r * carry.h)
    return GRUMix(z_z + u_z * carry.h, z_n + u_n * (r * carry.h))


def initial_carry(params: ParaGRUParams, batch_shape: tuple[int, ...] = ()) -> GRUCarry:
    """h = 0, `[*batch, H]`."""
    num_units = params.recurrent_kernel.size // 3
    return GRUCarry(jnp.zeros((*batch_shape, num_units), precision.compute_dtype(params)))


@model_factory
def para_gru(num_units: int, *, param_dtype: Any = jnp.float32) -> Cell:
    """The ParaGRU: a GRU in which a unit reads no other unit.

        r, z = σ(xₜ W + u ⊙ hₜ₋₁ + b),  n = tanh(xₜ W_n + u_n ⊙ (r ⊙ hₜ₋₁) + b_n)
        hₜ = (1 - z) ⊙ n + z ⊙ hₜ₋₁,  yₜ = hₜ

    Danieli et al. 2025, "ParaRNN" (arXiv:2510.21450). It is `gru(reset_after=False)` with diagonal
    recurrent matrices, so the Jacobian of a step is diagonal and an iteration of `newton()` is one
    elementwise linear scan. Units meet in the layers between, as in state space models. z keeps
    the old h, as in `gru`; in the paper z admits the new one, which is the same cell with the
    parameters of z negated.

    W starts uniform with variance 2 / D (He et al. 2015), u normal with variance 1 / H (Glorot and
    Bengio 2010, for the matrix of which it is the diagonal), and b at zero. For long sequences the
    paper clips u to at most 0.5 after each update.

    Args:
        num_units: H.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `GRUCarry(h [..., H])`; 3(DH + 2H) parameters.

    Raises:
        TypeError: `num_units` is not an int.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.para_gru(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(cell, params, jnp.ones((2, 50, 3)), evaluator=jr.newton())
        >>> rollout.outputs.shape, bool(rollout.info.converged)
        ((2, 50, 4), True)
    """
    checks.positive(num_units, "num_units")

    def init(key, num_inputs):
        key_input, key_recurrent = jax.random.split(key)
        return ParaGRUParams(
            kernel=initializers.input_kernel(
                key_input, num_inputs, 3 * num_units, param_dtype, jax.nn.initializers.he_uniform()
            ),
            recurrent_kernel=initializers.diagonals(key_recurrent, num_units, 3, param_dtype),
            bias=jnp.zeros(3 * num_units, param_dtype),
        )

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=Split(mix, update),
        emit=emit,
        num_outputs=lambda num_inputs: num_units,
    )
