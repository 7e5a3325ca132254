"""Weights from other frameworks and back, files, modules for them, and programs to serve.

Nothing here is imported by the rest of the library, and each framework is imported by the functions
that are named after it, when they are called.
"""

import importlib
from typing import Any

from jaxrnn.interop._flax_export import LinenModel as LinenModel
from jaxrnn.interop._flax_export import to_flax as to_flax
from jaxrnn.interop._flax_export import to_nnx as to_nnx
from jaxrnn.interop._flax_import import from_flax as from_flax
from jaxrnn.interop._imported import Imported as Imported

__all__ = [
    "Imported",
    "LinenModel",
    "from_flax",
    "to_flax",
    "to_nnx",
]

# Modules of flax, which need flax when they are first used, and not before.
_MODULES = ("linen", "nnx")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
