"""How a diagnostic looks inside a run: as a layer, so that `unroll` makes every check once."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine.arguments import ByIdentity
from jaxrnn.engine.evaluators.sequential.plain_scan import scan
from jaxrnn.engine.recurrent import as_layer, recurrent
from jaxrnn.engine.unroll import unroll
from jaxrnn.types import Cell, Layer, Rollout


class Run(NamedTuple):
    """What an observer is given, time first, checked, masked inputs zero.

    Attributes:
        record: The cell or layer itself.
        layer: The layer, or the cell as one that is evaluated step after step.
        params: Its parameters.
        carry: The carry to start from.
        xs: `[T, *batch, D]`.
        mask: None or bool `[T, *batch]`.
        reset: None or bool `[T, *batch]`.
        key: Randomness, or None.
    """

    record: Cell | Layer
    layer: Layer
    params: Any
    carry: Any
    xs: Any
    mask: Any
    reset: Any
    key: Any


Observer = Callable[..., Any]
"""`(run, *options) -> tree`."""


def watch(
    cell_or_layer: Cell | Layer,
    params: Any,
    xs: Any,
    observer: Observer,
    *options: Any,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
    key: Any = None,
) -> Any:
    """What `observer(run, *options)` returns for the sequences; options are hashable."""
    as_layer(cell_or_layer)  # Raises for what is neither.
    layer = _watching(ByIdentity(cell_or_layer), observer, options)
    return unroll(
        layer, params, xs, carry=carry, mask=mask, reset=reset, time_major=time_major, key=key
    ).info


def each_step(advance: Callable[..., Any], state: Any, run: Run) -> tuple[Any, Any]:
    """`lax.scan` of `advance(state, inputs) -> (state, outputs)`, inputs `(x, mask, reset)`."""
    return jax.lax.scan(advance, state, (run.xs, run.mask, run.reset))


def time_back(tree: Any, num_trailing_axes: int, time_major: bool) -> Any:
    """Puts time back in front of the last `num_trailing_axes` axes, unless it is to stay first."""
    if time_major:
        return tree
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1 - num_trailing_axes), tree)


# The same layer for the same question: `unroll` compiles once for each layer it is given.
@functools.lru_cache(maxsize=128)
def _watching(static, observer, options):
    cell_or_layer = static.record
    plain = isinstance(cell_or_layer, Cell)
    layer = recurrent(cell_or_layer, scan(1)) if plain else as_layer(cell_or_layer)

    def observe(params, carry, xs, mask, reset, key):
        run = Run(cell_or_layer, layer, params, carry, xs, mask, reset, key)
        return Rollout(carry, (), observer(run, *options))

    return layer._replace(unroll=observe)
