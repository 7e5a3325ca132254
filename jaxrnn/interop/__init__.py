"""Weights from other frameworks and back, files, modules for them, and programs to serve.

Nothing here is imported by the rest of the library, and each framework is imported by the functions
that are named after it, when they are called.
"""

from jaxrnn.interop._imported import Imported as Imported
from jaxrnn.interop._onnx_read import from_onnx as from_onnx
from jaxrnn.interop._onnx_write import to_onnx as to_onnx

__all__ = [
    "Imported",
    "from_onnx",
    "to_onnx",
]
