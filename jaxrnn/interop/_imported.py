"""What an import returns, and the arrays that it reads: each exactly once."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrnn.types import Model


class Imported(NamedTuple):
    """A model that was made in another framework.

    `jr.unroll(imported.model, imported.params, xs)` runs it.

    Attributes:
        model: cell or layer that computes the same.
        params: its parameters, with the dtype that they had.
        carry: the carry that the source held, or None if it held none.
    """

    model: Model
    params: Any
    carry: Any = None


class Arrays:
    """Arrays by their names, of which each has to be taken exactly once.

    What is missing, has another shape or is left over raises and is named, so nothing of a source
    is guessed or dropped.
    """

    def __init__(self, arrays: Mapping[str, Any], source: str):
        """Reads `arrays`; `source` says in errors where they come from (`the LSTM`, a path)."""
        # Copies, because torch and numpy change arrays in place.
        self._arrays = {name: np.array(array) for name, array in arrays.items()}
        self._left = set(self._arrays)
        self._source = source

    def __contains__(self, name: str) -> bool:
        """Whether there is an array of this name that was not taken yet."""
        return name in self._left

    def take(self, name: str, *shape: int | None) -> np.ndarray:
        """The array of this name, which must have this shape; None is any size.

        Raises:
            ValueError: if there is no such array, it was taken before, or it has another shape.
        """
        if name in self._arrays and name not in self._left:
            raise ValueError(f"{name!r} of {self._source} was read already, for another parameter")
        if name not in self._left:
            have = ", ".join(sorted(self._arrays)) or "none"
            raise ValueError(f"{self._source} has no array {name!r}; its arrays are: {have}")
        array = self._arrays[name]
        fits = len(shape) == array.ndim and all(
            want in (None, size) for want, size in zip(shape, array.shape, strict=True)
        )
        if not fits:
            wanted = "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
            raise ValueError(
                f"{name!r} of {self._source} must have the shape {wanted}, got {list(array.shape)}"
            )
        self._left.remove(name)
        return array

    def finish(self) -> None:
        """Raises a ValueError that names what nobody took."""
        if self._left:
            names = ", ".join(sorted(self._left))
            raise ValueError(
                f"in {self._source} are arrays that the model has no place for: {names} (leave out "
                "those of other parts of a network)"
            )


def kept_by_jax(array: np.ndarray, name: str) -> np.ndarray:
    """The array, if JAX keeps its dtype.

    Raises:
        ValueError: if JAX would cut it to 32 bits.
    """
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if dtype != array.dtype:
        raise ValueError(
            f"{name!r} is {array.dtype}, which JAX would cut to {dtype}: enable x64, or cast it"
        )
    return array
