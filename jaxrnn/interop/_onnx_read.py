"""A model from an ONNX file."""

import os
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxrnn.interop._imported import Imported, kept_by_jax
from jaxrnn.interop._onnx_graph import Graph, supported
from jaxrnn.interop._onnx_layers import READERS
from jaxrnn.interop._onnx_values import Axis, Loose, Stream, real
from jaxrnn.layers import serial

if TYPE_CHECKING:
    import onnx


def from_onnx(source: "str | os.PathLike | bytes | onnx.ModelProto") -> Imported:
    """Reads an ONNX model.

    The graph must be a chain from one input to one output: LSTM, GRU and RNN nodes with any
    direction, activations and clip, embeddings (`Gather`), dense layers (`MatMul` or `Gemm`, `Add`,
    an activation), `LayerNormalization`, and the `Transpose`, `Reshape`, `Squeeze` and `Concat`
    that exporters write between them. Weights are initializers, or nodes that compute them from
    constants. The model reads `[..., T, D]` and returns `[..., T, H]` whatever the axes of the file
    are; both directions of a node are concatenated, forward first.

    `sequence_lens` of a node is the mask here: where the file has such an input, call
    `jr.unroll(model, params, xs, mask=jr.mask_from_lengths(lengths, T))`. Outputs after the last
    real step are then zero, also those of layers after the recurrence. Initial states that are
    inputs of the graph become `carry=` of `unroll`, and `Y_h` and `Y_c` are the carry that it
    returns. Initial states that are constants are in `carry` of the result, with a batch axis if
    the file has one; if they are all zero, it is None.

    Args:
        source: path, bytes or `onnx.ModelProto`.

    Returns:
        `Imported(model, params, carry)`, with arrays of numpy in the dtype of the file.

    Raises:
        TypeError: `source` is none of those.
        ValueError: It is not a valid ONNX model, the graph has something else in it, or its float64
            would become float32; the message names the node and says what is supported.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.serial(jr.bidirectional(jr.lstm(4)), jr.dense(2))
        >>> params = model.init(jax.random.key(0), 3)
        >>> proto = jr.interop.to_onnx(model, params)
        >>> imported = jr.interop.from_onnx(proto)
        >>> imported.model
        serial(bidirectional(lstm(4)), dense(2))
        >>> xs = jnp.ones((1, 5, 3))
        >>> jr.unroll(imported.model, imported.params, xs).outputs.shape
        (1, 5, 2)
    """
    model, name = _loaded(source)
    graph = Graph(model, name)
    for given in model.graph.input:
        if given.name not in graph.values:
            graph.values[given.name] = Stream(given.name, _axes(given, name))
    for node in model.graph.node:
        graph.read(node, READERS)
    return _imported(graph, [output.name for output in model.graph.output])


def _loaded(source):
    import onnx
    from google.protobuf.message import DecodeError

    name = "the ONNX model"
    try:
        if isinstance(source, bytes):
            source = onnx.load_model_from_string(source)
        elif isinstance(source, str | os.PathLike):
            name = f"the ONNX file {os.fspath(source)}"
            source = onnx.load(source)
        elif not isinstance(source, onnx.ModelProto):
            raise TypeError(
                f"source must be a path, bytes or an onnx.ModelProto, got {type(source).__name__}"
            )
        # Some writers leave out the shapes of the outputs, which the check wants.
        source = onnx.shape_inference.infer_shapes(source)
        onnx.checker.check_model(source, full_check=True)
    except (
        DecodeError,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
    ) as error:
        raise ValueError(f"{name} is not a valid ONNX model: {error}") from error
    return source, name


def _axes(given, name):
    tensor = given.type.tensor_type
    if not given.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise ValueError(f"the input {given.name!r} of {name} must be a tensor with a shape")
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    return tuple((Axis(size),) for size in sizes)


def _imported(graph, outputs):
    values = {name: graph.values.get(name) for name in outputs}
    ends = {name: value for name, value in values.items() if isinstance(value, Stream)}
    if len(ends) != 1:
        raise ValueError(
            f"{graph.name} must have one output that is a sequence, the outputs of its last layer "
            f"(and last states besides); it has {sorted(ends) or 'none'} among {outputs}"
        )
    (stream,) = ends.values()
    if stream.is_input:
        raise ValueError(f"{graph.name} has no layer in it; {supported(READERS)}")
    _check_features(graph, stream)
    stages = stream.stages
    nodes = {node for stage in stages for node in stage.nodes}
    for name, value in values.items():
        is_state = isinstance(value, Loose) and value.kind == "state" and value.name in nodes
        if name not in ends and not is_state:
            raise ValueError(
                f"the output {name!r} of {graph.name} is neither the outputs of its last layer nor "
                "a last state Y_h or Y_c of one of its recurrent nodes"
            )
    _check_lengths(graph, stages)
    for leaf in jax.tree.leaves([stage.params for stage in stages]):
        kept_by_jax(leaf, f"a weight of {graph.name}")
    if len(stages) == 1:
        return Imported(stages[0].model, stages[0].params, stages[0].carry)
    model = serial(*(stage.model for stage in stages))
    return Imported(model, tuple(stage.params for stage in stages), _carry(stages))


def _check_features(graph, stream):
    """Both directions may be an axis of their own in the output, but only before the units."""
    features = real(stream.features or ())
    axes = [axis for group in stream.groups for axis in group if axis in features]
    if tuple(axes) != features:
        raise ValueError(
            f"the output of {graph.name} must have the directions of its last layer before the "
            "units, as Y has them"
        )


def _check_lengths(graph, stages):
    lengths = {node: stage.lengths or "none" for stage in stages for node in stage.nodes}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"the recurrent nodes of {graph.name} must share one sequence_lens, because a mask is "
            f"that of all layers; they have: {lengths}"
        )


def _carry(stages):
    """The constant carries, with zeros for the layers that have none; None if no layer has one."""
    leaves = [leaf for stage in stages for leaf in jax.tree.leaves(stage.carry)]
    if not leaves:
        return None
    batch = max((leaf.shape[:-1] for leaf in leaves), key=len)
    carries = (
        stage.model.initial_carry(stage.params) if stage.carry is None else stage.carry
        for stage in stages
    )
    return jax.tree.map(
        lambda leaf: np.broadcast_to(leaf, (*batch, leaf.shape[-1])), tuple(carries)
    )
