"""An ONNX file of a model."""

import os
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrnn.factories import word
from jaxrnn.interop._models import check_written, flat, made_by
from jaxrnn.interop._onnx_activations import AS_NODES, write_activation
from jaxrnn.interop._onnx_builder import Builder, dotted
from jaxrnn.interop._onnx_cells import write_cell
from jaxrnn.types import Cell, Layer

if TYPE_CHECKING:
    import onnx

# The first with LayerNormalization.
OPSET = 17
_LAYERS = ("bidirectional", "dense", "dropout", "embed", "layer_norm", "lift")


def to_onnx(
    model: Cell | Layer,
    params: Any,
    path: str | os.PathLike | None = None,
    *,
    lengths: bool = False,
    carry: bool = False,
) -> "onnx.ModelProto":
    """Writes a model as an ONNX model of recurrent operators.

    The graph has LSTM, GRU and RNN nodes for any batch and length. It reads `xs [batch, time, D]`
    (tokens `[batch, time]`, int64, if the model begins with `embed`) and returns
    `ys [batch, time, C]`. It can hold `elman`, `lstm`, `gru`, `recurrent(cell)` of one of them,
    `bidirectional` of two, `embed`, `dense`, `layer_norm`, `lift` of an activation, and `serial` of
    these; `dropout` does nothing in it.

    Tokens outside of the table are an error in onnxruntime or wrap around, where ours are NaN.
    After the last real step a recurrence returns zero, and layers after it what they make of zero.

    Args:
        model: cell or layer.
        params: its parameters, all float32 or all float64. onnxruntime has no recurrent operators
            of float64.
        path: file to write, or None.
        lengths: whether there is an input `lengths [batch]`, int32, the number of real steps of
            each row: the mask of rows that are padded at their end.
        carry: whether there is an input `carry_in.…` and an output `carry_out.…` for each array of
            the carry, such as `carry_in.0.forward.h [batch, H]`, so that a stream can be run in
            pieces. Without them each row starts from zero. onnxruntime returns zeros for the carry
            of a row of length 0.

    Returns:
        The `onnx.ModelProto`, which `path` holds too.

    Raises:
        TypeError: `params` has another structure than that of the model, or another dtype.
        ValueError: A layer or an option has no operator in ONNX, or a shape is wrong.

    Example:
        >>> import jax, jaxrnn as jr
        >>> model = jr.serial(jr.embed(8), jr.lstm(16), jr.dense(3))
        >>> proto = jr.interop.to_onnx(model, model.init(jax.random.key(0), 100))
        >>> [node.op_type for node in proto.graph.node]
        ['Transpose', 'Gather', 'LSTM', 'Squeeze', 'MatMul', 'Add', 'Transpose']
    """
    import onnx

    check_written(model, params)
    params = jax.tree.map(np.asarray, params)
    proto = _Writer(_dtype(params), lengths, carry).model(model, params)
    onnx.checker.check_model(proto, full_check=True)
    if path is not None:
        onnx.save(proto, os.fspath(path))
    return proto


