"""Functions of a carry between two calls: detach it, select it by row, repeat it over a batch."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import select
from jaxrnn.types import Carry


def detach(carry: Carry) -> Carry:
    """Keeps the values of a carry and cuts its derivative.

    Args:
        carry: any tree of arrays.

    Returns:
        The same values, through which no gradient passes. Detaching is not resetting.

    Example:
        >>> jax.grad(lambda h: (detach(h) * h))(jnp.float32(3.0))
        Array(3., dtype=float32)
    """
    return jax.tree.map(lax.stop_gradient, carry)


def select_carry(flag: Any, yes: Carry, no: Carry) -> Carry:
    """Takes the carry `yes` in the rows where `flag` is True and `no` in the others.

    Args:
        flag: bool `[*batch]`.
        yes: a carry with leaves `[*batch, ...]`.
        no: a carry like `yes`.

    Returns:
        A carry like `yes`; NaN in the carry that is not taken reaches nothing.

    Raises:
        TypeError: `flag` is not bool, or the carries differ in structure or dtypes.
        ValueError: The carries differ in shape, or the shape of `flag` is not how theirs begin.

    Example:
        >>> select_carry(jnp.array([True, False]), jnp.ones(2), jnp.array([jnp.nan, 5.0]))
        Array([1., 5.], dtype=float32)
    """
    flag = checks.array(flag, "flag")
    if flag.dtype != bool:
        raise TypeError(f"flag must be bool, got {flag.dtype}.")
    yes, no = checks.arrays(yes, "yes"), checks.arrays(no, "no")
    checks.same_tree(yes, no, "yes")
    for leaf in jax.tree.leaves(yes):
        if np.shape(leaf)[: flag.ndim] != flag.shape:
            raise ValueError(
                f"flag must have the leading axes of every leaf, got the shape {flag.shape} "
                f"for a leaf of shape {np.shape(leaf)}."
            )
    return select(flag, yes, no)


def broadcast_carry(carry: Carry, batch_shape: tuple[int, ...]) -> Carry:
    """Repeats a carry without batch axes over a batch.

    Args:
        carry: a carry with leaves `[...]`.
        batch_shape: sizes of the batch axes.

    Returns:
        The carry with leaves `[*batch, ...]`.

    Example:
        >>> broadcast_carry(jnp.array([1.0, 2.0]), (3,)).shape
        (3, 2)
    """
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*batch_shape, *np.shape(leaf))), carry)
