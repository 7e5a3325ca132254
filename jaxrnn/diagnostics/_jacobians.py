"""The Jacobian of every step, and the size of its eigenvalues."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.diagnostics._flat_carry import advance_with_jacobian, vectors
from jaxrnn.diagnostics._observe import each_step, observe, time_back
from jaxrnn.types import Cell, Layer


def carry_jacobians(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
) -> jax.Array:
    """The Jacobian of the map from carry to carry, at every step of a run.

        Jₜ = ∂hₜ / ∂hₜ₋₁

    For a simple recurrent cell Jₜ = diag(φ'(uₜ)) Uᵀ. At a masked step J = I, at a reset J = 0. The
    carry counts as one real vector of N coordinates, its leaves in their order, a complex leaf as
    its real parts and then its imaginary ones. The model is the deterministic one.

    Args:
        model: What to run; a layer must be causal.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`.
        reset: `[..., T]`.
        time_major: xs, mask, reset and the result are `[T, ...]`.

    Returns:
        `[..., T, N, N]`: what the new coordinate (row) gets from the old one (column).

    Raises:
        ValueError: The layer is not causal, or shapes disagree.
        TypeError: The carry holds no floating numbers, or something is of another kind, class of
            tree or dtype than expected.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.elman(2)
        >>> kernel = jnp.array([[0.5, 0.25], [0.0, 2.0]])
        >>> params = jr.cells.ElmanParams(jnp.ones((1, 2)), kernel, jnp.zeros(2))
        >>> carry_jacobians(cell, params, jnp.zeros((1, 1)))[0]
        Array([[0.5 , 0.  ],
               [0.25, 2.  ]], dtype=float32)
    """
    jacobians = observe(
        model,
        params,
        xs,
        _jacobians,
        carry=carry,
        mask=mask,
        reset=reset,
        time_major=time_major,
    )
    return time_back(jacobians, 2, time_major)


def spectral_radius(matrix: Any) -> jax.Array:
    """The largest modulus of an eigenvalue.

        ρ(A) = max |λᵢ(A)|,  ‖Aⁿ‖^(1/n) → ρ(A)

    Above 1 repeated multiplication by A grows along one direction, below 1 it forgets everything.
    That is a statement about the linear map: for a cell at work take `carry_jacobians` of a run, or
    the `recurrent_kernel` of a simple one.

    Args:
        matrix: `[..., N, N]`, real or complex.

    Returns:
        `[...]`, real.

    Raises:
        ValueError: The last two axes are not those of a square matrix.

    Example:
        >>> quarter_turn = jnp.array([[0.0, -0.5], [0.5, 0.0]])
        >>> round(float(spectral_radius(quarter_turn)), 6)
        0.5
    """
    matrix = jnp.asarray(matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] == 0:
        raise ValueError(f"matrix must be square, [..., N, N], got the shape {matrix.shape}.")
    return jnp.abs(jnp.linalg.eigvals(matrix)).max(-1)


def _jacobians(run):
    packing = vectors(run)
    return each_step(lambda *args: advance_with_jacobian(run, packing, *args), run.carry, run)[1]
