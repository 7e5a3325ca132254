"""Functions of one number that cells of other libraries are made with."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp


def hard_sigmoid(x: Any, slope: float = 0.2, offset: float = 0.5) -> Any:
    """The sigmoid in three straight pieces.

        y = min(max(slope x + offset, 0), 1)

    Keras 2 and ONNX define it so. `jax.nn.hard_sigmoid`, keras 3 and torch have the slope 1/6, so
    there y is 1 from x = 3 on, and here from x = 2.5 on.

    Args:
        x: numbers of any shape.
        slope: slope at x = 0; `alpha` of ONNX.
        offset: value at x = 0; `beta` of ONNX.

    Returns:
        y, like x.

    Example:
        >>> import jax.numpy as jnp, jaxrnn as jr
        >>> jr.cells.hard_sigmoid(jnp.array([-3.0, 0.0, 1.0, 3.0]))
        Array([0. , 0.5, 0.7, 1. ], dtype=float32)
    """
    return jnp.clip(slope * x + offset, 0, 1)


def identity(x: Any) -> Any:
    """y = x."""
    return x


def clipped(function: Callable[[Any], Any], clip: float | None) -> Callable[[Any], Any]:
    """The function of its input bounded to [-clip, clip]; itself without a bound."""
    return function if clip is None else partial(_of_bounded, function, clip)


def _of_bounded(function, clip, x):
    return function(jnp.clip(x, -clip, clip))
