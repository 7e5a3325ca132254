"""Readers of the nodes of an ONNX graph that are layers, or parts of one."""

from typing import Any

import numpy as np

from jaxrnn.interop._imported import Arrays
from jaxrnn.interop._models import made_by
from jaxrnn.interop._onnx_activations import AS_NODES, decimal, with_numbers
from jaxrnn.interop._onnx_glue import GLUE, cut
from jaxrnn.interop._onnx_recurrent import merged, read_recurrent
from jaxrnn.interop._onnx_values import Axis, Sizes, Stage, Stream, real, size_of
from jaxrnn.layers import DenseParams, EmbedParams, LayerNormParams, dense, embed, layer_norm, lift


def _gather(node):
    values, axis = node.input(0), node.attributes.get("axis", 0)
    if isinstance(values, Sizes):
        index = node.constant(1, "indices")
        if index.ndim == 0:
            return Sizes((values.entries[int(index)],), is_vector=False)
        return Sizes(tuple(values.entries[int(number)] for number in index))
    if isinstance(values, Stream):
        index = node.constant(1, "indices")
        return cut(node, axis, [int(number) for number in index.ravel()], index.ndim == 0)
    return _embed(node)


def _embed(node):
    table, tokens = node.constant(0, "data"), node.input(1)
    is_lookup = table.ndim == 2 and node.attributes.get("axis", 0) == 0
    if not isinstance(tokens, Stream) or not tokens.is_input or not is_lookup:
        raise ValueError(
            f"{node.title} must look up rows of a constant table [V, D] for an input of the graph"
        )
    return _after(
        tokens, Stage(embed(table.shape[1]), EmbedParams(table)), tokens.groups, table.shape[1]
    )


def _dropout(node):
    if node.input(2) is not None and node.constant(2, "training_mode"):
        raise ValueError(f"{node.title} must not be in training mode: it would draw noise")
    return node.stream()


def _add(node):
    first, second = node.inputs
    if isinstance(first, Stream) and isinstance(second, Stream):
        return merged(node, "sum", -1)
    if isinstance(first, np.ndarray):
        node = node._replace(inputs=(second, first))
    stream, bias = node.stream(), node.constant(1, "the second input")
    last = stream.stages[-1] if stream.stages else None
    is_last_axis = real(stream.groups[-1]) == real(stream.features or ())
    if last is None or not is_last_axis or not _takes_a_bias(last, bias):
        raise ValueError(
            f"{node.title} adds a constant of the shape {list(bias.shape)}, which can be read only "
            "as the bias of a MatMul before it, one number for each output"
        )
    last = last._replace(model=dense(bias.size), params=last.params._replace(bias=bias.ravel()))
    return stream._replace(stages=(*stream.stages[:-1], last))


def _takes_a_bias(stage, bias):
    """Whether the layer is a dense one without bias and activation, and as wide."""
    if not isinstance(stage.params, DenseParams) or bias.ndim == 0:
        return False
    is_bare = stage.params.bias is None and made_by(stage.model).options["activation"] is None
    return is_bare and bias.size == bias.shape[-1] == stage.params.kernel.shape[1]


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
    return _dense(node.stream(), kernel, bias, node.title)


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


READERS: dict[str, Any] = (
    GLUE
    | {
        "Add": _add,
        "Dropout": _dropout,
        "Gather": _gather,
        "Gemm": _gemm,
        "GRU": read_recurrent,
        "LayerNormalization": _layer_norm,
        "LSTM": read_recurrent,
        "MatMul": _matmul,
        "RNN": read_recurrent,
    }
    | dict.fromkeys(AS_NODES, _activation)
)
