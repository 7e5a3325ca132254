"""The dtype of the recurrence: promote(params, float32), for the carry and all that enters it."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.types import Cell


def compute_dtype(params: Any) -> jnp.dtype:
    """The real dtype of the recurrence: promote(params, float32).

    Args:
        params: Any tree; only its floating and complex leaves count.

    Returns:
        float32, or float64 when any parameter is float64 or complex128.

    Example:
        >>> compute_dtype({"kernel": jnp.zeros((2, 3), jnp.bfloat16)})
        dtype('float32')
    """
    dtype = jnp.dtype(jnp.float32)
    for leaf in jax.tree.leaves(params):
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            dtype = jnp.promote_types(dtype, jnp.finfo(jnp.result_type(leaf)).dtype)
    return dtype


def project(cell: Cell, params: Any, xs: Any) -> Any:
    """The cell's projection in the dtype of the recurrence.

    This is the engine's one cast of what enters a recurrence: x, its product with the kernel and z
    run in promote(params, float32), so half-precision inputs accumulate in float32.
    """
    return in_compute_dtype(params, cell.project(params, in_compute_dtype(params, xs)))


def in_compute_dtype(params: Any, tree: Any) -> Any:
    """The real leaves of a tree in promote(params, float32), the complex ones in its complex."""
    return cast(tree, compute_dtype(params))


def cast(tree: Any, dtype: Any) -> Any:
    """The real leaves of a tree in a dtype, the complex ones in its complex, others as they are."""

    def leaf_cast(leaf):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            return leaf.astype(jnp.promote_types(dtype, jnp.complex64))
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(leaf_cast, tree)
