"""The warning about functions that are made anew at every call, each of which compiles again.

A lambda or a function with a closure is equal only to itself. Two of them are alike here if they
have the same code and close over the same values.
"""

import functools
import pathlib
import sys
import types
import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from jaxrnn.factories import ModelValue, comparable

_PACKAGE = str(pathlib.Path(__file__).parents[1])
# Two models that differ in nothing but an array may be meant; three are a habit.
_ENOUGH, _ENOUGH_WITH_ARRAYS = 2, 3


class _AnyArray(NamedTuple):
    """An array that a function closes over, without its numbers."""

    shape: tuple[int, ...]
    dtype: str


def warn_if_remade(static: tuple[Any, ...], arrays: Any, name: str) -> None:
    """Warns once if what a program is compiled for was made before, with functions that are alike.

    Args:
        static: what is compiled for: a model with its options, or a function.
        arrays: the arguments of the program. Under the `jit` of a caller they are traced: nothing
            is compiled there at every call, and nothing is said.
        name: what the warning calls it.
    """
    functions: list[types.FunctionType] = []
    form = _form(comparable(static), functions)
    if not functions or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arrays)):
        return
    seen = _seen(form)
    seen.add(hash(static))
    enough = _ENOUGH_WITH_ARRAYS if _holds_array(form) else _ENOUGH
    if len(seen) < enough or _is_said(*map(_place, functions)):
        return
    # The library's own functions are made by the call that the caller should make only once.
    named = next((f for f in functions if not _is_of_the_library(f.__code__)), functions[0])
    warnings.warn(
        f"{name} compiles again at every call, because {named.__qualname__} of "
        f"{named.__module__}, line {named.__code__.co_firstlineno}, is made anew and equal only "
        "to itself. Make it once, before the loop, or define the function in a module "
        "(functools.partial of one is compared by value). Arrays that it closes over belong in "
        "params, or in a jax.tree_util.Partial where it is a feed.",
        stacklevel=_frames_of_the_library(),
    )


# Bounded like the programs, and without what it compares: a hash keeps no model alive.
@functools.lru_cache(maxsize=128)
def _seen(form: Any) -> set[int]:
    """The hashes of all that had this form."""
    return set()


def _form(value: Any, functions: list) -> Any:
    """What `comparable` made, with the code of functions that no module has; they are listed."""
    if isinstance(value, ModelValue):
        return _form(value._compared, functions)
    if isinstance(value, tuple):
        return tuple(_form(entry, functions) for entry in value)
    if not isinstance(value, types.FunctionType) or "<" not in value.__qualname__:
        return value
    if any(value is function for function in functions):
        return value.__code__  # It may close over itself.
    functions.append(value)
    cells = [_cell_form(cell, functions) for cell in value.__closure__ or ()]
    defaults = _form(comparable((value.__defaults__, value.__kwdefaults__)), functions)
    return value.__code__, defaults, *cells


def _cell_form(cell, functions):
    try:
        value = cell.cell_contents
    except ValueError:
        return "empty"
    if isinstance(value, jax.Array | np.ndarray):
        return _AnyArray(value.shape, str(value.dtype))
    return _form(comparable(value), functions)


def _holds_array(form):
    if isinstance(form, _AnyArray):
        return True
    return isinstance(form, tuple) and any(map(_holds_array, form))


_SAID: set[Any] = set()


def _is_said(*places: Any) -> bool:
    """Whether this was the subject of a warning before; from now on it was."""
    known = places in _SAID
    _SAID.add(places)
    return known


def _place(function):
    return function.__module__, function.__qualname__, function.__code__.co_firstlineno


def _is_of_the_library(code):
    return code.co_filename.startswith(_PACKAGE)


def _frames_of_the_library():
    """The stack level of the caller's line, for a warning."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_of_the_library(frame.f_code):
        frame, level = frame.f_back, level + 1
    return level
