"""The ParaLSTM, a long short-term memory whose recurrent matrices are diagonal."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.cells._gru import project
from jaxrnn.cells._lstm import LSTMCarry, LSTMMix, emit, update
from jaxrnn.engine import checks, precision
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split


class ParaLSTMParams(NamedTuple):
    """`kernel [D, 3*H]`, `recurrent_kernel [3*H]` and `bias [3*H]`, in the order f, g, o.

    `recurrent_kernel` holds the diagonals of three matrices, and `peephole [2*H]` those of f and o.
    """

    kernel: Any
    recurrent_kernel: Any
    bias: Any
    peephole: Any
    roles = {
        "kernel": "input",
        "recurrent_kernel": "recurrent",
        "bias": "input",
        "peephole": "recurrent",
    }


def mix(params: ParaLSTMParams, carry: LSTMCarry, z: Any) -> LSTMMix:
    """gates = z + u ⊙ h, `[..., 3*H]`."""
    return LSTMMix(z + params.recurrent_kernel * jnp.tile(carry.h, 3), params.peephole)


def initial_carry(params: ParaLSTMParams, batch_shape: tuple[int, ...] = ()) -> LSTMCarry:
    """h = 0 and c = 0, `[*batch, H]`."""
    shape, dtype = (*batch_shape, params.peephole.size // 2), precision.compute_dtype(params)
    return LSTMCarry(h=jnp.zeros(shape, dtype), c=jnp.zeros(shape, dtype))


@model_factory
def para_lstm(num_units: int, *, param_dtype: Any = jnp.float32) -> Cell:
    """The ParaLSTM: an LSTM in which a unit reads no other unit.

        f = σ(xₜ W_f + u_f ⊙ hₜ₋₁ + p_f ⊙ cₜ₋₁ + b_f),  g = tanh(xₜ W_g + u_g ⊙ hₜ₋₁ + b_g)
        cₜ = f ⊙ cₜ₋₁ + (1 - f) ⊙ g,  o = σ(xₜ W_o + u_o ⊙ hₜ₋₁ + p_o ⊙ cₜ + b_o)
        hₜ = o ⊙ tanh(cₜ),  yₜ = hₜ

    Danieli et al. 2025, "ParaRNN" (arXiv:2510.21450). It is `lstm(coupled=True, peephole=True)`
    with diagonal recurrent matrices. The Jacobian of a step has a block of 2 × 2 for each unit, of
    its h and its c, so an iteration of `newton()` is a linear scan of such blocks. Units meet in
    the layers between, as in state space models.

    W starts uniform with variance 2 / D (He et al. 2015), u and p normal with variance 1 / H
    (Glorot and Bengio 2010, for the matrices of which they are the diagonals), and b at zero. For
    long sequences the paper clips u and p to at most 0.5 after each update.

    Args:
        num_units: H.
        param_dtype: dtype of the parameters. The carry runs in promote(params, float32).

    Returns:
        The cell, `[..., D] -> [..., H]`, carry `LSTMCarry(h, c)`; 3DH + 8H parameters.

    Raises:
        TypeError: `num_units` is not an int.
        ValueError: `num_units` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.para_lstm(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(cell, params, jnp.ones((2, 50, 3)), evaluator=jr.newton())
        >>> rollout.outputs.shape, bool(rollout.info.converged)
        ((2, 50, 4), True)
    """
    checks.positive(num_units, "num_units")

    def init(key, num_inputs):
        keys = jax.random.split(key, 3)
        return ParaLSTMParams(
            kernel=initializers.input_kernel(
                keys[0], num_inputs, 3 * num_units, param_dtype, jax.nn.initializers.he_uniform()
            ),
            recurrent_kernel=initializers.diagonals(keys[1], num_units, 3, param_dtype),
            bias=jnp.zeros(3 * num_units, param_dtype),
            peephole=initializers.diagonals(keys[2], num_units, 2, param_dtype),
        )

    return Cell(
        init=init,
        initial_carry=initial_carry,
        project=project,
        advance=Split(mix, update),
        emit=emit,
        num_outputs=lambda num_inputs: num_units,
    )
