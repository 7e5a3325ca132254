"""Readers of the nodes of an ONNX graph that move axes, cut, join and compute shapes."""

from typing import Any

import jax
import numpy as np

from jaxrnn.interop._onnx_graph import Node, described
from jaxrnn.interop._onnx_recurrent import merged, one_direction
from jaxrnn.interop._onnx_values import (
    Axis,
    Filled,
    Loose,
    Sizes,
    Stream,
    real,
    regroup,
    size_of,
    sizes_of,
)


def _transpose(node):
    stream = node.stream()
    order = node.attributes.get("perm", range(len(stream.groups))[::-1])
    return stream._replace(groups=tuple(stream.groups[axis] for axis in order))


def _squeeze(node):
    value = node.input(0)
    if isinstance(value, Sizes):
        return value._replace(is_vector=False)
    stream = node.stream()
    rank, axes = len(stream.groups), node.axes()
    if axes is None:
        axes = [number for number, group in enumerate(stream.groups) if not real(group)]
    axes = {axis % rank for axis in axes}
    if any(real(stream.groups[axis]) for axis in axes):
        raise ValueError(f"{node.title} must drop axes of size 1 only, got the axes {sorted(axes)}")
    left = (group for number, group in enumerate(stream.groups) if number not in axes)
    return stream._replace(groups=tuple(left))


def _unsqueeze(node):
    value = node.input(0)
    if isinstance(value, Sizes):
        return value._replace(is_vector=True)
    stream, axes = node.stream(), node.axes() or []
    rank = len(stream.groups) + len(axes)
    groups = iter(stream.groups)
    new = {axis % rank for axis in axes}
    return stream._replace(
        groups=tuple((Axis(1),) if axis in new else next(groups) for axis in range(rank))
    )


def _reshape(node):
    value = node.input(0)
    if isinstance(value, Sizes):
        return value._replace(is_vector=True)
    stream, shape = node.stream(), node.input(1)
    if isinstance(shape, np.ndarray):
        shape = Sizes(tuple(int(size) for size in shape))
    if not isinstance(shape, Sizes):
        raise ValueError(f"the shape of {node.title} must be known, got what {described(shape)}")
    target = tuple(
        sizes_of(stream.groups).entries[number] if size == 0 else size
        for number, size in enumerate(shape.entries)
    )
    groups = regroup(stream.groups, target)
    if groups is None:
        raise ValueError(
            f"{node.title} must merge whole axes or take them apart again: axes of the sizes "
            f"{_shown(sizes_of(stream.groups).entries)} cannot become {_shown(target)}"
        )
    return stream._replace(groups=groups)


def _shown(entries):
    return [entry if isinstance(entry, int) else "open" for entry in entries]


def _same(node):
    value = node.input(0)
    return value if isinstance(value, Sizes) else node.stream()


def _cast(node):
    from onnx import helper

    value = _same(node)
    dtype = helper.tensor_dtype_to_np_dtype(node.attributes["to"])
    if isinstance(value, Stream) and value.is_input:
        if np.issubdtype(dtype, np.integer):
            return value._replace(is_rounded=True)
        if value.is_rounded:
            raise ValueError(f"{node.title} must not read an input that was rounded by a Cast")
    elif isinstance(value, Stream):
        params = [stage.params for stage in value.stages]
        dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(params)}
        if dtypes - {str(dtype)}:
            raise ValueError(
                f"{node.title} must keep the dtype of the weights, which are "
                f"{', '.join(sorted(dtypes))}, got {dtype}"
            )
    return value


def _shape(node):
    sizes = sizes_of(node.stream().groups).entries
    return Sizes(sizes[node.attributes.get("start", 0) : node.attributes.get("end")])


def _slice(node):
    values = node.input(0)
    starts, ends, axes, steps = (
        node.attributes.get(name, node.constant(number, name))
        for number, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    )
    if len(starts) != 1 or (steps is not None and list(steps) != [1]):
        raise ValueError(f"{node.title} must cut one axis in steps of 1")
    axis, span = 0 if axes is None else int(axes[0]), slice(int(starts[0]), int(ends[0]))
    if isinstance(values, Sizes):
        return Sizes(values.entries[span])
    stream = node.stream()
    if span.start == 0 and span.stop >= _END:
        return stream
    if stream.is_input:
        return Loose("input", stream.source)
    size = size_of(stream.groups[axis])
    if size is None:
        raise ValueError(
            f"{node.title} must not cut time or the batch (single steps are taken by "
            "`jr.last_valid` after `unroll`)"
        )
    return cut(node, axis, list(range(*span.indices(size))), False)


# From here on exporters mean the end of an axis, whatever its size.
_END = 2**31 - 1


def _split(node):
    stream, axis = node.stream(), node.attributes.get("axis", 0)
    if stream.is_input:
        return Loose("input", stream.source)
    if size_of(stream.groups[axis]) != 2:
        raise ValueError(f"{node.title} must split the two directions of a recurrent node")
    return [cut(node, axis, [number], False) for number in (0, 1)]


def cut(node: Node, axis: int, indices: list[int], drops_axis: bool) -> Stream | Loose:
    """One direction of a recurrent node, or what an initial state is taken from."""
    stream = node.stream()
    if stream.is_input:
        return Loose("input", stream.source)
    group = real(stream.groups[axis])
    is_whole = size_of(group) == len(indices) and indices == sorted(indices)
    if not is_whole:
        features = stream.features or ()
        is_direction = len(features) == 2 and group == features[:1]
        if not is_direction or indices not in ([0], [1]):
            raise ValueError(
                f"{node.title} must take one of the two directions of a recurrent node, or all of "
                "an axis (single steps are taken by `jr.last_valid` after `unroll`)"
            )
        stream = one_direction(stream, indices[0])
    groups = list(stream.groups)
    groups[axis] = groups[axis] if is_whole else (Axis(1),)
    if drops_axis:
        del groups[axis]
    return stream._replace(groups=tuple(groups))


def _concat(node):
    inputs = node.inputs
    if all(isinstance(value, Sizes | np.ndarray) for value in inputs):
        entries = (
            value.entries if isinstance(value, Sizes) else tuple(map(int, value))
            for value in inputs
        )
        return Sizes(sum(entries, ()))
    if all(isinstance(value, Loose) or getattr(value, "is_input", False) for value in inputs):
        first = inputs[0]
        return Loose("input", first.source) if isinstance(first, Stream) else first
    axis = node.attributes["axis"]
    return merged(node, "concat", axis)


def _sum(node):
    return merged(node, node.op.lower(), -1)


def _constant_of_shape(node):
    from onnx import numpy_helper

    value = node.attributes.get("value")
    fill = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    return Filled(np.full(_closed(node.input(0)), fill[0]))


def _expand(node):
    array = node.constant(0, "the input")
    return Filled(np.broadcast_to(array, np.broadcast_shapes(array.shape, _closed(node.input(1)))))


def _closed(sizes):
    return tuple(entry if isinstance(entry, int) else 1 for entry in sizes.entries)


def _reduce(node):
    stream, axes = node.stream(), node.axes() or []
    rank = len(stream.groups)
    if len(axes) != 1 or node.attributes.get("keepdims", 1):
        raise ValueError(f"{node.title} must add up the two directions of a recurrent node")
    axis = axes[0] % rank
    halves = [cut(node, axis, [number], True) for number in (0, 1)]
    kind = "sum" if node.op == "ReduceSum" else "mean"
    return merged(node._replace(inputs=tuple(halves)), kind, -1)


GLUE: dict[str, Any] = {
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Identity": _same,
    "Mean": _sum,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": _sum,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
