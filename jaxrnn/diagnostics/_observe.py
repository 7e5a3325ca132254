"""Runs an observer inside `unroll`, so that a diagnostic shares all of its checks."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine.evaluators.sequential.sequential import sequential
from jaxrnn.engine.recurrent import as_layer, recurrent
from jaxrnn.engine.unroll import unroll
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Layer, Model, Rollout, Steps


class Run(NamedTuple):
    """What an observer is given, time first, checked, masked inputs zero.

    Attributes:
        model: the cell or layer itself.
        layer: the layer, or the cell as one that is evaluated step after step.
        params: its parameters.
        carry: the carry before the first step.
        steps: what is read.
        key: randomness, or None.
    """

    model: Model
    layer: Layer
    params: Any
    carry: Any
    steps: Steps
    key: Any


Observer = Callable[..., Any]
"""`(run, *options) -> tree`."""


def observe(
    model: Model,
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
    as_layer(model)  # Raises for what is neither.
    layer = _observed(model, observer, options)
    return unroll(
        layer, params, xs, carry=carry, mask=mask, reset=reset, time_major=time_major, key=key
    ).info


def each_step(advance: Callable[..., Any], state: Any, run: Run) -> tuple[Any, Any]:
    """`lax.scan` of `advance(state, one) -> (state, outputs)`, `one` the `Steps` of one step."""
    return jax.lax.scan(advance, state, run.steps)


def time_back(tree: Any, num_trailing_axes: int, time_major: bool) -> Any:
    """Puts time back in front of the last `num_trailing_axes` axes, unless it is to stay first."""
    if time_major:
        return tree
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1 - num_trailing_axes), tree)


@model_factory
def _observed(model: Model, observer: Observer, options: tuple[Any, ...]) -> Layer:
    """The layer whose `info` is what the observer returns; equal for the same question."""
    plain = sequential(derivative="autodiff")
    layer = recurrent(model, plain) if isinstance(model, Cell) else model

    def unroll(params, carry, steps, key):
        run = Run(model, layer, params, carry, steps, key)
        return Rollout(carry, (), observer(run, *options))

    return layer._replace(unroll=unroll)
