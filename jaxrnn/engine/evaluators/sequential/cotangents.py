"""Trees of cotangents: their floating leaves, their sums, and which of them are needed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine.masking import Restart, select


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf is floating or complex, so that it has a cotangent of its own dtype."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def floats(tree: Any) -> list[Any]:
    """The floating and complex leaves of a tree."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_inexact(leaf)]


def with_floats(tree: Any, leaves: Iterable[Any]) -> Any:
    """The tree with other floating leaves, and None for the rest: a cotangent of zero."""
    rest = iter(leaves)
    return jax.tree.map(lambda leaf: next(rest) if is_inexact(leaf) else None, tree)


def add(*trees: Any) -> Any:
    """The sum of trees, leaf by leaf; a tree that is None counts as zero."""
    some = [tree for tree in trees if tree is not None]
    return jax.tree.map(lambda leaf, *more: sum(more, leaf), *some)


def add_some(tree: Any, more: Sequence[Any]) -> Any:
    """Adds to each leaf its entry of a list; an entry that is None counts as zero."""
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(map(add, leaves, more))


def split_by(flag: Any, cotangent: Any) -> tuple[Any, Any]:
    """The transpose of `select`: a cotangent with zeros where the flag is False, and where True."""
    # Selected, not multiplied: a cotangent that is NaN must not reach the other side.
    zeros = jax.tree.map(jnp.zeros_like, cotangent)
    return select(flag, cotangent, zeros), select(flag, zeros, cotangent)


def add_fresh(of_initial: Any, of_carry: Any, reset: Any) -> tuple[Any, Any]:
    """The transpose of `restarted`: adds to the cotangent of `initial`, and what is left."""
    if not isinstance(reset, Restart):
        of_fresh, of_carry = split_by(reset, of_carry)
        return add(of_initial, of_fresh), of_carry
    of_fresh, of_carry = split_by(reset.flag, of_carry)
    # Row by row into the entry of the step; the rest of the starts is not touched.
    entry = reset.number, *jnp.indices(reset.number.shape, sparse=True)
    added = jax.tree.map(lambda leaf, more: leaf.at[entry].add(more), of_initial, of_fresh)
    return added, of_carry


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
