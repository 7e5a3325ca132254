"""Readers of single nodes of an ONNX graph: glue, dense layers, embeddings, norms."""

from typing import Any

import jax
import numpy as np

from jaxrnn.interop._imported import Arrays
from jaxrnn.interop._models import made_by
from jaxrnn.interop._onnx_activations import AS_NODES, decimal, with_numbers
from jaxrnn.interop._onnx_graph import described
from jaxrnn.interop._onnx_recurrent import merged, one_direction, read_recurrent
from jaxrnn.interop._onnx_values import (
    Axis,
    Filled,
    Loose,
    Sizes,
    Stage,
    Stream,
    real,
    regroup,
    size_of,
    sizes_of,
)
from jaxrnn.layers import DenseParams, EmbedParams, LayerNormParams, dense, embed, layer_norm, lift


def _transpose(node):
    value = node.input(0)
    if isinstance(value, Loose):
        return value
    stream = node.stream()
    order = node.attributes.get("perm", range(len(stream.groups))[::-1])
    return stream._replace(groups=tuple(stream.groups[axis] for axis in order))


def _squeeze(node):
    value = node.input(0)
    if isinstance(value, Loose):
        return value
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
    if isinstance(value, Loose):
        return value
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
    if isinstance(value, Loose | Sizes):
        return value
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
    return value if isinstance(value, Loose | Sizes | Filled) else node.stream()


def _cast(node):
    from onnx import helper

    value = _same(node)
    dtype = helper.tensor_dtype_to_np_dtype(node.attributes["to"])
    if isinstance(value, Stream) and value.stages:
        (have,) = {leaf.dtype for leaf in jax.tree.leaves(value.stages[-1].params)} or {dtype}
        if have != dtype:
            raise ValueError(f"{node.title} must keep the dtype {have} of the layer, got {dtype}")
    return value


def _dropout(node):
    if node.input(2) is not None and node.constant(2, "training_mode"):
        raise ValueError(f"{node.title} must not be in training mode: it would draw noise")
    return node.stream()


def _shape(node):
    sizes = sizes_of(node.stream().groups).entries
    return Sizes(sizes[node.attributes.get("start", 0) : node.attributes.get("end")])


def _gather(node):
    values, axis = node.input(0), node.attributes.get("axis", 0)
    if isinstance(values, Loose):
        return values
    if isinstance(values, Sizes):
        index = node.constant(1, "indices")
        if index.ndim == 0:
            return Sizes((values.entries[int(index)],), is_vector=False)
        return Sizes(tuple(values.entries[int(number)] for number in index))
    if isinstance(values, Stream):
        index = node.constant(1, "indices")
        return _cut(node, axis, [int(number) for number in index.ravel()], index.ndim == 0)
    table, tokens = node.constant(0, "data"), node.input(1)
    if not isinstance(tokens, Stream) or not tokens.is_input or table.ndim != 2 or axis != 0:
        raise ValueError(
            f"{node.title} must look up rows of a constant table [V, D] for an input of the graph"
        )
    return _after(
        tokens, Stage(embed(table.shape[1]), EmbedParams(table)), tokens.groups, table.shape[1]
    )


def _slice(node):
    values = node.input(0)
    if isinstance(values, Loose):
        return values
    starts, ends, axes, steps = (
        node.attributes.get(name, node.constant(number, name))
        for number, name in enumerate(("starts", "ends", "axes", "steps"), 1)
    )
    if len(starts) != 1 or (steps is not None and list(steps) != [1]):
        raise ValueError(f"{node.title} must cut one axis in steps of 1")
    axis, cut = 0 if axes is None else int(axes[0]), slice(int(starts[0]), int(ends[0]))
    if isinstance(values, Sizes):
        return Sizes(values.entries[cut])
    stream = node.stream()
    if stream.is_input:
        return Loose("input", stream.source)
    size = size_of(stream.groups[axis])
    if size is None:
        raise ValueError(f"{node.title} must not cut time or the batch")
    return _cut(node, axis, list(range(*cut.indices(size))), False)


def _split(node):
    values = node.input(0)
    if isinstance(values, Loose):
        return values
    stream, axis = node.stream(), node.attributes.get("axis", 0)
    if stream.is_input:
        return Loose("input", stream.source)
    if size_of(stream.groups[axis]) != 2:
        raise ValueError(f"{node.title} must split the two directions of a recurrent node")
    return [_cut(node, axis, [number], False) for number in (0, 1)]


def _cut(node, axis, indices, drops_axis):
    """One direction of a recurrent node, or what an initial state is taken from."""
    stream = node.stream()
    if stream.is_input:
        return Loose("input", stream.source)
    group = real(stream.groups[axis])
    is_whole = size_of(group) == len(indices) and indices == sorted(indices)
    if not is_whole:
        is_direction = len(stream.features or ()) == 2 and group == stream.features[:1]
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


