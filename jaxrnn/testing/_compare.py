"""Comparing trees, with an error that says which law broke and where."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path


class LawBroken(AssertionError):
    """A cell or a layer breaks a law.

    Attributes:
        law: The name of the law.
        where: What was compared, at which leaf and entry, and how large the difference is.
    """

    def __init__(self, law: str, where: str):
        """Makes the message of the two."""
        super().__init__(f"law broken: {law}\n  {where}")
        self.law = law
        self.where = where


def checks_law(law: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a check: whatever else it raises becomes LawBroken with the name of its law."""

    def decorate(check):
        @functools.wraps(check)
        def named(*args, **kwargs):
            try:
                return check(*args, **kwargs)
            except LawBroken:
                raise
            except Exception as error:
                raise LawBroken(law, f"{type(error).__name__}: {error}") from error

        return named

    return decorate


def require(condition: Any, law: str, where: str) -> None:
    """Raises LawBroken unless the condition holds."""
    if not condition:
        raise LawBroken(law, where)


def assert_same(
    law: str, name: str, got: Any, want: Any, *, tolerance: float = 0.0, axes: tuple[str, ...] = ()
) -> None:
    """Raises LawBroken where two trees differ.

    Args:
        law: The name of the law.
        name: What the trees are.
        got: A tree of arrays.
        want: A tree like `got`.
        tolerance: Largest difference allowed, as a part of the largest number of the leaf; 0 asks
            for the same bits (NaN equals NaN).
        axes: What the leading axes are called.
    """
    structure, wanted = jax.tree.structure(got), jax.tree.structure(want)
    require(structure == wanted, law, f"{name} has the structure {structure}, not {wanted}")
    wanted_leaves = jax.tree.leaves(want)
    for (path, leaf), other in zip(tree_flatten_with_path(got)[0], wanted_leaves, strict=True):
        _assert_same_leaf(law, name + keystr(path), leaf, other, tolerance, axes)


def assert_finite(law: str, name: str, tree: Any, *, axes: tuple[str, ...] = ()) -> None:
    """Raises LawBroken at the first number that is not finite."""
    for path, leaf in tree_flatten_with_path(tree)[0]:
        array = as_numbers(leaf)
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            index = tuple(bad[0])
            raise LawBroken(law, f"{name}{keystr(path)} is {array[index]}{_place(index, axes)}")


def as_numbers(leaf: Any) -> np.ndarray:
    """A leaf as float64 or complex128; gradients of integers, which have no numbers, as zeros."""
    if leaf.dtype == jax.dtypes.float0:
        return np.zeros(leaf.shape)
    array = np.asarray(leaf)
    return array if np.iscomplexobj(array) else array.astype(np.float64)


def _assert_same_leaf(law, name, got, want, tolerance, axes):
    require(
        got.shape == want.shape and got.dtype == want.dtype,
        law,
        f"{name} is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}",
    )
    got, want = as_numbers(got), as_numbers(want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0, np.abs(got - want))
    difference = np.where(np.isnan(difference), np.inf, difference)
    # Leaves that are all but zero hold rounding of larger numbers.
    finite = np.abs(want[np.isfinite(want)])
    allowed = tolerance * max(1e-2, finite.max(initial=0))
    if difference.size and difference.max() > allowed:
        index = np.unravel_index(difference.argmax(), difference.shape)
        raise LawBroken(
            law,
            f"{name} differs{_place(index, axes)}: {got[index]} instead of {want[index]}, "
            f"difference {difference[index]:.1e}, allowed {allowed:.1e}",
        )


def _place(index, axes):
    places = [f"{axis} {i}" for axis, i in zip(axes, index, strict=False)]
    rest = [int(i) for i in index[len(axes) :]]
    places += [f"entry {rest}"] if rest else []
    return f" at {', '.join(places)}" if places else ""
