"""Readable names for the leaves of a tree."""

from typing import Any

import jax


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree with their paths, `0.forward.kernel`; one leaf alone is `params`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [
        (jax.tree_util.keystr(path, simple=True, separator=".") or "params", leaf)
        for path, leaf in leaves
    ]


def by_name(tree: Any) -> dict[str, Any]:
    """The leaves of a tree as a flat dict.

    Raises:
        ValueError: if two leaves have the same name.
    """
    leaves = named_leaves(tree)
    named = dict(leaves)
    if len(named) < len(leaves):
        names = [name for name, _ in leaves]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the tree must have one leaf for each name, got two of {twice!r}")
    return named


def from_names(named: dict[str, Any], like: Any) -> Any:
    """The tree like another whose leaves are those of a flat dict."""
    leaves = [named[name] for name, _ in named_leaves(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
