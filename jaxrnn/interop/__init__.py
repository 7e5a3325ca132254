"""Weights from other frameworks and back, files, modules for them, and programs to serve.

Nothing here is imported by the rest of the library, and each framework is imported by the functions
that are named after it, when they are called.
"""

from jaxrnn.interop._imported import Imported as Imported

__all__ = [
    "Imported",
]
