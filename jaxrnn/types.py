"""The records everything else is written in, and the legend of axes.

Axes: `...` any number of leading batch axes, `T` time, `D` input features, `H` units,
`N` state size of a linear cell, `C` classes. Inside the library time is axis 0, so a mask or
a reset `[T, *batch]` is a leading prefix of every leaf.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxrnn.factories import ModelValue

Params = Any
Carry = Any
Array = jax.Array


class Affine(NamedTuple):
    """One step of a linear recurrence, hₜ = a ⊙ hₜ₋₁ + b; `a` and `b` are trees like the carry."""

    a: Any
    b: Any


class Split(NamedTuple):
    """An `advance` in two parts: advance(params, carry, z) = update(carry, mix(params, carry, z)).

    `mix(params, carry, z) -> u` holds every use of the recurrent parameters and
    `update(carry, u) -> carry` is pointwise. Leaves of `u` have the batch axes, or none when
    `mix` hands a parameter vector on. `sequential` has a reverse rule for such cells, and
    `recurrent_dropout` needs one.
    """

    mix: Callable[[Params, Carry, Any], Any]
    update: Callable[[Carry, Any], Carry]

    def __call__(self, params: Params, carry: Carry, z: Any) -> Carry:
        """One step."""
        return self.update(carry, self.mix(params, carry, z))


class Steps(NamedTuple):
    """What a model reads, as one tree to scan, cut, flip and pad; time first.

    Attributes:
        xs: Inputs, a tree of arrays `[T, *batch, ...]`.
        mask: None or bool `[T, *batch]`, True = real.
        reset: None or bool `[T, *batch]`, True = this step starts a new sequence.
    """

    xs: Any
    mask: Any = None
    reset: Any = None


class Rollout(NamedTuple):
    """What an unroll returns: the last carry, the outputs, and what a person wants to know.

    `info` says how the model was evaluated, as a tree of arrays and evaluators, so a Rollout may
    leave `jit`.
    """

    carry: Carry
    outputs: Any
    info: Any = ()


class _CellFields(NamedTuple):
    init: Callable[..., Params]
    initial_carry: Callable[..., Carry]
    project: Callable[[Params, Any], Any]
    advance: Callable[[Params, Carry, Any], Carry]
    emit: Callable[[Params, Carry, Any], Any]
    num_outputs: Callable[[int], int]
    prepare: Callable[[Params, Any, Any, Any], Any] | None = None
    num_feature_axes: Any = 1
    pairwise: Callable[[Params, Carry, Any, Steps], tuple[Carry, Any]] | None = None
    response: Callable[[Params, int], Any] | None = None
    roles: Any = None


class Cell(ModelValue, _CellFields):
    """One step of a recurrence, on any leading axes, as a record of pure functions.

    Attributes:
        init: `(key, num_inputs) -> params`.
        initial_carry: `(params, batch_shape=()) -> carry`, finite, leaves `[*batch, ...]`.
        project: `(params, x) -> z`, what needs no carry; `Affine(a, b)` iff the cell is linear.
        advance: `(params, carry, z) -> carry`, the only sequential mathematics; a `Split` where
            the part that reads recurrent parameters can be told from the pointwise rest.
        emit: `(params, carry, x) -> y`.
        num_outputs: `(num_inputs) -> int`.
        prepare: `(params, key, xs, reset) -> xs`, noise drawn as data, time first; `key=None` is
            the deterministic model.
        num_feature_axes: number of axes of x after batch and time; an int, or a tree of ints like
            x.
        pairwise: `(params, carry, z, steps) -> (carry, outputs)`, the same recurrence with all
            pairs of steps at once, for `chunkwise`; z is that of all steps.
        response: `(params, num_steps) -> Response`, what the cell does to an impulse, for
            `convolution`.
        roles: what the parameters are for, a tree prefix of params of the words of
            `parameter_labels`; where it is None, the classes of the parameters say it.
    """


class _LayerFields(NamedTuple):
    init: Callable[..., Params]
    initial_carry: Callable[..., Carry]
    unroll: Callable[[Params, Carry, Steps, Any], Rollout]
    num_outputs: Callable[[int], int]
    causal: bool = True
    num_feature_axes: Any = 1
    roles: Any = None


class Layer(ModelValue, _LayerFields):
    """A map from sequence to sequence with an explicit carry.

    Attributes:
        init: `(key, num_inputs) -> params`.
        initial_carry: `(params, batch_shape=()) -> carry`; `()` for a layer without memory.
        unroll: `(params, carry, steps, key) -> Rollout`, time first.
        num_outputs: `(num_inputs) -> int`.
        causal: False for a layer that sees the future, which cannot stream.
        num_feature_axes: number of axes of x after batch and time (`embed` has 0).
        roles: what the parameters are for, as in `Cell`.
    """


Model = Cell | Layer

Evaluator = Callable[[Cell, Params, Carry, Steps], Rollout]
"""`(cell, params, carry, steps) -> Rollout`, time first; ours are frozen values."""
