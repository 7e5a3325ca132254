"""Runs an observer inside `unroll`, so that a diagnostic shares all of its checks."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxrnn.engine.evaluators.sequential.sequential import sequential
from jaxrnn.engine.recurrent import as_layer, recurrent
from jaxrnn.engine.unroll import unroll
from jaxrnn.factories import model_factory
from jaxrnn.types import Carry, Cell, Key, Layer, Mask, Model, Params, Reset, Rollout, Steps


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
    observer: Observer,
    options: tuple[Any, ...],
    model: Model,
    params: Params,
    xs: Any,
    carry: Carry,
    mask: Mask,
    reset: Reset,
    time_major: bool,
    key: Key = None,
) -> Any:
    """What `observer(run, *options)` returns for these sequences; options are hashable."""
    as_layer(model)  # Raises for what is neither.
    layer = _observed(model, observer, options)
    flags = {"mask": mask, "reset": reset, "time_major": time_major}
    return unroll(layer, params, xs, carry=carry, key=key, **flags).info


@model_factory
def _observed(model: Model, observer: Observer, options: tuple[Any, ...]) -> Layer:
    """The layer whose `info` is what the observer returns; equal arguments compile once."""
    # Observers differentiate one step at a time, for which the derivative rule would win nothing.
    plain = sequential(derivative="autodiff")
    layer = recurrent(model, plain) if isinstance(model, Cell) else model

    def unroll(params, carry, steps, key):
        run = Run(model, layer, params, carry, steps, key)
        return Rollout(carry, (), observer(run, *options))

    return layer._replace(unroll=unroll)
