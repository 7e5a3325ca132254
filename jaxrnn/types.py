"""The records that the whole library is written in, and the names of axes.

Axes: `...` is any number of leading batch axes, `T` time, `D` input features, `H` units, `N` the
state size of a linear cell, `C` classes. Inside the library time is axis 0, so a mask or a reset
`[T, *batch]` is a leading prefix of every leaf.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxrnn.factories import ModelValue

Array = jax.Array

Params = Any
"""The parameters of a model: a tree of arrays, as `init` makes it."""

Carry = Any
"""All that a model remembers between two steps: a tree of arrays `[*batch, ...]`."""

Mask = Any
"""None, or flags `[..., T]` (`[T, *batch]` inside the library), True = real."""

Reset = Any
"""None, or flags like a mask, True = this step starts a new sequence."""

Key = Any
"""A PRNG key, None for the deterministic model, or a `MissingKey`."""


class Affine(NamedTuple):
    """One step of a linear recurrence, hₜ = a ⊙ hₜ₋₁ + b; `a` and `b` are trees like the carry."""

    a: Carry
    b: Carry


class Split(NamedTuple):
    """An `advance` in two parts: advance(params, carry, z) = update(carry, mix(params, carry, z)).

    `mix(params, carry, z) -> u` contains every use of the recurrent parameters, and
    `update(carry, u) -> carry` is pointwise. A leaf of `u` has the batch axes, or is a parameter
    vector that `mix` hands on to `update`. `sequential` has a derivative rule for such cells, and
    `recurrent_dropout` takes no others.
    """

    mix: Callable[[Params, Carry, Any], Any]
    update: Callable[[Carry, Any], Carry]

    def __call__(self, params: Params, carry: Carry, z: Any) -> Carry:
        """Takes one step."""
        return self.update(carry, self.mix(params, carry, z))


class Steps(NamedTuple):
    """The input of a model, time first, as one tree to scan, cut, flip and pad.

    Attributes:
        xs: inputs, a tree of arrays `[T, *batch, ...]`.
        mask: None or bool `[T, *batch]`, True = real.
        reset: None or bool `[T, *batch]`, True = this step starts a new sequence.
    """

    xs: Any
    mask: Mask = None
    reset: Reset = None


class Flags(NamedTuple):
    """The mask and the resets of outputs that are not those of the inputs.

    Attributes:
        mask: None or bool, with the axes of the outputs without features; True = real.
        reset: None or bool, the same; True = this output starts a new sequence.
    """

    mask: Mask = None
    reset: Reset = None


class Rollout(NamedTuple):
    """The result of an unroll: the last carry, the outputs, and how the model was evaluated.

    Attributes:
        carry: the carry after the last step.
        outputs: a tree of arrays, one entry for each step that comes out.
        info: a tree of arrays and evaluators, so a Rollout may leave `jit`.
        flags: the mask and the resets of the outputs. None: those of the inputs, and every output
            belongs to the input of its step. A layer whose steps are others returns `Flags`.
    """

    carry: Carry
    outputs: Any
    info: Any = ()
    flags: Flags | None = None


class Inside(NamedTuple):
    """One run of a layer, seen from inside.

    Attributes:
        rollout: what `unroll` returns.
        carries: `() -> carry` after every step, leaves `[T, *batch, ...]`; computed when called.
        layers: `() -> runs`, an `Inside` for each layer that this one is made of, in a tuple or
            `Directions`; `()` if there is none.
        mask: the mask of the outputs, which `look_inside` fills in.
    """

    rollout: Rollout
    carries: Callable[[], Carry]
    layers: Callable[[], Any] = tuple
    mask: Mask = None


class _CellFields(NamedTuple):
    init: Callable[..., Params]
    initial_carry: Callable[..., Carry]
    project: Callable[[Params, Any], Any]
    advance: Callable[[Params, Carry, Any], Carry]
    emit: Callable[[Params, Carry, Any], Any]
    num_outputs: Callable[[int], int]
    prepare: Callable[[Params, Key, Any, Reset], Any] | None = None
    num_feature_axes: Any = 1
    pairwise: Callable[[Params, Carry, Any, Steps], tuple[Carry, Any]] | None = None
    response: Callable[[Params, int], Any] | None = None
    roles: Any = None


class Cell(ModelValue, _CellFields):
    """One step of a recurrence as a record of pure functions, which take any leading axes.

    Attributes:
        init: `(key, num_inputs) -> params`.
        initial_carry: `(params, batch_shape=()) -> carry`, finite, leaves `[*batch, ...]`.
        project: `(params, x) -> z`, all that needs no carry; `Affine(a, b)` if the cell is
            linear and elementwise.
        advance: `(params, carry, z) -> carry`, the only sequential part; a `Split` where the use
            of recurrent parameters can be separated from the pointwise rest.
        emit: `(params, carry, x) -> y`.
        num_outputs: `(num_inputs) -> int`.
        prepare: `(params, key, xs, reset) -> xs`, time first, which adds the noise of a stochastic
            cell to its inputs; `key=None` is the deterministic model.
        num_feature_axes: number of axes of x after batch and time; an int, or a tree of ints like
            x.
        pairwise: `(params, carry, z, steps) -> (carry, outputs)`, the same recurrence computed
            from all pairs of steps at once, for `chunkwise`; z is that of all steps.
        response: `(params, num_steps) -> Response`, the cell's response to an impulse, for
            `convolution`.
        roles: what each parameter is for, a tree prefix of params with the words of
            `parameter_labels`; where it is None, the classes of the parameters declare it.
    """

    def _replace(self, **fields: Any) -> "Cell":
        """The cell with other fields; without forms that the new functions may contradict."""
        if fields.keys() - {"init", "num_outputs", "roles"}:
            fields = {"pairwise": None, "response": None} | fields
        return super()._replace(**fields)


class _LayerFields(NamedTuple):
    init: Callable[..., Params]
    initial_carry: Callable[..., Carry]
    unroll: Callable[[Params, Carry, Steps, Key], Rollout]
    num_outputs: Callable[[int], int]
    causal: bool = True
    num_feature_axes: Any = 1
    roles: Any = None
    inside: Callable[[Params, Carry, Steps, Key], Inside] | None = None


class Layer(ModelValue, _LayerFields):
    """A map from sequence to sequence with an explicit carry.

    Attributes:
        init: `(key, num_inputs) -> params`.
        initial_carry: `(params, batch_shape=()) -> carry`; `()` for a layer without memory.
        unroll: `(params, carry, steps, key) -> Rollout`, time first; with `Flags` where the steps
            that come out are not those that went in. `carry` is a `Started` of `engine/starts.py`
            where sequences start from carries of their own.
        num_outputs: `(num_inputs) -> int`.
        causal: False for a layer whose outputs depend on later steps; such a layer cannot stream.
        num_feature_axes: number of axes of x after batch and time (`embed` has 0).
        roles: what each parameter is for, as in `Cell`.
        inside: `(params, carry, steps, key) -> Inside`, the same run and what is inside of it.
            None: there is no other layer in it, and it can be run step by step.
    """

    def _replace(self, **fields: Any) -> "Layer":
        """The layer with other fields; without an `inside` that a new `unroll` may contradict."""
        if "unroll" in fields:
            fields = {"inside": None} | fields
        return super()._replace(**fields)


Model = Cell | Layer

Evaluator = Callable[[Cell, Params, Carry, Steps], Rollout]
"""`(cell, params, carry, steps) -> Rollout`, time first; those of the library are frozen values."""
