"""Weights from other frameworks and back, files, modules for them, and programs to serve.

Nothing here is imported by the rest of the library, and each framework is imported by the functions
that are named after it, when they are called.
"""

import importlib
from typing import Any

from jaxrnn.interop._equinox import from_equinox as from_equinox
from jaxrnn.interop._equinox import to_equinox as to_equinox
from jaxrnn.interop._export import Programs as Programs
from jaxrnn.interop._export import export_model as export_model
from jaxrnn.interop._files import load_params as load_params
from jaxrnn.interop._files import save_params as save_params
from jaxrnn.interop._flax_export import LinenModel as LinenModel
from jaxrnn.interop._flax_export import to_flax as to_flax
from jaxrnn.interop._flax_export import to_nnx as to_nnx
from jaxrnn.interop._flax_import import from_flax as from_flax
from jaxrnn.interop._haiku import from_haiku as from_haiku
from jaxrnn.interop._haiku import to_haiku as to_haiku
from jaxrnn.interop._imported import Imported as Imported
from jaxrnn.interop._keras import from_keras as from_keras
from jaxrnn.interop._keras_export import to_keras as to_keras
from jaxrnn.interop._mamba import from_mamba as from_mamba
from jaxrnn.interop._mamba_export import to_mamba as to_mamba
from jaxrnn.interop._onnx_read import from_onnx as from_onnx
from jaxrnn.interop._onnx_write import to_onnx as to_onnx
from jaxrnn.interop._recurrentgemma import from_recurrentgemma as from_recurrentgemma
from jaxrnn.interop._torch import from_torch as from_torch
from jaxrnn.interop._torch_export import to_torch as to_torch
from jaxrnn.interop._torch_states import carry_from_torch as carry_from_torch
from jaxrnn.interop._torch_states import carry_to_torch as carry_to_torch
from jaxrnn.interop._xlstm import from_xlstm as from_xlstm

__all__ = [
    "Imported",
    "LinenModel",
    "Programs",
    "carry_from_torch",
    "carry_to_torch",
    "export_model",
    "from_equinox",
    "from_flax",
    "from_haiku",
    "from_keras",
    "from_mamba",
    "from_onnx",
    "from_recurrentgemma",
    "from_torch",
    "from_xlstm",
    "load_params",
    "save_params",
    "to_equinox",
    "to_flax",
    "to_haiku",
    "to_keras",
    "to_mamba",
    "to_nnx",
    "to_onnx",
    "to_torch",
]


def __getattr__(name: str) -> Any:
    if name in ("linen", "nnx"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
