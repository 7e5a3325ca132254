"""Checks of arguments that can be made while a function is traced; the errors name the argument."""

import inspect
import math
import reprlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import symbolic_shape
from jax.tree_util import keystr

from jaxrnn.types import Cell, Split

_SYMBOL = type(symbolic_shape("t")[0])
_ARRAYS = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)


def is_cell(cell: Any) -> None:
    """Raises TypeError unless `cell` is a Cell."""
    if not isinstance(cell, Cell):
        raise TypeError(f"cell must be a Cell, got {type(cell).__name__}.")


def split_of(cell: Any) -> Split:
    """Returns the `Split` of a cell, and raises TypeError for anything without one."""
    is_cell(cell)
    if not isinstance(cell.advance, Split):
        raise TypeError(
            "cell must have a Split as its advance, which says what the recurrent parameters read, "
            f"got {cell!r}."
        )
    return cell.advance


def integer(value: Any, name: str) -> int:
    """Returns `value` if it is an int, and raises otherwise, also for a bool."""
    # In Python True is an int, but a count of True is a mistake.
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}.")
    return int(value)


def positive(value: Any, name: str) -> int:
    """Returns `value` if it is an int of at least 1, and raises otherwise."""
    if integer(value, name) < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")
    return int(value)


def fraction(value: Any, name: str) -> float:
    """Returns `value` if it is a number in [0, 1), and raises otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a float, got {value!r} of type {type(value).__name__}.")
    if not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value}.")
    return float(value)


def function(value: Any, name: str) -> Any:
    """Returns `value` if it can be called, and raises otherwise."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {value!r}.")
    return value


def above_zero(value: Any, name: str) -> float:
    """Returns `value` if it is a number above 0, and raises otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a float, got {value!r} of type {type(value).__name__}.")
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value}.")
    return float(value)


def not_negative(value: Any, name: str) -> float:
    """Returns `value` if it is a finite number of at least 0, and raises otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a float, got {value!r} of type {type(value).__name__}.")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and not below 0, got {value}.")
    return float(value)


def evaluator(evaluate: Any, name: str) -> None:
    """Raises TypeError unless `evaluate` can be called as an Evaluator."""
    try:
        signature = inspect.signature(evaluate)
        # Four words in place of the arguments: only whether the call fits the signature is tested.
        signature.bind(*"cell params carry steps".split())
        # A factory such as `newton`, whose call was forgotten, takes four arguments and needs none.
        fits = any(p.default is p.empty for p in signature.parameters.values())
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise TypeError(
            f"{name} must be an Evaluator, (cell, params, carry, steps) -> Rollout, "
            f"such as sequential(); got {evaluate!r}."
        )
    hashable(evaluate, name)


def hashable(value: Any, name: str) -> None:
    """Raises TypeError unless the value has a hash, so that it can be compiled for."""
    try:
        hash(value)
    except TypeError as error:
        raise TypeError(
            f"{name} must be hashable, because what is compiled is kept for it (a function, or a "
            f"frozen dataclass of numbers and words); got {value!r}."
        ) from error


def evaluates(evaluate: Any, cell: Cell) -> None:
    """Raises if the evaluator cannot evaluate the cell; those without `check_cell` raise later."""
    if hasattr(evaluate, "check_cell"):
        evaluate.check_cell(cell)


def is_symbolic(size: Any) -> bool:
    """Whether a size is a symbol of `jax.export`, a number only when the program runs."""
    return isinstance(size, _SYMBOL)


