"""Singular values of long products of Jacobians, as logarithms.

The product is kept as W diag(exp(logs)) Vᵀ with orthonormal columns in W; V is not needed. After
multiplication by the next Jacobian the columns are no longer orthogonal, and Jacobi rotations of
pairs restore that. The rotation of a pair depends only on the ratio of its two scales. That ratio
may underflow to 0 without harm (the rotation is then a Gram-Schmidt step), so singular values of
every size keep their digits.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.diagnostics._jacobians import advance_with_jacobian, flat_carry
from jaxrnn.diagnostics._observe import observe
from jaxrnn.engine.masking import select
from jaxrnn.types import Carry, Mask, Model, Params, Reset

_MOST_SWEEPS = 40


def jacobian_spectrum(
    model: Model,
    params: Params,
    xs: Any,
    *,
    start: int = 0,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    time_major: bool = False,
) -> jax.Array:
    """Logarithms of the singular values of ∂hₜ / ∂hₖ, for every t and one k.

        ∂hₜ / ∂hₖ = Jₜ Jₜ₋₁ ⋯ Jₖ₊₁,   Jₜ = ∂hₜ / ∂hₜ₋₁

    The largest says how far a gradient can explode on its way from t to k, the smallest how far it
    must vanish. As logarithms they neither over- nor underflow, whatever the length. A masked
    step multiplies by I. A reset cuts the product: every value after it is -inf. Where a Jacobian
    is singular to rounding, values are -inf too, or very small. Every step takes a singular value
    decomposition, O(N³) each: seconds for N = 64 and T = 200.

    Args:
        model: the cell or layer to run; a layer must be causal.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`.
        start: k, the number of steps before the product starts; 0 is the carry given.
        carry, mask, reset, time_major: as in `unroll`; the result is `[T, ...]` with time_major.

    Returns:
        `[..., T, N]`, the largest first, 0 for the `start` steps before the product. N is the
        number of coordinates of the carry; a complex number is two, with equal values where the
        step is complex linear.

    Raises:
        ValueError: `start` is negative, the layer is not causal, or shapes disagree.
        TypeError: The carry holds no floating numbers, or an argument has the wrong type, tree
            structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> logs = jacobian_spectrum(cell, params, jnp.array([[2.0], [0.0], [4.0]]))
        >>> jnp.exp(logs)[:, 0]
        Array([0.5  , 0.25 , 0.125], dtype=float32)
    """
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ValueError(f"start must be an int of at least 0, got {start!r}.")
    logs = observe(_spectra, (start,), model, params, xs, carry, mask, reset, time_major)
    return logs if time_major else jnp.moveaxis(logs, 0, -2)


def _spectra(run, start):
    flat = flat_carry(run)
    batch_shape = flat.pack(run.carry).shape[:-1]

    def advance(state, step):
        carry, frame, logs, index = state
        carry, jacobian = advance_with_jacobian(run, flat, carry, step)
        moves = jnp.broadcast_to(index >= start, batch_shape)
        moves = moves if step.mask is None else moves & step.mask
        product = orthogonal_columns(jacobian @ frame, logs)
        frame, logs = select(moves, product, (frame, logs))
        return (carry, frame, logs, index + 1), -jnp.sort(-logs, axis=-1)

    num = flat.size
    frame = jnp.broadcast_to(jnp.eye(num, dtype=flat.dtype), (*batch_shape, num, num))
    logs = jnp.zeros((*batch_shape, num), flat.dtype)
    return lax.scan(advance, (run.carry, frame, logs, 0), run.steps)[1]


def orthogonal_columns(columns: jax.Array, logs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The singular value decomposition of columns · diag(exp(logs)), without its right factor.

    One-sided Jacobi (Hestenes 1958), which rotates disjoint pairs of columns until all are
    orthogonal. A sweep lets every column meet every other in K - 1 rounds of K / 2 pairs, and the
    pairs of a round are rotated at once.

    Args:
        columns: `[..., N, K]`.
        logs: `[..., K]`, may be -inf.

    Returns:
        Orthonormal columns (0 where the value is 0) and logarithms of the singular values, in
        no order; NaN if it has not converged.
    """
    num, batch_ndim = columns.shape[-1], columns.ndim - 2
    even = num + num % 2
    # Columns are kept as rows, and an odd number of them gets one more, of zeros.
    rows = _normal(
        jnp.pad(jnp.swapaxes(columns, -1, -2), [(0, 0)] * batch_ndim + [(0, even - num), (0, 0)]),
        jnp.pad(logs, [(0, 0)] * batch_ndim + [(0, even - num)], constant_values=-jnp.inf),
    )
    next_round = _next_round(even)
    tolerance = max(10, columns.shape[-2]) * jnp.finfo(columns.dtype).eps
    rounding = rows[1] + jnp.log(tolerance).astype(columns.dtype)

    def rotate_round(_, state):
        rows, rounding, worst = state
        vectors, logs, cosine = _rotate_pairs(*rows)
        # A column that has cancelled to rounding has no direction: it would be rotated for ever.
        alive = logs >= rounding
        rows = jnp.where(alive[..., None], vectors, 0), jnp.where(alive, logs, -jnp.inf)
        rows, rounding = jax.tree.map(reordered, (rows, rounding))
        return rows, rounding, jnp.maximum(worst, cosine)

    def reordered(leaf):
        return jnp.take(leaf, next_round, axis=batch_ndim)

    def sweep(state):
        rows, _, sweeps = state
        no_cosine = jnp.zeros_like(rows[1][..., 0])
        # After even - 1 rounds the rows are back in their order, so `rounding` fits them again.
        rows, _, worst = lax.fori_loop(0, even - 1, rotate_round, (rows, rounding, no_cosine))
        return rows, worst, sweeps + 1

    def unfinished(state):
        return jnp.any(state[1] > tolerance) & (state[2] < _MOST_SWEEPS)

    start = (rows, jnp.full_like(rows[1][..., 0], jnp.inf), 0)
    (vectors, logs), worst, _ = lax.while_loop(unfinished, sweep, start)
    logs = jnp.where(worst[..., None] <= tolerance, logs, jnp.nan)
    return jnp.swapaxes(vectors[..., :num, :], -1, -2), logs[..., :num]


def _rotate_pairs(vectors, logs):
    """Rotates row i of the first half with row i of the second; returns the largest |cos| too.

    For unit vectors b, s of scales β >= σ, ratio = σ / β and cosine = b · s, the rotation by
    tan φ = ratio · slope makes β b and σ s orthogonal. `slope` is found without dividing by the
    ratio: for ratio = 0 it is the cosine, and s - slope b is the Gram-Schmidt step.
    """
    half = logs.shape[-1] // 2
    larger = (logs[..., :half] >= logs[..., half:])[..., None]
    first, second = vectors[..., :half, :], vectors[..., half:, :]
    big, small = jnp.where(larger, first, second), jnp.where(larger, second, first)
    log_big = jnp.maximum(logs[..., :half], logs[..., half:])
    log_small = jnp.minimum(logs[..., :half], logs[..., half:])
    cosine = (big * small).sum(-1)
    ratio = jnp.where(log_small == -jnp.inf, 0, jnp.exp(log_small - log_big))
    gap = (1 - ratio) * (1 + ratio)
    bottom = gap + jnp.sqrt(gap**2 + (2 * ratio * cosine) ** 2)
    slope = jnp.where(bottom > 0, 2 * cosine / jnp.where(bottom > 0, bottom, 1), 0)
    shrink = 1 / jnp.sqrt(1 + (ratio * slope) ** 2)
    new_big = shrink[..., None] * (big + (ratio**2 * slope)[..., None] * small)
    small, log_small = _normal(shrink[..., None] * (small - slope[..., None] * big), log_small)
    big, log_big = _normal(new_big, log_big)
    # Every row keeps its position, since the order of the pairs is one of positions.
    rows = jnp.where(larger, big, small), jnp.where(larger, small, big)
    larger = larger[..., 0]
    logs = jnp.where(larger, log_big, log_small), jnp.where(larger, log_small, log_big)
    return jnp.concatenate(rows, -2), jnp.concatenate(logs, -1), jnp.abs(cosine).max(-1)


def _normal(vectors, logs):
    """The rows scaled to norm 1 (or 0), with their norms moved into the logarithms."""
    largest = jnp.abs(vectors).max(-1, keepdims=True)
    scaled = vectors / jnp.where(largest > 0, largest, 1)
    norm = jnp.sqrt((scaled**2).sum(-1, keepdims=True))
    unit = scaled / jnp.where(norm > 0, norm, 1)
    return unit, logs + (jnp.log(norm) + jnp.log(largest))[..., 0]


def _next_round(num: int) -> np.ndarray:
    """The permutation between two rounds: the circle method of a round-robin tournament.

    The first row stays where it is and the others rotate, so all pairs meet in num - 1 rounds.
    """
    half = num // 2
    top, bottom = list(range(half)), list(range(half, num))
    return np.array([top[0], *bottom[:1], *top[1:-1], *bottom[1:], *top[-1:]][:num])
