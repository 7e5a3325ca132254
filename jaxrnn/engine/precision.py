"""The dtype of a recurrence, promote(params, float32), of its carry and of all that enters it."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.types import Cell, Params


def compute_dtype(params: Params) -> jnp.dtype:
    """The real dtype of the recurrence: promote(params, float32).

    Args:
        params: any tree; only its floating and complex leaves count.

    Returns:
        float32, or float64 when any parameter is float64 or complex128.

    Example:
        >>> compute_dtype({"kernel": jnp.zeros((2, 3), jnp.bfloat16)})
        dtype('float32')
    """
    dtype = jnp.dtype(jnp.float32)
    for leaf in jax.tree.leaves(params):
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            # `finfo` of a complex dtype has the dtype of its real and imaginary parts.
            dtype = jnp.promote_types(dtype, jnp.finfo(jnp.result_type(leaf)).dtype)
    return dtype


def project(cell: Cell, params: Params, xs: Any) -> Any:
    """The cell's projection in the dtype of the recurrence.

    This is where the scans of the engine cast what enters a recurrence: x, its product with
    the kernel, and z are in promote(params, float32), so half-precision inputs accumulate in
    float32.
    """
    # Cast twice: x before the product, which then accumulates in the wider dtype, and z after it,
    # because it may have leaves that are made of half-precision parameters alone.
    return in_compute_dtype(params, cell.project(params, in_compute_dtype(params, xs)))


def in_compute_dtype(params: Params, tree: Any) -> Any:
    """The tree in promote(params, float32), complex leaves in the complex dtype of that width."""
    return cast(tree, compute_dtype(params))


def cast(tree: Any, dtype: Any) -> Any:
    """The tree in a real dtype, complex leaves in the complex one of that width, ints unchanged."""

    def leaf_cast(leaf):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            return leaf.astype(jnp.promote_types(dtype, jnp.complex64))
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(leaf_cast, tree)