def boolean(value: Any, name: str) -> bool:
    """Returns `value` if it is a bool, and raises otherwise, also for a traced one."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def one_array(value: Any, name: str) -> Any:
    """Returns `value` if it is an array of JAX or numpy, and raises for a tree of them."""
    if not isinstance(value, jax.Array | np.ndarray):
        raise TypeError(f"{name} must be one array, got {value!r}.")
    return value


def width(xs: Any, kernel: Any) -> None:
    """Raises unless `xs` `[..., D]` has as many features as `kernel` `[D, ...]` has rows."""
    one_array(xs, "xs")
    if np.ndim(xs) == 0 or np.shape(xs)[-1] != kernel.shape[0]:
        raise ValueError(
            f"xs must have the width {kernel.shape[0]} of the kernel {kernel.shape}, "
            f"got the shape {np.shape(xs)}."
        )


def same_tree(came: Any, expected: Any, name: str) -> None:
    """Raises unless `came` has the structure, shapes and dtypes of `expected`.

    Args:
        came: the tree that was given or returned.
        expected: a tree of arrays or of `jax.ShapeDtypeStruct`.
        name: what the error calls the tree.

    Raises:
        TypeError: The structures, including the classes of nodes, or the dtypes differ.
        ValueError: The shapes differ.
    """
    structure, wanted = jax.tree.structure(came), jax.tree.structure(expected)
    if structure != wanted:
        raise TypeError(f"{name} must have the structure {wanted}, got {structure}.")
    paths = jax.tree_util.tree_flatten_with_path(expected)[0]
    for (path, want), leaf in zip(paths, jax.tree.leaves(came), strict=True):
        leaf_name = f"{name}{keystr(path)}"
        if np.shape(leaf) != want.shape:
            raise ValueError(f"{leaf_name} must have the shape {want.shape}, got {np.shape(leaf)}.")
        if jnp.result_type(leaf) != want.dtype:
            raise TypeError(
                f"{leaf_name} must have the dtype {want.dtype}, got {jnp.result_type(leaf)}."
            )


def is_array(leaf: Any) -> bool:
    """Whether JAX takes it as an array: one of JAX or numpy, or a number."""
    return isinstance(leaf, _ARRAYS) or hasattr(leaf, "__jax_array__")


def array_leaves(tree: Any, name: str, leaves: list[Any] | None = None) -> None:
    """Raises TypeError for a leaf that is not an array, and for a list of numbers.

    Args:
        tree: any tree.
        name: what the error calls the tree.
        leaves: its leaves, where they are known.

    Raises:
        TypeError: With the path of the leaf.
    """
    leaves = jax.tree.leaves(tree) if leaves is None else leaves
    # Without the paths, because this runs in every eager call; a number may be one of a list.
    if all(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves):
        return
    paths = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_list_of_numbers)[0]
    for path, leaf in paths:
        if not is_array(leaf):
            raise TypeError(
                f"{name}{keystr(path)} must be an array of jax or numpy, such as numpy.asarray "
                f"makes, got {_shown(leaf)}."
            )


def arrays(tree: Any, name: str) -> Any:
    """The tree with every leaf as an array; raises TypeError for a leaf that is not one."""
    array_leaves(tree, name)
    try:
        return jax.tree.map(jnp.asarray, tree)
    # An array of numpy may hold strings or objects.
    except TypeError as error:
        raise TypeError(f"{name} must be a tree of arrays, got {tree!r}.") from error


def array(values: Any, name: str) -> Any:
    """One array, also from a list of numbers; raises TypeError for anything else."""
    array_or_list(values, name)
    try:
        return jnp.asarray(values)
    # Of a list with rows of several lengths, or an array of numpy that holds strings.
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array, got {values!r}.") from error


def array_or_list(values: Any, name: str) -> None:
    """Raises TypeError unless the values are an array, or numbers in a list or tuple."""
    is_listed = isinstance(values, list | tuple)
    array_leaves(tuple(jax.tree.leaves(values)) if is_listed else values, name)


def _shown(leaf):
    kind = type(leaf)
    if kind is list:
        return "a list of numbers"
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return f"{name} {reprlib.repr(leaf)}"


def _is_list_of_numbers(node):
    """Whether a node is a list that somebody wrote in the place of an array."""
    if not isinstance(node, list) or not node:
        return False
    return all(isinstance(one, int | float | complex) or _is_list_of_numbers(one) for one in node)


def spread(prefix: Any, tree: Any, name: str, tree_name: str) -> Any:
    """The prefix with every leaf repeated for all leaves below it in the tree.

    Args:
        prefix: a tree whose leaves are nodes or leaves of the other tree.
        tree: any tree.
        name: what the error calls the prefix.
        tree_name: what the error calls the tree.

    Returns:
        A tree like `tree`.

    Raises:
        TypeError: The prefix does not fit.
    """
    try:
        return jax.tree.broadcast(prefix, tree)
    except ValueError as error:
        raise TypeError(
            f"{name} must be one value or fit {tree_name}, whose structure is "
            f"{jax.tree.structure(tree)}; got {prefix!r}."
        ) from error


def leading_shape(
    xs: Any, num_feature_axes: Any, name: str = "xs", has_time: bool = True
) -> tuple[int, ...]:
    """The sizes of the axes before the feature axes, which all leaves of `xs` share.

    Args:
        xs: a tree of arrays `[*leading, *features]`.
        num_feature_axes: an int, or a tree of ints that is a prefix of `xs`.
        name: what the error calls the tree.
        has_time: whether one of the leading axes is time, so that there is at least one.

    Returns:
        The shape of the shared leading axes.

    Raises:
        TypeError: `num_feature_axes` is not a prefix of the tree.
        ValueError: A leaf has too few axes, or leaves disagree, or there is no leaf.
    """
    try:
        axes = jax.tree.leaves(jax.tree.broadcast(num_feature_axes, xs))
    except ValueError as error:
        wanted, structure = jax.tree.structure(num_feature_axes), jax.tree.structure(xs)
        raise TypeError(f"{name} must have the structure {wanted}, got {structure}.") from error
    shape = None
    for (path, leaf), count in zip(jax.tree_util.tree_flatten_with_path(xs)[0], axes, strict=True):
        leaf_name = f"{name}{keystr(path)}"
        if np.ndim(leaf) < count + has_time:
            raise ValueError(
                f"{leaf_name} must have {'a time axis and ' * has_time}{count} feature axes, "
                f"got the shape {np.shape(leaf)}."
            )
        leading = np.shape(leaf)[: np.ndim(leaf) - count]
        if shape is not None and leading != shape:
            raise ValueError(
                f"{leaf_name} must start with the axes {shape} like the leaves before it, "
                f"got the shape {np.shape(leaf)}."
            )
        shape = leading
    if shape is None:
        raise ValueError(f"{name} must have at least one array, got {xs!r}.")
    return shape
