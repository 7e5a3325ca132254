"""What is measured: one module a package, all with the same names.

`PACKAGE` is what must be installed and `MODELS` what it has. A module on JAX makes
`model(name, shape) -> Model`, any other `prepare(work) -> Subject`. A model is "lstm", "gru" (reset
after the product), "gru before", "elman" (tanh) or "elman relu".
"""

import importlib
import importlib.util
from types import ModuleType

from experiments.benchmark.work import Subject, Work, prepare_model

MODELS = ("lstm", "gru", "elman", "gru before", "elman relu")
OURS = "jaxrnn"
AUTODIFF = "jaxrnn autodiff"
PRODUCTS = "products alone"
BYTES = "bytes alone"
FLOORS = (PRODUCTS, BYTES)
MODULES = {
    OURS: "ours",
    AUTODIFF: "ours_autodiff",
    "flax linen": "flax_linen",
    "flax nnx": "flax_nnx",
    "haiku": "haiku_core",
    "equinox": "equinox_cell",
    "keras": "keras_layer",
    "plain scan": "plain_scan",
    "torch": "torch_module",
    PRODUCTS: "products",
    BYTES: "bytes_once",
}
# The rivals on JAX; the plain scan is not a package, but what a person would write.
JAX_PEERS = ("flax linen", "flax nnx", "haiku", "equinox", "keras", "plain scan")


def load(name: str) -> ModuleType | None:
    """The module of a subject, or None where its package is not installed."""
    module = importlib.import_module(f"experiments.benchmark.subjects.{MODULES[name]}")
    return None if importlib.util.find_spec(module.PACKAGE) is None else module


def prepare(module: ModuleType, work: Work) -> Subject:
    """A subject of a module, ready to be called."""
    if hasattr(module, "prepare"):
        return module.prepare(work)
    return prepare_model(module.model(work.model, work.shape), work)
