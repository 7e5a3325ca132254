"""Singular values of long products of Jacobians, as logarithms.

The product is kept as W diag(exp(logs)) Vᵀ with orthonormal columns in W; V does not matter.
Multiplied by the next Jacobian the columns are no longer orthogonal, and Jacobi rotations of pairs
make them so again. A pair is rotated knowing only the ratio of its scales, which may underflow to
0 without harm (the rotation is then a step of Gram and Schmidt), so singular values of
every size keep their digits.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.diagnostics._flat_carry import advance_with_jacobian, vectors
from jaxrnn.diagnostics._observe import each_step, observe, time_back
from jaxrnn.engine.masking import select
from jaxrnn.types import Cell, Layer

_MOST_SWEEPS = 40


def jacobian_spectrum(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    start: int = 0,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
) -> jax.Array:
    """Logarithms of the singular values of ∂hₜ / ∂hₖ, for every t and one k.

        ∂hₜ / ∂hₖ = Jₜ Jₜ₋₁ ⋯ Jₖ₊₁,   Jₜ = ∂hₜ / ∂hₜ₋₁

    The largest says how far a gradient can explode on its way from t to k, the smallest how far it
    must vanish. As logarithms they neither over- nor underflow, whatever the length. A masked
    step multiplies by I. A reset cuts the product: everything behind it is -inf. Where a Jacobian
    is singular to rounding, values are -inf too, or what rounding leaves of them. Every step
    takes a singular value decomposition of its own, O(N³) each: seconds for N = 64 and T = 200.

    Args:
        model: What to run; a layer must be causal.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`.
        start: k, the number of steps before the product starts; 0 is the carry given.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`.
        reset: `[..., T]`.
        time_major: xs, mask, reset and the result are `[T, ...]`.

    Returns:
        `[..., T, N]`, the largest first, 0 for the `start` steps before the product. N is the
        number of coordinates of the carry; a complex number is two, with equal values where the
        step is complex linear.

    Raises:
        ValueError: `start` is negative, the layer is not causal, or shapes disagree.
        TypeError: The carry holds no floating numbers, or something is of another kind, class of
            tree or dtype than expected.

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
    logs = observe(
        model,
        params,
        xs,
        _spectra,
        start,
        carry=carry,
        mask=mask,
        reset=reset,
        time_major=time_major,
    )
    return time_back(logs, 1, time_major)


def _spectra(run, start):
    packing = vectors(run)
    batch_shape = packing.pack(run.carry).shape[:-1]

    def advance(state, inputs):
        carry, frame, logs, index = state
        carry, jacobian = advance_with_jacobian(run, packing, carry, inputs)
        _, mask, _ = inputs
        moves = jnp.broadcast_to(index >= start, batch_shape)
        moves = moves if mask is None else moves & mask
        product = orthogonal_columns(jacobian @ frame, logs)
        frame, logs = select(moves, product, (frame, logs))
        return (carry, frame, logs, index + 1), -jnp.sort(-logs, axis=-1)

    num = packing.num
    frame = jnp.broadcast_to(jnp.eye(num, dtype=packing.dtype), (*batch_shape, num, num))
    logs = jnp.zeros((*batch_shape, num), packing.dtype)
    return each_step(advance, (run.carry, frame, logs, 0), run)[1]


def orthogonal_columns(columns: jax.Array, logs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The singular value decomposition of columns · diag(exp(logs)), without its right factor.

    One-sided Jacobi (Hestenes 1958) in an order of pairs that rotates N / 2 of them at once.

    Args:
        columns: `[..., N, K]`.
        logs: `[..., K]`, may be -inf.

    Returns:
        Orthonormal columns (0 where the value is 0) and logarithms of the singular values, in
        no order; NaN if it has not converged.
    """
    num, batch_ndim = columns.shape[-1], columns.ndim - 2
    even = num + num % 2
    rows = _normal(
        jnp.pad(jnp.swapaxes(columns, -1, -2), [(0, 0)] * batch_ndim + [(0, even - num), (0, 0)]),
        jnp.pad(logs, [(0, 0)] * batch_ndim + [(0, even - num)], constant_values=-jnp.inf),
    )
    circle = _circle(even)
    tolerance = max(10, columns.shape[-2]) * jnp.finfo(columns.dtype).eps
    least = rows[1] + jnp.log(tolerance).astype(columns.dtype)

    def meet(_, state):
        rows, least, worst = state
        vectors, logs, cosine = _rotate_pairs(*rows)
        # What has cancelled to rounding has no direction; kept, it would be rotated for ever.
        alive = logs >= least
        rows = jnp.where(alive[..., None], vectors, 0), jnp.where(alive, logs, -jnp.inf)
        rows, least = jax.tree.map(place, (rows, least))
        return rows, least, jnp.maximum(worst, cosine)

    def place(leaf):
        return jnp.take(leaf, circle, axis=batch_ndim)

    def sweep(state):
        rows, _, sweeps = state
        nothing = jnp.zeros_like(rows[1][..., 0])
        rows, _, worst = lax.fori_loop(0, even - 1, meet, (rows, least, nothing))
        return rows, worst, sweeps + 1

    def unfinished(state):
        return jnp.any(state[1] > tolerance) & (state[2] < _MOST_SWEEPS)

    start = (rows, jnp.full_like(rows[1][..., 0], jnp.inf), 0)
    (vectors, logs), worst, _ = lax.while_loop(unfinished, sweep, start)
    logs = jnp.where(worst[..., None] <= tolerance, logs, jnp.nan)
    return jnp.swapaxes(vectors[..., :num, :], -1, -2), logs[..., :num]


def _rotate_pairs(vectors, logs):
    """Rotates row i of the first half with row i of the second; the largest |cos| there was."""
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
    turned = shrink[..., None] * (big + (ratio**2 * slope)[..., None] * small)
    small, log_small = _normal(shrink[..., None] * (small - slope[..., None] * big), log_small)
    big, log_big = _normal(turned, log_big)
    # Every row stays in its place: the order of pairs is one of places.
    rows = jnp.where(larger, big, small), jnp.where(larger, small, big)
    larger = larger[..., 0]
    logs = jnp.where(larger, log_big, log_small), jnp.where(larger, log_small, log_big)
    return jnp.concatenate(rows, -2), jnp.concatenate(logs, -1), jnp.abs(cosine).max(-1)


def _normal(vectors, logs):
    """The rows with norm 1, or 0, and their norms in the logarithms."""
    largest = jnp.abs(vectors).max(-1, keepdims=True)
    scaled = vectors / jnp.where(largest > 0, largest, 1)
    norm = jnp.sqrt((scaled**2).sum(-1, keepdims=True))
    unit = scaled / jnp.where(norm > 0, norm, 1)
    return unit, logs + (jnp.log(norm) + jnp.log(largest))[..., 0]


def _circle(num: int) -> np.ndarray:
    """The permutation after which all pairs have met in num - 1 rounds: one row stays put."""
    half = num // 2
    top, bottom = list(range(half)), list(range(half, num))
    return np.array([top[0], *bottom[:1], *top[1:-1], *bottom[1:], *top[-1:]][:num])
