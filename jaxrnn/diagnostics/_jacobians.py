"""The Jacobian of every step, and the size of its eigenvalues."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.diagnostics._observe import Run, observe
from jaxrnn.engine import checks, precision
from jaxrnn.engine.flat_carry import FlatCarry
from jaxrnn.types import Carry, Mask, Model, Params, Reset, Steps


def carry_jacobians(
    model: Model,
    params: Params,
    xs: Any,
    *,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    time_major: bool = False,
) -> jax.Array:
    """The Jacobian of the map from carry to carry, at every step of a run.

        Jₜ = ∂hₜ / ∂hₜ₋₁

    For a simple recurrent cell Jₜ = diag(φ'(uₜ)) Uᵀ. At a masked step J = I, at a reset J = 0. The
    carry is one real vector of N coordinates: its leaves in their order, a complex leaf as its real
    parts and then its imaginary ones. The model is the deterministic one.

    Args:
        model: the cell or layer to run; a layer must be causal.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`.
        carry, mask, reset, time_major: as in `unroll`; the result is `[T, ...]` with time_major.

    Returns:
        `[..., T, N, N]`; a row is a coordinate of hₜ, a column one of hₜ₋₁.

    Raises:
        ValueError: The layer is not causal, or shapes disagree.
        TypeError: The carry holds no floating numbers, or an argument has the wrong type, tree
            structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.elman(2)
        >>> kernel = jnp.array([[0.5, 0.25], [0.0, 2.0]])
        >>> params = jr.cells.ElmanParams(jnp.ones((1, 2)), kernel, jnp.zeros(2))
        >>> carry_jacobians(cell, params, jnp.zeros((1, 1)))[0]
        Array([[0.5 , 0.  ],
               [0.25, 2.  ]], dtype=float32)
    """
    jacobians = observe(_jacobians, (), model, params, xs, carry, mask, reset, time_major)
    return jacobians if time_major else jnp.moveaxis(jacobians, 0, -3)


def spectral_radius(matrix: Any) -> jax.Array:
    """The largest modulus of an eigenvalue.

        ρ(A) = max |λᵢ(A)|,  ‖Aⁿ‖^(1/n) → ρ(A)

    Above 1, repeated multiplication by A grows along one direction; below 1, it forgets everything.
    This holds for the linear map. For a nonlinear cell use it on the `carry_jacobians` of a run, or
    on the `recurrent_kernel` of a simple cell.

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
    matrix = checks.array(matrix, "matrix")
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] == 0:
        raise ValueError(f"matrix must be square, [..., N, N], got the shape {matrix.shape}.")
    return jnp.abs(jnp.linalg.eigvals(matrix)).max(-1)


def flat_carry(run: Run) -> FlatCarry:
    """How the carries of a run become vectors; raises where there is no carry to differentiate."""
    if not run.layer.causal:
        raise ValueError("model must be causal; this layer has no carry between steps.")
    like = jax.eval_shape(run.layer.initial_carry, run.params)
    flat = FlatCarry(like, precision.compute_dtype((run.params, run.carry)))
    if flat.size == 0:
        raise TypeError(
            "model must have a carry of floating or complex numbers, "
            f"got {jax.tree.structure(like)}."
        )
    return flat


def advance_with_jacobian(run: Run, flat: FlatCarry, carry: Any, step: Steps) -> tuple[Any, Any]:
    """The carry after one step, mask and reset applied, and J = ∂hₜ / ∂hₜ₋₁ `[*batch, N, N]`.

    The rows of a batch do not depend on each other, so one pull-back serves all of them.
    """
    step = jax.tree.map(lambda leaf: leaf[None], step)

    def advance(vector):
        before = flat.unpack(vector, carry)
        after = run.layer.unroll(run.params, before, step, None).carry
        return flat.pack(after), after

    # By reverse mode: a layer of the user's may have a custom_vjp, which has no forward derivative.
    vector, pull, after = jax.vjp(advance, flat.pack(carry), has_aux=True)
    units = jnp.eye(flat.size, dtype=vector.dtype)
    rows = jax.vmap(lambda unit: pull(jnp.broadcast_to(unit, vector.shape))[0])(units)
    return after, jnp.moveaxis(rows, 0, -2)


def _jacobians(run):
    flat = flat_carry(run)
    return lax.scan(lambda *args: advance_with_jacobian(run, flat, *args), run.carry, run.steps)[1]
