"""A cast for `shard_map`, under which the carry of a scan may not change its mesh axes."""

from typing import Any

import jax
from jax import lax


def varying_like(tree: Any, like: Any) -> Any:
    """The tree with its leaves varying over every mesh axis that a leaf of `like` varies over.

    Args:
        tree: arrays to cast, the carry before a scan for example.
        like: all arrays that a step reads; what they vary over, the carry after a step varies over.

    Returns:
        The tree with the same values; outside of `shard_map` the tree itself.
    """
    # Under `shard_map` a type says over which mesh axes a value may differ between devices. An
    # initial carry of zeros is the same everywhere; after one step with sharded inputs it is not,
    # and a scan refuses a carry whose type changes. So it is cast to its later type beforehand.
    axes = frozenset().union(*map(_varying_axes, jax.tree.leaves(like)))

    def vary(leaf):
        missing = tuple(axes - _varying_axes(leaf))
        return _vary(leaf, missing) if missing else leaf

    return jax.tree.map(vary, tree)


# Both names have changed since jax 0.8, the oldest version that is tested. An array that has
# neither attribute varies over no axis.
def _varying_axes(leaf):
    aval = jax.typeof(leaf)
    old = getattr(aval, "vma", frozenset())
    return getattr(getattr(aval, "manual_axis_type", None), "varying", old)


def _vary(leaf, axes):
    if hasattr(lax, "pcast"):
        return lax.pcast(leaf, axes, to="varying")
    return lax.pvary(leaf, axes)  # pyright: ignore[reportAttributeAccessIssue]
