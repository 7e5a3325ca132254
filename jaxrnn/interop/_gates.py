"""Blocks of gates in the order and with the signs that another framework has them in."""

from typing import Any

import jax.numpy as jnp
import numpy as np


def regrouped(array: Any, have: str, want: str) -> Any:
    """The blocks of the last axis in another order, of numpy or, traced or not, of jax.

    `regrouped(kernel, "iofc", "ifco")` reads a kernel `[D, 4H]` of ONNX and returns ours, whose
    letter for g is c there. A capital letter in `want` changes the sign of its block.
    """
    library = np if isinstance(array, np.ndarray) else jnp
    blocks = dict(zip(have, library.split(array, len(have), axis=-1), strict=True))
    blocks |= {gate.upper(): -block for gate, block in blocks.items()}
    return library.concatenate([blocks[gate] for gate in want], axis=-1)
