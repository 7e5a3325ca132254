"""The warning about functions that are made anew at every call, each of which compiles again.

A lambda or a function with a closure is equal only to itself. Two of them are alike here if they
have the same code and close over the same values.
"""

import functools
import pathlib
import sys
import types
import warnings
from itertools import chain
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from jaxrnn.factories import ModelValue, comparable

_PACKAGE = str(pathlib.Path(__file__).parents[1])


class _AnyArray(NamedTuple):
    """An array that a function closes over, without its numbers, which may change at every call."""

    shape: tuple[int, ...]
    dtype: str


class Alike:
    """What is known of all models, or feeds, that differ in nothing but functions that are alike.

    Attributes:
        last: the hash of the one that was used last, which keeps no model alive.
        num_uses: how often it was used.
        num_used_once: how many in a row before it were used once and not again.
    """

    last: int | None = None
    num_uses = 0
    num_used_once = 0

    def use(self, identity: int) -> None:
        """Notes that the one with this hash is used."""
        if identity != self.last:
            self.num_used_once = self.num_used_once + 1 if self.num_uses == 1 else 0
            self.last, self.num_uses = identity, 0
        self.num_uses += 1

    @property
    def is_made_anew(self) -> bool:
        """Whether each seems to be made for a single use, as in a loop."""
        return self.num_used_once >= 2


def use_with_warning(static: tuple[Any, ...], arrays: Any, name: str) -> Alike | None:
    """Notes a use, and warns once where what is compiled for is made anew at every call.

    Args:
        static: what is compiled for: a model with its options, or a function.
        arrays: the arguments of the program. Under the `jit` of a caller they are traced, or what
            a function closes over is: nothing is compiled there at every call, and nothing is said.
        name: what the warning calls it.

    Returns:
        What is known of those that are alike; None where everything is compared by value.
    """
    functions: list[types.FunctionType] = []
    form = _form(comparable(static), functions)
    if not functions or any(map(_is_traced, (arrays, *chain(*map(_closed_over, functions))))):
        return None
    alike = _alike(form)
    alike.use(hash(static))
    if alike.is_made_anew and not _is_said(*map(_place, functions)):
        # The library's own functions are made by the call that the caller should make only once.
        named = next((f for f in functions if not _is_of_the_library(f.__code__)), functions[0])
        warnings.warn(
            f"{name} compiles again at every call, because {named.__qualname__} of "
            f"{named.__module__}, line {named.__code__.co_firstlineno}, is made anew and equal "
            "only to itself. Make it once, before the loop, or define the function in a module "
            "(functools.partial of one is compared by value). Arrays that it closes over belong "
            "in params, or in a jax.tree_util.Partial where it is a feed.",
            stacklevel=_frames_of_the_library(),
        )
    return alike


# Bounded like the programs.
@functools.lru_cache(maxsize=128)
def _alike(form: Any) -> Alike:
    del form
    return Alike()


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
    defaults = _form(comparable((value.__defaults__, value.__kwdefaults__)), functions)
    return value.__code__, defaults, *[_closed_form(one, functions) for one in _closed_over(value)]


def _closed_form(value: Any, functions: list) -> Any:
    if isinstance(value, jax.Array | np.ndarray):
        return _AnyArray(value.shape, str(value.dtype))
    return _form(comparable(value), functions)


def _closed_over(function: types.FunctionType) -> list[Any]:
    """The values that a function closes over; "empty" for a name that has none yet."""
    values = []
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            values.append("empty")
    return values


def _is_traced(tree: Any) -> bool:
    """Whether a tree of arrays has a traced leaf; False for what is no tree."""
    try:
        return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))
    except ValueError:  # Of a dict whose keys have no order.
        return False


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
