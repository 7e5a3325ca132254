"""Blocks of gates in the order that another framework has them in."""

import numpy as np


def regrouped(array: np.ndarray, have: str, want: str) -> np.ndarray:
    """The blocks of the last axis in another order.

    `regrouped(kernel, "iofc", "ifco")` reads a kernel `[D, 4H]` of ONNX and returns ours, whose
    letter for g is c there.
    """
    blocks = dict(zip(have, np.split(array, len(have), axis=-1), strict=True))
    return np.concatenate([blocks[gate] for gate in want], axis=-1)
