"""The size of a carry at every step: growth and collapse before the loss shows them."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.unroll import carries
from jaxrnn.types import Carry, Key, Mask, Model, Params, Reset


def carry_norms(
    model: Model,
    params: Params,
    xs: Any,
    *,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    time_major: bool = False,
    key: Key = None,
) -> Any:
    """The norm of every leaf of the carry, after every step.

        ‖hₜ‖ = √Σᵢ |hₜᵢ|²

    Computed without squares that over- or underflow. Leaves of ints and bools count as numbers. A
    masked step repeats the norm before it.

    Args:
        model: the cell or layer to run, as in `carries`.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`.
        carry, mask, reset, time_major, key: as in `carries`.

    Returns:
        A tree like the carry, leaves `[..., T]`, real.

    Raises:
        ValueError: The layer has no carries, or shapes disagree.
        TypeError: An argument has the wrong type, tree structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 2)
        >>> carry_norms(cell, params, jnp.array([[6.0, 8.0], [0.0, 0.0]])).h
        Array([5. , 2.5], dtype=float32)
    """
    flags = {"mask": mask, "reset": reset, "time_major": time_major}
    all_carries = carries(model, params, xs, carry=carry, key=key, **flags)
    xs = checks.arrays(xs, "xs")
    num_leading = len(checks.leading_shape(xs, model.num_feature_axes))
    return jax.tree.map(lambda leaf: norm(leaf, num_leading), all_carries)


def flat_features(leaf: jax.Array, num_leading: int) -> jax.Array:
    """The leaf with all axes after the first `num_leading` as one."""
    leading, features = leaf.shape[:num_leading], leaf.shape[num_leading:]
    # A size of -1 cannot be found out where there is no step.
    return leaf.reshape(*leading, math.prod(features))


def norm(leaf: jax.Array, num_leading: int) -> jax.Array:
    """√Σ |x|² over all axes after the first `num_leading`, in at least float32."""
    flat = jnp.abs(flat_features(leaf, num_leading))
    flat = flat.astype(jnp.promote_types(flat.dtype, jnp.float32))
    largest = flat.max(-1, keepdims=True, initial=0)
    # 0, infinity and NaN are not scaled by: they show as they are.
    scale = jnp.where((largest > 0) & (largest < jnp.inf), largest, 1)
    return scale[..., 0] * jnp.sqrt(((flat / scale) ** 2).sum(-1))