class _Writer(Builder):
    """The layers of a model, each as the nodes that it becomes."""

    def model(self, model, params):
        from onnx import helper

        layers = list(flat(model, params))
        tokens = made_by(layers[0][0]).factory == "embed"
        first = {"name": "xs", "elem_type": self.type_of(np.int64 if tokens else None)}
        num_inputs = None if tokens else _width(layers)
        shape = ["batch", "time"] if tokens else ["batch", "time", num_inputs]
        self.inputs.append(helper.make_tensor_value_info(shape=shape, **first))
        if self.has_lengths:
            kind = self.type_of(np.int32)
            self.inputs.append(helper.make_tensor_value_info("lengths", kind, ["batch"]))
        self.add("Transpose", [self.current], perm=[1, 0] if tokens else [1, 0, 2])
        self.width = num_inputs
        for layer, params, path in layers:
            self._layer(layer, params, path)
        self.add("Transpose", [self.current], name="ys", perm=[1, 0, 2])
        ys = helper.make_tensor_value_info("ys", self.type_of(), ["batch", "time", self.width])
        graph = helper.make_graph(
            self.nodes, "jaxrnn", self.inputs, [ys, *self.outputs], self.weights
        )
        return helper.make_model(
            graph,
            producer_name="jaxrnn",
            doc_string=repr(model),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=8,
        )

    def _layer(self, layer, params, path):
        factory, options = made_by(layer)
        if isinstance(layer, Cell):
            return self._recurrent("forward", [layer], [params], path)
        if factory == "recurrent":
            direction = "reverse" if options["reverse"] else "forward"
            return self._recurrent(direction, [options["cell"]], [params], path)
        write = getattr(self, f"_{factory}", None) if factory in _LAYERS else None
        if write is None:
            raise ValueError(
                f"model{dotted(path)} has no operator in ONNX: {layer}; these layers have: elman, "
                f"lstm, gru, recurrent, {', '.join(_LAYERS)} and serial of them"
            )
        return write(options, params, path)

    def _embed(self, options, params, path):
        self.add("Gather", [self.weight(path, "table", params.table), self.current], axis=0)
        self.width = options["num_outputs"]

    def _dense(self, options, params, path):
        self.add("MatMul", [self.current, self.weight(path, "kernel", params.kernel)])
        if params.bias is not None:
            self.add("Add", [self.current, self.weight(path, "bias", params.bias)])
        self.width = options["num_outputs"]
        if options["activation"] is not None:
            self._activation(options["activation"], path)

    def _lift(self, options, params, path):
        del params
        self._activation(options["function"], path)

    def _activation(self, function, path):
        name, numbers = write_activation(
            function, AS_NODES, f"the activation of model{dotted(path)}"
        )
        options: dict[str, Any] = dict(zip(("alpha", "beta"), numbers, strict=False))
        if name in ("Softmax", "LogSoftmax"):
            options["axis"] = -1
        self.add(name, [self.current], **options)

    def _layer_norm(self, options, params, path):
        weights = [self.weight(path, name, getattr(params, name)) for name in params._fields]
        epsilon = float(options["epsilon"])
        self.add("LayerNormalization", [self.current, *weights], axis=-1, epsilon=epsilon)

    def _dropout(self, options, params, path):
        """Nothing: the model without a key is the one that is served."""

    def _bidirectional(self, options, params, path):
        cells = [options["forward"], options["backward"] or options["forward"]]
        merge = options["merge"]
        if merge not in ("concat", "sum", "mean"):
            raise ValueError(
                f"merge of model{dotted(path)} must be concat, sum or mean for ONNX, "
                f"got {word(merge)}"
            )
        self._recurrent("bidirectional", cells, list(params), path, merge)

    def _recurrent(self, direction, cells, params, path, merge="concat"):
        parts = [("forward",), ("backward",)] if direction == "bidirectional" else [()]
        parts = [path + part for part in parts]
        made = [
            write_cell(cell, one, f"model{dotted(part)}")
            for cell, one, part in zip(cells, params, parts, strict=True)
        ]
        if len(made) == 1 or _same_node(*made):
            self.recurrent(direction, made, parts, path, merge)
            return
        # Two nodes: one cannot have two sizes, clips or kinds of cell.
        before, ends, widths = self.current, [], []
        for one, part, way in zip(made, parts, ("forward", "reverse"), strict=True):
            self.current = before
            self.recurrent(way, [one], [part], part, "concat")
            ends.append(self.current)
            widths.append(self.width)
        if merge == "concat":
            self.add("Concat", ends, axis=2)
            self.width = sum(widths)
            return
        self.add(merge.capitalize(), ends)


def _width(layers):
    """D of the inputs, which the first layer with a kernel or a scale shows."""
    for _, params, _ in layers:
        leaves = jax.tree.leaves(params)
        if leaves:
            return leaves[0].shape[0]
    return None


def _dtype(params):
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(params)} or {np.dtype(np.float32)}
    if len(dtypes) > 1 or not dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}:
        raise TypeError(
            "params must be all float32 or all float64 for ONNX, got "
            f"{', '.join(sorted(map(str, dtypes)))}"
        )
    return dtypes.pop()


def _same_node(forward, backward):
    """Whether two directions can be one node: all but weights and activations is the same."""
    shapes = [jax.tree.map(np.shape, one.weights._replace(w=None)) for one in (forward, backward)]
    return (forward.op, forward.attributes, shapes[0]) == (
        backward.op,
        backward.attributes,
        shapes[1],
    )
