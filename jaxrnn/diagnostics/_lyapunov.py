"""Lyapunov exponents: how fast nearby carries part, for each direction."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.diagnostics._flat_carry import advance_with_jacobian, vectors
from jaxrnn.diagnostics._observe import each_step, observe
from jaxrnn.engine import checks
from jaxrnn.engine.masking import select
from jaxrnn.types import Cell, Layer


def lyapunov_exponents(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    num_exponents: int | None = None,
    num_transient_steps: int = 0,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
) -> jax.Array:
    """The Lyapunov exponents of a run, nats per step, the largest one first.

        Jₜ Qₜ₋₁ = Qₜ Rₜ,   λᵢ = mean over t of log |Rₜ[i, i]|

    Benettin et al. 1980: the frame Q is made orthonormal anew at every step, so nothing over- or
    underflows. Above 0 gradients explode along that direction, below 0 they vanish, and exp(-λ)
    steps is how long it remembers. Q starts at fixed random directions; until it has turned to the
    right ones the mean is off by O(1 / T), which `num_transient_steps` leaves out. Masked steps do
    not count. A step with a reset has no derivative to the carry before it: it is left out, and
    the frame goes on from there. A direction that a step maps to zero has the exponent -inf, or
    as much as rounding leaves of it.

    Args:
        model: What to run; a layer must be causal.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`.
        num_exponents: How many, the largest ones; None is all N coordinates of the carry (a
            complex number is two).
        num_transient_steps: Steps at the start that turn the frame and are not averaged.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`.
        reset: `[..., T]`.
        time_major: xs, mask and reset are `[T, ...]`.

    Returns:
        `[..., num_exponents]`; NaN for a row where no step counts.

    Raises:
        ValueError: A number is out of range, the layer is not causal, or shapes disagree.
        TypeError: The carry holds no floating numbers, or something is of another kind, class of
            tree or dtype than expected.

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
    return observe(
        model,
        params,
        xs,
        _exponents,
        num_exponents,
        num_transient_steps,
        carry=carry,
        mask=mask,
        reset=reset,
        time_major=time_major,
    )


def _exponents(run, num_exponents, num_transient_steps):
    packing = vectors(run)
    num = packing.num if num_exponents is None else num_exponents
    if num > packing.num:
        raise ValueError(f"num_exponents must be at most {packing.num}, got {num}.")
    batch_shape = packing.pack(run.carry).shape[:-1]
    frame = jnp.broadcast_to(_first_frame(packing)[:, :num], (*batch_shape, packing.num, num))

    def advance(state, inputs):
        carry, frame, sums, count, index = state
        carry, jacobian = advance_with_jacobian(run, packing, carry, inputs)
        _, mask, reset = inputs
        turned, triangle = jnp.linalg.qr(jacobian @ frame)
        growth = jnp.log(jnp.abs(jnp.diagonal(triangle, axis1=-2, axis2=-1)))
        moves = jnp.ones(batch_shape, bool) if mask is None else mask
        if reset is not None:
            moves &= ~reset
        counts = moves & (index >= num_transient_steps)
        frame = select(moves, turned, frame)
        sums = select(counts, sums + growth, sums)
        return (carry, frame, sums, count + counts, index + 1), None

    zeros = jnp.zeros((*batch_shape, num), packing.dtype)
    state = (run.carry, frame, zeros, jnp.zeros(batch_shape, jnp.int32), 0)
    (_, _, sums, count, _), _ = each_step(advance, state, run)
    # Largest first, NaN last.
    return -jnp.sort(-sums / count[..., None], axis=-1)


def _first_frame(packing):
    """Fixed directions that are special to no model, as the unit vectors are."""
    draws = jax.random.normal(jax.random.key(0), (packing.num, packing.num), packing.dtype)
    return jnp.linalg.qr(draws)[0]
