"""LSTM, GRU and RNN nodes of an ONNX graph as layers, one direction or two."""

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrnn.engine.recurrent import recurrent
from jaxrnn.interop._imported import Arrays
from jaxrnn.interop._models import made_by
from jaxrnn.interop._onnx_activations import decimal, read_activations
from jaxrnn.interop._onnx_cells import (
    ACTIVATIONS,
    ATTRIBUTES,
    NUM_GATES,
    Recurrence,
    Weights,
    carry_of,
    read_cell,
)
from jaxrnn.interop._onnx_graph import Node, described
from jaxrnn.interop._onnx_values import Axis, Filled, Loose, Stage, Stream, real, size_of
from jaxrnn.layers import Directions, bidirectional
from jaxrnn.types import Cell

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def read_recurrent(node: Node) -> list[Any]:
    """Y, and for the last states what can only be an output of the graph."""
    attributes = dict(node.attributes)
    stream = node.stream()
    is_batch_major = attributes.pop("layout", 0)
    if len(stream.groups) != 3:
        raise ValueError(f"{node.title} must read three axes, got {len(stream.groups)}")
    time, batch, features = stream.groups
    if is_batch_major:
        time, batch = batch, time
    if stream.features is not None and real(features) != real(stream.features):
        raise ValueError(
            f"{node.title} must read the features of the layer before it as its last axis, both "
            "directions of a recurrent node merged into it"
        )
    node.reads_time(time)
    direction = attributes.pop("direction", "forward")
    num_directions, num_units = DIRECTIONS.get(direction, 0), attributes.pop("hidden_size", None)
    if not num_directions:
        raise ValueError(f"direction of {node.title} must be one of {list(DIRECTIONS)}")
    made = _directions(node, attributes, num_directions, num_units, size_of(features))
    axes = Axis(num_directions), Axis(made[0][1].recurrent_kernel.shape[0])
    states = _states(node, num_directions, axes[1].size, is_batch_major)
    model, params = _layer(direction, made)
    stage = Stage(model, params, nodes=(node.title,), lengths=_lengths(node, time))
    if any(state.any() for state in states.values()):
        carries = [
            carry_of(cell, {name: _for_any_batch(state[number]) for name, state in states.items()})
            for number, (cell, _) in enumerate(made)
        ]
        stage = stage._replace(carry=carries[0] if num_directions == 1 else Directions(*carries))
    groups = (axes[:1], batch, axes[1:])
    groups = (batch, time, *groups[::2]) if is_batch_major else (time, *groups)
    output = Stream(stream.source, groups, (*stream.stages, stage), axes)
    return [output, Loose("state", node.title), Loose("state", node.title)]


def _directions(node, attributes, num_directions, num_units, num_inputs):
    """The cell of each direction, with its params."""
    op, title = node.op, node.title
    names = attributes.pop("activations", ACTIVATIONS[op] * num_directions)
    if len(names) != len(ACTIVATIONS[op]) * num_directions:
        raise ValueError(
            f"{title} must have {len(ACTIVATIONS[op])} activations for each of its "
            f"{num_directions} directions, got {names}"
        )
    alphas, betas = (attributes.pop(f"activation_{name}", []) for name in ("alpha", "beta"))
    functions = list(read_activations(names, alphas, betas, title))
    unknown = attributes.keys() - set(ATTRIBUTES[op])
    if unknown:
        raise ValueError(f"{title} has attributes that {op} has not: {', '.join(sorted(unknown))}")
    if "clip" in attributes:
        attributes["clip"] = decimal(attributes["clip"])
    weights = _weights(node, num_directions, num_units, num_inputs)
    per_direction = len(ACTIVATIONS[op])
    return [
        read_cell(
            Recurrence(op, attributes, tuple(functions[d * per_direction :][:per_direction]), one),
            title,
        )
        for d, one in enumerate(weights)
    ]


def _weights(node, num_directions, num_units, num_inputs):
    given = {name: node.constant(number, name) for number, name in ((1, "W"), (2, "R"), (3, "B"))}
    if node.op == "LSTM":
        given["P"] = node.constant(7, "P")
    given = {name: array for name, array in given.items() if array is not None}
    arrays = Arrays(given, node.title)
    gates = NUM_GATES[node.op]
    num_units = given["R"].shape[-1] if num_units is None else num_units
    w = arrays.take("W", num_directions, gates * num_units, num_inputs)
    r = arrays.take("R", num_directions, gates * num_units, num_units)
    width = 2 * gates * num_units
    zeros = np.zeros((num_directions, width), w.dtype)
    b = arrays.take("B", num_directions, width) if "B" in arrays else zeros
    p = arrays.take("P", num_directions, 3 * num_units) if "P" in arrays else None
    return [Weights(w[d], r[d], b[d], None if p is None else p[d]) for d in range(num_directions)]


def _states(node, num_directions, num_units, is_batch_major):
    """The initial states by name, `[directions, B, H]` or, for any batch, `[directions, 1, H]`."""
    given = {"h": node.input(5)} | ({"c": node.input(6)} if node.op == "LSTM" else {})
    dtype = node.input(1).dtype
    states = [
        _state(node, value, f"initial_{name}", (num_directions, num_units), is_batch_major)
        for name, value in given.items()
    ]
    states = (state.astype(dtype) for state in np.broadcast_arrays(*states))
    return dict(zip(given, states, strict=True))


