"""The records everything else is written in, and the legend of axes.

Axes: `...` any number of leading batch axes, `T` time, `D` input features, `H` units,
`N` state size of a linear cell, `C` classes. Inside the library time is axis 0, so a mask or
a reset `[T, *batch]` is a leading prefix of every leaf.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

Params = Any
Carry = Any
Array = jax.Array


class Affine(NamedTuple):
    """One step of a linear recurrence, hₜ = a ⊙ hₜ₋₁ + b; `a` and `b` are trees like the carry."""

    a: Any
    b: Any


class Split(NamedTuple):
    """A cell's step in two parts: advance(params, carry, z) = update(carry, mix(params, carry, z)).

    Whoever replaces `advance` of a cell replaces its `split` too, or sets it to None; where the two
    differ `advance` holds.

    `mix(params, carry, z) -> u` holds every use of the recurrent parameters and
    `update(carry, u) -> carry` is pointwise. Leaves of `u` carry the batch axes, or none when
    `mix` hands a parameter vector on.
    """

    mix: Callable[[Params, Carry, Any], Any]
    update: Callable[[Carry, Any], Carry]


class Cell(NamedTuple):
    """One step of a recurrence, on any leading axes, as a record of pure functions.

    Attributes:
        init: `(key, num_inputs) -> params`.
        initial_carry: `(params, batch_shape=()) -> carry`, finite, leaves `[*batch, ...]`.
        project: `(params, x) -> z`, what needs no carry; `Affine(a, b)` iff the cell is linear.
        advance: `(params, carry, z) -> carry`, the only sequential mathematics.
        emit: `(params, carry, x) -> y`.
        num_outputs: `(num_inputs) -> int`.
        split: lets an evaluator make weight gradients as one large product.
        prepare: `(params, key, xs, reset) -> xs`, noise drawn as data, time first; `key=None` is
            the deterministic model.
        num_feature_axes: axes of x behind batch and time; an int, or a tree of ints like x.
        roles: what the parameters are for, a tree prefix of params of the words of
            `parameter_labels`; where it is None the classes of the parameters say it.
    """

    init: Callable[..., Params]
    initial_carry: Callable[..., Carry]
    project: Callable[[Params, Any], Any]
    advance: Callable[[Params, Carry, Any], Carry]
    emit: Callable[[Params, Carry, Any], Any]
    num_outputs: Callable[[int], int]
    split: Split | None = None
    prepare: Callable[[Params, Any, Any, Any], Any] | None = None
    num_feature_axes: Any = 1
    roles: Any = None


class Rollout(NamedTuple):
    """What an unroll returns: the last carry, the outputs, and what a person wants to know.

    `info` says which path ran; it is data (leaves, or static nodes), so a Rollout may leave `jit`.
    """

    carry: Carry
    outputs: Any
    info: Any = ()


class Layer(NamedTuple):
    """A map from sequence to sequence with an explicit carry.

    Attributes:
        init: `(key, num_inputs) -> params`.
        initial_carry: `(params, batch_shape=()) -> carry`; `()` for a layer without memory.
        unroll: `(params, carry, xs, mask, reset, key) -> Rollout`, time first; mask and reset are
            None or bool `[T, *batch]`.
        num_outputs: `(num_inputs) -> int`.
        causal: False for a layer that sees the future, which cannot stream.
        num_feature_axes: axes of x behind batch and time (`embed` has 0).
        roles: what the parameters are for, as in `Cell`.
    """

    init: Callable[..., Params]
    initial_carry: Callable[..., Carry]
    unroll: Callable[[Params, Carry, Any, Any, Any, Any], Rollout]
    num_outputs: Callable[[int], int]
    causal: bool = True
    num_feature_axes: Any = 1
    roles: Any = None


Evaluator = Callable[[Cell, Params, Carry, Any, Any, Any], Rollout]
"""`(cell, params, carry, xs, mask, reset) -> Rollout`, time first, flags None or bool."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class Path:
    """The name of the path an evaluator took, as a tree node without leaves."""

    evaluator: str
