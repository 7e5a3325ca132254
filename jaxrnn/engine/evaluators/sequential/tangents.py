"""Tangents as lists of leaves, in which None is a tangent of zero."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxrnn.types import Array


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf is floating or complex, so that it has a tangent of its own dtype."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def nonzero(tangents: Any) -> list[Array | None]:
    """The leaves of the tangents that a custom rule is given, None where JAX knows them as zero."""
    leaves = jax.tree.leaves(tangents)
    return [None if isinstance(leaf, SymbolicZero) else _or_none(leaf) for leaf in leaves]


def instantiated(tangents: Sequence[Array | None], primals: Any) -> Any:
    """A tree like `primals` of the tangents, with zeros for those that are None."""
    leaves, tree = jax.tree.flatten(primals)
    pairs = zip(tangents, leaves, strict=True)
    return tree.unflatten(_zeros(leaf) if dot is None else dot for dot, leaf in pairs)


def push(
    function: Callable[..., Any], primals: tuple[Any, ...], tangents: Sequence[Array | None]
) -> list[Array | None]:
    """The tangents of the leaves of `function(*primals)`, from those of the leaves of `primals`."""
    leaves, tree = jax.tree.flatten(primals)
    has_tangent = [dot is not None for dot in tangents]

    # Of the leaves with a tangent alone: `jvp` would need an array of zeros for each of the others.
    def of_some(some):
        return jax.tree.leaves(function(*tree.unflatten(merge(has_tangent, some, leaves))))

    some = [leaf for leaf, has in zip(leaves, has_tangent, strict=True) if has]
    some_dots = [dot for dot in tangents if dot is not None]
    return list(map(_or_none, jax.jvp(of_some, (some,), (some_dots,))[1]))


def add(first: Sequence[Array | None], second: Sequence[Array | None]) -> list[Array | None]:
    """The sum of two lists of tangents."""
    pairs = zip(first, second, strict=True)
    return [b if a is None else a if b is None else a + b for a, b in pairs]


def merge(flags: Sequence[bool], where_true: Iterable[Any], elsewhere: Sequence[Any]) -> list[Any]:
    """A list like `elsewhere` whose entries with a True flag are those of `where_true` in turn."""
    rest = iter(where_true)
    return [next(rest) if flag else other for flag, other in zip(flags, elsewhere, strict=True)]


def which_are_read(function: Callable[[Any], Any], leaves: Sequence[Any]) -> list[bool]:
    """For each leaf of a list, whether `function(list)` reads it."""
    # From the text of the program, so a leaf may count as read that has no influence (one that is
    # passed to an inner function which ignores it), and never the other way round.
    jaxpr = jax.make_jaxpr(function)(leaves).jaxpr
    read = {id(var) for equation in jaxpr.eqns for var in equation.invars}
    read |= set(map(id, jaxpr.outvars))
    return [id(var) in read for var in jaxpr.invars]


def _or_none(tangent):
    # The tangent of an int has the dtype float0 and is always zero.
    return None if tangent.dtype == jax.dtypes.float0 else tangent


def _zeros(leaf):
    return jnp.zeros_like(leaf) if is_inexact(leaf) else np.zeros(leaf.shape, jax.dtypes.float0)
