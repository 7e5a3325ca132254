"""The size of a carry at every step: growth and collapse before the loss shows them."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.unroll import carries
from jaxrnn.types import Cell, Layer


def carry_norms(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
    key: Any = None,
) -> Any:
    """The norm of every leaf of the carry, after every step.

        ‖hₜ‖ = √Σᵢ |hₜᵢ|²

    Computed without squares that over- or underflow. Leaves of ints and bools count as numbers.

    Args:
        model: What to run; a layer must be causal.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`; a masked step repeats the norm before it.
        reset: `[..., T]`.
        time_major: xs, mask, reset and the result are `[T, ...]`.
        key: Randomness, as in `carries`.

    Returns:
        A tree like the carry, leaves `[..., T]`, real.

    Raises:
        ValueError: The layer is not causal, or shapes disagree.
        TypeError: Something is of another kind, class of tree or dtype than expected.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 2)
        >>> carry_norms(cell, params, jnp.array([[6.0, 8.0], [0.0, 0.0]])).h
        Array([5. , 2.5], dtype=float32)
    """
    all_carries = carries(
        model,
        params,
        xs,
        carry=carry,
        mask=mask,
        reset=reset,
        time_major=time_major,
        key=key,
    )
    xs = checks.arrays(xs, "xs")
    num_leading = len(checks.leading_shape(xs, model.num_feature_axes))
    return jax.tree.map(lambda leaf: norm(leaf, num_leading), all_carries)


def norm(leaf: jax.Array, num_leading: int) -> jax.Array:
    """√Σ |x|² over all axes behind the first `num_leading`, in at least float32."""
    flat = jnp.abs(leaf.reshape(*leaf.shape[:num_leading], -1))
    flat = flat.astype(jnp.promote_types(flat.dtype, jnp.float32))
    largest = flat.max(-1, keepdims=True, initial=0)
    # What is 0, infinite or NaN shows as it is.
    scale = jnp.where((largest > 0) & (largest < jnp.inf), largest, 1)
    return scale[..., 0] * jnp.sqrt(((flat / scale) ** 2).sum(-1))
