"""The check of parameters: `params` must be what `init` of the model makes."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from jaxrnn.engine import checks
from jaxrnn.factories import ModelValue

# Two widths to compare where the inputs do not show theirs. Some models need a width that the
# number of their heads or blocks divides, which the second pair has for up to eight of them.
_WIDTHS_TO_COMPARE = ((1, 2), (840, 1680))
_KINDS = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)


def width_of(model: Any, xs: Any) -> int | None:
    """The `num_inputs` that inputs show: their last axis where x is one vector, else None."""
    if model.num_feature_axes != 1 or not hasattr(xs, "shape"):
        return None
    width = xs.shape[-1]
    # A symbolic dimension of an export has no number to make parameters for.
    return width if isinstance(width, int) else None


def check_params(model: ModelValue, params: Any, *widths: int | None, name: str = "params") -> None:
    """Raises unless `params` has the structure, shapes and kinds of dtype that `init` makes.

    Dtypes may differ within a kind, as float32 and bfloat16 do. Where one width is not known, the
    parameters must be those of any width that one of their sizes shows. A model whose `init`
    cannot be traced, because it reads the numbers of its key, is not compared at all.

    Args:
        model: a record with a field `init`, `(key, *widths) -> params`.
        params: a tree of arrays.
        *widths: the widths of the inputs; None is one that is not known.
        name: what the error calls the parameters.

    Raises:
        TypeError: The structure or the kind of a dtype differs, or a leaf is not an array.
        ValueError: A shape differs.
    """
    expected = expected_params(model, widths)
    leaves, structure = jax.tree.flatten(params)
    if expected is not None and structure != expected.structure:
        _check_structure(model, widths, params, expected, name)
        expected = None
    checks.array_leaves(params, name, leaves)
    # Compared at once first, because this runs in every eager call.
    if expected is None or expected.has_all(leaves):
        return
    wrong = expected.first_wrong(leaves)
    if wrong is None and None in widths:
        widths, expected = _with_a_width_shown(model, widths, expected, leaves)
        wrong = expected.first_wrong(leaves)
    if wrong is not None:
        _raise_for_leaf(params, wrong, expected.leaves[wrong], widths, name)


class Leaf(NamedTuple):
    """What is known of a parameter; None in the shape is a size that depends on the inputs."""

    shape: tuple[int | None, ...]
    kind: str

    def is_made_as(self, leaf: Any) -> bool:
        """Whether an array has this shape and a dtype of this kind."""
        return self.has_shape_of(leaf) and self.has_kind_of(leaf)

    def has_shape_of(self, leaf: Any) -> bool:
        """Whether an array has this shape."""
        shape = leaf.shape if isinstance(leaf, jax.Array) else np.shape(leaf)
        if shape == self.shape:
            return True
        sizes = zip(shape, self.shape, strict=False)
        return len(shape) == len(self.shape) and all(want in (None, size) for size, want in sizes)

    def has_kind_of(self, leaf: Any) -> bool:
        """Whether the dtype of an array is of this kind."""
        return (
            _kind(leaf.dtype if isinstance(leaf, jax.Array) else jnp.result_type(leaf)) == self.kind
        )


class ExpectedParams(NamedTuple):
    """What `init` makes: the tree of shapes, its structure and its leaves.

    `width_axes` are `(number of a leaf, axis)` of the sizes that are the one width not known.
    """

    tree: Any
    structure: Any
    leaves: tuple[Leaf, ...]
    shapes: list[tuple[int | None, ...]]
    kinds: list[str]
    width_axes: list[tuple[int, int]]

    def first_wrong(self, leaves: list[Any]) -> int | None:
        """The number of the first leaf that `init` does not make so; None if there is none."""
        pairs = zip(leaves, self.leaves, strict=True)
        return next((i for i, (leaf, want) in enumerate(pairs) if not want.is_made_as(leaf)), None)

    def has_all(self, leaves: list[Any]) -> bool:
        """Whether all are arrays with exactly these shapes, and with dtypes of these kinds."""
        try:
            return self.shapes == [leaf.shape for leaf in leaves] and self.kinds == [
                _kind(leaf.dtype) for leaf in leaves
            ]
        except AttributeError:  # Of a number.
            return False


# As many as there are compiled programs, for the same reason.
@functools.lru_cache(maxsize=128)
def expected_params(model: Any, widths: tuple[int | None, ...]) -> ExpectedParams | None:
    """What `init` makes for these widths; None where that cannot be found out.

    Args:
        model: a record with a field `init`, `(key, *widths) -> params`.
        widths: the widths of the inputs; None is one that is not known.

    Returns:
        What is known of the parameters.
    """
    if None not in widths:
        tree = _traced_init(model, widths)
        return None if tree is None else _expected(tree, tree)
    for numbers in _WIDTHS_TO_COMPARE:
        trees = [
            _traced_init(model, tuple(number if width is None else width for width in widths))
            for number in numbers
        ]
        if None not in trees and jax.tree.structure(trees[0]) == jax.tree.structure(trees[1]):
            return _expected(trees[0], trees[1], numbers if widths.count(None) == 1 else None)
    return None


def _with_a_width_shown(model, widths, expected, leaves):
    """The widths with the one that the parameters fit, and what `init` makes for them.

    An `init` may also make a size that only resembles the width, such as min(width, 16). So all
    are tried, the largest first, and where one cannot be, nothing more is known than before.
    """
    sizes = {np.shape(leaves[number])[axis] for number, axis in expected.width_axes}
    tried = []
    for size in sorted(sizes, reverse=True):
        shown = tuple(size if width is None else width for width in widths)
        made = expected_params(model, shown)
        if made is None or made.structure != expected.structure:
            return widths, expected
        tried.append((shown, made))
    fitting = (one for one in tried if one[1].first_wrong(leaves) is None)
    return next(fitting, tried[0] if tried else (widths, expected))


def _traced_init(model, widths):
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        return jax.eval_shape(lambda key: model.init(key, *widths), key)
    # Whatever an `init` of a user raises, it says nothing about the parameters that were given.
    except Exception:
        return None


def _expected(tree, other, numbers=None):
    def leaf(one, two):
        sizes = zip(one.shape, two.shape, strict=False)
        known = tuple(size if size == other_size else None for size, other_size in sizes)
        return Leaf(known, _kind(one.dtype))

    leaves = tuple(map(leaf, jax.tree.leaves(tree), jax.tree.leaves(other)))
    shapes, kinds = ([*part] for part in zip(*leaves, strict=True)) if leaves else ([], [])
    width_axes = [
        (number, axis)
        for number, pair in enumerate(zip(*map(jax.tree.leaves, (tree, other)), strict=True))
        for axis, sizes in enumerate(zip(*(one.shape for one in pair), strict=False))
        if sizes == numbers
    ]
    return ExpectedParams(tree, jax.tree.structure(tree), leaves, shapes, kinds, width_axes)


@functools.cache
def _kind(dtype) -> str:
    """The kind of a dtype, within which parameters may be cast; another one is only its own."""
    kinds = (kind.__name__ for kind in _KINDS if jnp.issubdtype(dtype, kind))
    return next(kinds, str(dtype))


def _check_structure(model, widths, params, expected, name):
    again = _traced_init(model, tuple(1 if width is None else width for width in widths))
    if jax.tree.structure(again) != expected.structure:
        return  # A class that is not equal to itself, such as one that holds a new function.
    path, came, wanted = _first_difference(params, expected.tree, ())
    name = f"{name}{keystr(path)}"
    must = f"be {_written(wanted)} as init makes it"
    if _children(wanted):
        must = f"have the structure {_written(wanted)} that init makes"
    raise TypeError(f"{name} must {must}, got {_written(came)}.")


def _raise_for_leaf(params, number, want, widths, name):
    path, leaf = tree_flatten_with_path(params)[0][number]
    name = f"{name}{keystr(path)}"
    if not want.has_shape_of(leaf):
        shape = str(want.shape).replace("None", "*")
        known = " and ".join(str(width) for width in widths if width is not None)
        inputs = f" for inputs of width {known}" if known else ""
        raise ValueError(
            f"{name} must have the shape {shape} that init makes{inputs}, got {np.shape(leaf)}."
        )
    raise TypeError(
        f"{name} must be {want.kind} as init makes it, got the dtype {jnp.result_type(leaf)}."
    )


def _first_difference(came, wanted, path):
    """The first node at which two trees differ: its path, and what each of them has there."""
    children, wanted_children = _children(came), _children(wanted)
    if type(came) is type(wanted) and children.keys() == wanted_children.keys():
        for key, child in children.items():
            other = wanted_children[key]
            if jax.tree.structure(child) != jax.tree.structure(other):
                return _first_difference(child, other, (*path, key))
    return path, came, wanted


def _children(tree):
    """The children of a node by their keys; none of an array."""
    entries = tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0]
    return {path[0]: child for path, child in entries if path}


def _written(tree):
    if hasattr(tree, "shape"):
        return f"an array {tuple(tree.shape)}"
    if isinstance(tree, list):
        return "a list"
    return str(jax.tree.structure(tree)) if _children(tree) else repr(tree)
