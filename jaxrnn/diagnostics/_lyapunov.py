"""Lyapunov exponents: how fast nearby carries diverge, for each direction."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.diagnostics._jacobians import advance_with_jacobian, flat_carry
from jaxrnn.diagnostics._observe import observe
from jaxrnn.engine import checks
from jaxrnn.engine.masking import select
from jaxrnn.types import Carry, Mask, Model, Params, Reset


def lyapunov_exponents(
    model: Model,
    params: Params,
    xs: Any,
    *,
    num_exponents: int | None = None,
    num_transient_steps: int = 0,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    time_major: bool = False,
) -> jax.Array:
    """The Lyapunov exponents of a run, nats per step, the largest one first.

        Jₜ Qₜ₋₁ = Qₜ Rₜ,   λᵢ = mean over t of log |Rₜ[i, i]|

    Benettin et al. 1980: the frame Q is orthonormalised at every step, so nothing over- or
    underflows. Above 0 gradients explode along that direction, below 0 they vanish, with the time
    constant of -1 / λ steps. Q starts at fixed random directions. Until it has aligned with the
    dominant ones the terms are biased, which costs the mean O(1 / T): `num_transient_steps` leaves
    them out. Masked steps do not count. A step with a reset does not depend on the carry before it:
    it is left out, and the frame continues unchanged. A direction that a step maps to zero has the
    exponent -inf, or a large negative one due to rounding.

    Args:
        model: the cell or layer to run; a layer must be causal.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`.
        num_exponents: how many of the largest exponents; None is all N, one for each coordinate of
            the carry (a complex number is two).
        num_transient_steps: number of steps at the start that align the frame without being
            averaged.
        carry, mask, reset, time_major: as in `unroll`.

    Returns:
        `[..., num_exponents]`; NaN for a row where no step counts.

    Raises:
        ValueError: A number is out of range, the layer is not causal, or shapes disagree.
        TypeError: The carry holds no floating numbers, or an argument has the wrong type, tree
            structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> exponents = lyapunov_exponents(cell, params, jnp.ones((10, 1)))
        >>> bool(jnp.allclose(exponents, jnp.log(0.5)))
        True
    """
    if num_exponents is not None:
        checks.positive(num_exponents, "num_exponents")
    if num_transient_steps != 0:
        checks.positive(num_transient_steps, "num_transient_steps")
    options = num_exponents, num_transient_steps
    return observe(_exponents, options, model, params, xs, carry, mask, reset, time_major)


def _exponents(run, num_exponents, num_transient_steps):
    flat = flat_carry(run)
    num = flat.size if num_exponents is None else num_exponents
    if num > flat.size:
        raise ValueError(f"num_exponents must be at most {flat.size}, got {num}.")
    batch_shape = flat.pack(run.carry).shape[:-1]
    frame = jnp.broadcast_to(_first_frame(flat)[:, :num], (*batch_shape, flat.size, num))

    def advance(state, step):
        carry, frame, sums, count, index = state
        carry, jacobian = advance_with_jacobian(run, flat, carry, step)
        new_frame, triangle = jnp.linalg.qr(jacobian @ frame)
        growth = jnp.log(jnp.abs(jnp.diagonal(triangle, axis1=-2, axis2=-1)))
        # At a reset J is 0 and QR of zeros has no meaning: the frame must not be replaced by it.
        moves = jnp.ones(batch_shape, bool) if step.mask is None else step.mask
        if step.reset is not None:
            moves &= ~step.reset
        counts = moves & (index >= num_transient_steps)
        frame = select(moves, new_frame, frame)
        sums = select(counts, sums + growth, sums)
        return (carry, frame, sums, count + counts, index + 1), None

    zeros = jnp.zeros((*batch_shape, num), flat.dtype)
    state = (run.carry, frame, zeros, jnp.zeros(batch_shape, jnp.int32), 0)
    (_, _, sums, count, _), _ = lax.scan(advance, state, run.steps)
    # Largest first, NaN last.
    return -jnp.sort(-sums / count[..., None], axis=-1)


def _first_frame(flat):
    """Fixed random directions. Unit vectors would not do: a diagonal model keeps each of them."""
    draws = jax.random.normal(jax.random.key(0), (flat.size, flat.size), flat.dtype)
    return jnp.linalg.qr(draws)[0]