def _add(node):
    first, second = node.inputs
    if isinstance(first, Stream) and isinstance(second, Stream):
        return merged(node, "sum", -1)
    if isinstance(first, np.ndarray):
        node = node._replace(inputs=(second, first))
    stream, bias = node.stream(), node.constant(1, "the second input")
    stage = stream.stages[-1] if stream.stages else None
    is_bare = (
        stage is not None
        and isinstance(stage.params, DenseParams)
        and stage.params.bias is None
        and made_by(stage.model).options["activation"] is None
    )
    if not is_bare or bias.size != bias.shape[-1] or bias.size != len(stage.params.kernel.T):
        raise ValueError(
            f"{node.title} adds a constant of the shape {list(bias.shape)}, which can be read only "
            "as the bias of a MatMul before it, one number for each output"
        )
    params = stage.params._replace(bias=bias.reshape(-1))
    stage = stage._replace(model=dense(bias.size), params=params)
    return stream._replace(stages=(*stream.stages[:-1], stage))


def _dense(stream, kernel, bias, title):
    _check_features(stream, title)
    if size_of(stream.groups[-1]) not in (None, len(kernel)):
        raise ValueError(
            f"{title} must have a kernel of {size_of(stream.groups[-1])} rows, got {kernel.shape}"
        )
    model = dense(kernel.shape[1], use_bias=bias is not None)
    stage = Stage(model, DenseParams(kernel, bias))
    return _after(stream, stage, stream.groups[:-1], kernel.shape[1])


def _matmul(node):
    kernel = node.constant(1, "the second factor")
    if kernel.ndim != 2:
        raise ValueError(f"{node.title} must have a kernel [D, C], got {list(kernel.shape)}")
    return _dense(node.stream(), kernel, None, node.title)


def _gemm(node):
    options = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0} | node.attributes
    kernel, bias = node.constant(1, "B"), node.constant(2, "C")
    if options["transA"]:
        raise ValueError(f"{node.title} must have transA=0: the features are the last axis")
    kernel = options["alpha"] * (kernel.T if options["transB"] else kernel)
    if bias is not None:
        bias = np.broadcast_to(options["beta"] * bias, (1, kernel.shape[1]))[0]
        bias = bias.astype(kernel.dtype)
    return _dense(node.stream(), kernel.astype(kernel.dtype), bias, node.title)


def _layer_norm(node):
    stream = node.stream()
    _check_features(stream, node.title)
    axis = node.attributes.get("axis", -1)
    if axis not in (-1, len(stream.groups) - 1):
        raise ValueError(f"{node.title} must normalise the last axis, got axis={axis}")
    arrays = {"Scale": node.constant(1, "Scale"), "B": node.constant(2, "B")}
    arrays = Arrays(
        {name: array for name, array in arrays.items() if array is not None}, node.title
    )
    scale = arrays.take("Scale", size_of(stream.groups[-1]))
    offset = arrays.take("B", *scale.shape) if "B" in arrays else np.zeros_like(scale)
    stage = Stage(
        layer_norm(decimal(node.attributes.get("epsilon", 1e-5))), LayerNormParams(scale, offset)
    )
    return [_after(stream, stage, stream.groups[:-1], len(scale))]


def _activation(node):
    stream, activation = node.stream(), AS_NODES[node.op]
    if node.op in ("Softmax", "LogSoftmax"):
        _check_features(stream, node.title)
        axis = node.attributes.get("axis", -1 if node.opset >= 13 else 1)
        if axis not in (-1, len(stream.groups) - 1):
            raise ValueError(f"{node.title} must run over the last axis, got axis={axis}")
    greek = ("alpha", "beta")[: len(activation.options)]
    if node.op == "Selu" and node.attributes:
        raise ValueError(f"{node.title} must have the alpha and gamma of its definition")
    function = with_numbers(activation, [node.attributes.get(name) for name in greek], node.title)
    *before, last = stream.stages or [None]
    if last is not None and isinstance(last.params, DenseParams):
        options = made_by(last.model).options
        if options["activation"] is None:
            model = dense(options["num_outputs"], function, use_bias=options["use_bias"])
            return stream._replace(stages=(*before, last._replace(model=model)))
    return stream._replace(stages=(*stream.stages, Stage(lift(function), ())))


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
    halves = [_cut(node, axis, [number], True) for number in (0, 1)]
    kind = "sum" if node.op == "ReduceSum" else "mean"
    return merged(node._replace(inputs=tuple(halves)), kind, -1)


def _check_features(stream, title):
    if stream.features is not None and real(stream.groups[-1]) != real(stream.features):
        raise ValueError(
            f"{title} must read the features as the last axis, both directions of a recurrent node "
            "merged into it"
        )


def _after(stream, stage, leading, num_features):
    """The stream after a layer that makes these features of the last axis."""
    features = (Axis(num_features),)
    stages = (*stream.stages, stage)
    return Stream(stream.source, (*leading, features), stages, features)


READERS: dict[str, Any] = {
    "Add": _add,
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Dropout": _dropout,
    "Expand": _expand,
    "Gather": _gather,
    "Gemm": _gemm,
    "GRU": read_recurrent,
    "Identity": _same,
    "LayerNormalization": _layer_norm,
    "LSTM": read_recurrent,
    "MatMul": _matmul,
    "Mean": _sum,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "Reshape": _reshape,
    "RNN": read_recurrent,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": _sum,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
} | dict.fromkeys(AS_NODES, _activation)