def _state(node, value, name, shape, is_batch_major):
    is_input = isinstance(value, Stream) and value.is_input
    if value is None or is_input or (isinstance(value, Loose) and value.kind == "input"):
        return np.zeros((shape[0], 1, shape[1]))
    array = value.array if isinstance(value, Filled) else value
    if not isinstance(array, np.ndarray):
        raise ValueError(
            f"{name} of {node.title} must be a constant or an input of the graph, got what "
            f"{described(value)}"
        )
    array = array.swapaxes(0, 1) if is_batch_major else array
    if array.ndim != 3 or array.shape[::2] != shape:
        raise ValueError(
            f"{name} of {node.title} must have the shape [{shape[0]}, batch, {shape[1]}], "
            f"got {list(array.shape)}"
        )
    return array


def _for_any_batch(state):
    """A state `[H]` where it is the same for all rows, else `[B, H]`."""
    return state[0] if len(state) == 1 else state


def _lengths(node, time):
    """The name of the input that is `sequence_lens`; "" if there is none."""
    value = node.input(4)
    if value is None:
        return ""
    if isinstance(value, Stream) and value.is_input:
        return value.source
    size = size_of(time)
    if isinstance(value, np.ndarray) and size is not None and (value == size).all():
        return ""
    raise ValueError(
        f"sequence_lens of {node.title} must be an input of the graph, which `mask` of `unroll` "
        f"replaces, got what {described(value)}"
    )


def _layer(direction, made):
    if direction == "bidirectional":
        return _both(made, "concat")
    ((cell, params),) = made
    return (recurrent(cell, reverse=True) if direction == "reverse" else cell), params


def _both(made, merge):
    (forward, forward_params), (backward, backward_params) = made
    cells = (forward,) if forward == backward else (forward, backward)
    options = {} if merge == "concat" else {"merge": merge}
    return bidirectional(*cells, **options), Directions(forward_params, backward_params)


def one_direction(stream: Stream, number: int) -> Stream:
    """The stream with only one of the two directions of its last layer."""
    stage = stream.stages[-1]
    options = made_by(stage.model).options
    forward, backward = options["forward"], options["backward"] or options["forward"]
    stage = stage._replace(
        model=recurrent(backward, reverse=True) if number else forward,
        params=stage.params[number],
        carry=None if stage.carry is None else stage.carry[number],
    )
    return stream._replace(
        stages=(*stream.stages[:-1], stage), features=(stream.features or ())[1:]
    )


class Direction(NamedTuple):
    """A stream after one recurrence: its cell, params, and whether it reads backwards."""

    stream: Stream
    cell: Cell
    params: Any
    is_reversed: bool


def merged(node: Node, merge: str, axis: int) -> Stream:
    """One layer of both directions from the streams of a forward and a backward recurrence.

    Raises:
        ValueError: The inputs of the node are anything else.
    """
    directions = [one for one in map(_direction, node.inputs) if one is not None]
    if merge != "concat":
        directions.sort(key=lambda one: one.is_reversed)
    if len(directions) != len(node.inputs) or not _are_two_of_a_layer(directions, axis):
        raise ValueError(
            f"{node.title} can be read only where it joins a forward and a reverse recurrence of "
            "the same inputs, in this order"
        )
    stream = directions[0].stream
    stages = [one.stream.stages[-1] for one in directions]
    if stages[0].lengths != stages[1].lengths:
        raise ValueError(f"{node.title} joins two recurrences with different sequence_lens")
    carry = None
    if any(stage.carry is not None for stage in stages):
        carry = Directions(_carry_or_zeros(*stages), _carry_or_zeros(*stages[::-1]))
    model, params = _both([(one.cell, one.params) for one in directions], merge)
    features = (Axis(model.num_outputs(1)),)
    nodes = stages[0].nodes + stages[1].nodes
    stages = (*stream.stages[:-1], Stage(model, params, carry, nodes, stages[0].lengths))
    return Stream(stream.source, (*stream.groups[:-1], features), stages, features)


def _are_two_of_a_layer(directions, axis):
    """Whether they read the same stream, forwards and backwards, and lie alike before the axis."""
    if [one.is_reversed for one in directions] != [False, True]:
        return False
    first, second = (one.stream for one in directions)
    before = [tuple(map(id, stream.stages[:-1])) for stream in (first, second)]
    leading = [tuple(map(real, stream.groups[:-1])) for stream in (first, second)]
    ends = [real(stream.groups[-1]) == real(stream.features or ()) for stream in (first, second)]
    return (
        first.source == second.source
        and before[0] == before[1]
        and leading[0] == leading[1]
        and all(ends)
        and axis in (-1, len(first.groups) - 1)
    )


def _carry_or_zeros(stage, other):
    if stage.carry is not None:
        return stage.carry
    batch = jax.tree.leaves(other.carry)[0].shape[:-1]
    return stage.model.initial_carry(stage.params, batch)


def _direction(value):
    """What a stream is after one recurrence; None if it is none."""
    if not isinstance(value, Stream) or value.is_input:
        return None
    stage = value.stages[-1]
    if isinstance(stage.model, Cell):
        return Direction(value, stage.model, stage.params, False)
    made = made_by(stage.model)
    if made.factory != "recurrent" or not made.options["reverse"]:
        return None
    return Direction(value, made.options["cell"], stage.params, True)
