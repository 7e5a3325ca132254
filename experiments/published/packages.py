"""Files inside of installed packages, which are found without importing the package."""

import importlib.util
import pickle
from pathlib import Path
from typing import Any

from experiments.frame.errors import ExperimentError


class Absent(Exception):
    """What a network needs and is not there, in one line."""


def folder(package: str, distribution: str) -> Path:
    """The folder of a package.

    Raises:
        Absent: It is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise Absent(f"{distribution} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


class _ArraysOnly(pickle.Unpickler):
    """Reads dicts, lists, strings, numbers and arrays of numpy; refuses everything else."""

    ALLOWED = {
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
        ("collections", "OrderedDict"),
    }

    def find_class(self, module: str, name: str) -> Any:
        # Where numpy 1 had it.
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it holds {module}.{name}, which is not an array")
        return super().find_class(module, name)


def read_pickle(path: Path) -> Any:
    """A pickle of arrays, numbers and strings; nothing else of it is run.

    Raises:
        ExperimentError: It is damaged, or holds something else.
    """
    try:
        with path.open("rb") as file:
            return _ArraysOnly(file).load()
    except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, IndexError) as error:
        raise ExperimentError(f"{path} cannot be read: {error}") from error
