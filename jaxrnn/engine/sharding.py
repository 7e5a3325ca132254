"""What `shard_map` asks of a scan: a carry that varies over the same mesh axes throughout."""

from typing import Any

import jax
from jax import lax


def varying_like(tree: Any, like: Any) -> Any:
    """The tree with its leaves varying over every mesh axis that a leaf of `like` varies over.

    Under `shard_map` a scan wants its carry to vary over the same axes before and after a step;
    zeros vary over none.
    """
    axes = frozenset().union(*map(_varying_axes, jax.tree.leaves(like)))

    def vary(leaf):
        missing = tuple(axes - _varying_axes(leaf))
        return _vary(leaf, missing) if missing else leaf

    return jax.tree.map(vary, tree)


# Both names have changed since jax 0.8, the oldest that is tested; without either nothing varies.
def _varying_axes(leaf):
    aval = jax.typeof(leaf)
    old = getattr(aval, "vma", frozenset())
    return getattr(getattr(aval, "manual_axis_type", None), "varying", old)


def _vary(leaf, axes):
    if hasattr(lax, "pcast"):
        return lax.pcast(leaf, axes, to="varying")
    return lax.pvary(leaf, axes)  # pyright: ignore[reportAttributeAccessIssue]
