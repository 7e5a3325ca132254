"""An ONNX file of a model."""

import os
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.tree_util import tree_flatten_with_path

from jaxrnn.engine.parameters import check_params
from jaxrnn.interop._models import made_by
from jaxrnn.interop._onnx_activations import AS_NODES, IN_CELLS, write_activation
from jaxrnn.interop._onnx_cells import has_standard_activations, write_cell
from jaxrnn.types import Cell, Layer

if TYPE_CHECKING:
    import onnx

# The first with LayerNormalization.
OPSET = 17


def to_onnx(
    model: Cell | Layer,
    params: Any,
    path: str | os.PathLike | None = None,
    *,
    lengths: bool = False,
    carry: bool = False,
) -> "onnx.ModelProto":
    """The model as an ONNX graph of LSTM, GRU and RNN nodes, for any batch and length.

    The graph reads `xs [batch, time, D]` (tokens `[batch, time]`, int64, if the model begins with
    `embed`) and returns `ys [batch, time, C]`. It can hold `elman`, `lstm`, `gru`,
    `recurrent(cell)` of one of them, `bidirectional` of two, `embed`, `dense`, `layer_norm`,
    `lift` of an activation, and `serial` of these; `dropout` does nothing in it.

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
            pieces. Without them each row starts from zero.

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

    check_params(model, params, None)
    writer = _Writer(jax.tree.map(np.asarray, params), lengths, carry)
    proto = writer.model(model)
    onnx.checker.check_model(proto, full_check=True)
    if path is not None:
        onnx.save(proto, os.fspath(path))
    return proto


class _Writer:
    """The nodes, weights, inputs and outputs of a graph, layer by layer.

    Between the layers the sequence is `[time, batch, features]`.
    """

    def __init__(self, params, lengths, carry):
        self.params = params
        self.dtype = _dtype(params)
        self.has_lengths = lengths
        self.has_carry = carry
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.current = "xs"
        self.width = None

    def model(self, model):
        from onnx import helper

        layers = _flat(model, self.params, ())
        tokens = made_by(layers[0][0]).factory == "embed"
        first = {"name": "xs", "elem_type": self._type(np.int64 if tokens else None)}
        num_inputs = None if tokens else _width(layers)
        shape = ["batch", "time"] if tokens else ["batch", "time", num_inputs]
        self.inputs.append(helper.make_tensor_value_info(shape=shape, **first))
        if self.has_lengths:
            kind = self._type(np.int32)
            self.inputs.append(helper.make_tensor_value_info("lengths", kind, ["batch"]))
        self._add("Transpose", [self.current], perm=[1, 0] if tokens else [1, 0, 2])
        self.width = num_inputs
        for layer, params, path in layers:
            self._layer(layer, params, path)
        self._add("Transpose", [self.current], name="ys", perm=[1, 0, 2])
        ys = helper.make_tensor_value_info("ys", self._type(), ["batch", "time", self.width])
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
                f"model{_dotted(path)} has no operator in ONNX: {layer}; these layers have: elman, "
                f"lstm, gru, recurrent, {', '.join(_LAYERS)} and serial of them"
            )
        return write(options, params, path)

    def _embed(self, options, params, path):
        self._add("Gather", [self._weight(path, "table", params.table), self.current], axis=0)
        self.width = options["num_outputs"]

    def _dense(self, options, params, path):
        self._add("MatMul", [self.current, self._weight(path, "kernel", params.kernel)])
        if params.bias is not None:
            self._add("Add", [self.current, self._weight(path, "bias", params.bias)])
        self.width = options["num_outputs"]
        if options["activation"] is not None:
            self._activation(options["activation"], path)

    def _lift(self, options, params, path):
        del params
        self._activation(options["function"], path)

    def _activation(self, function, path):
        name, numbers = write_activation(
            function, AS_NODES, f"the activation of model{_dotted(path)}"
        )
        options = dict(zip(("alpha", "beta"), numbers, strict=False))
        if name in ("Softmax", "LogSoftmax"):
            options["axis"] = -1
        self._add(name, [self.current], **options)

    def _layer_norm(self, options, params, path):
        weights = [self._weight(path, name, getattr(params, name)) for name in params._fields]
        epsilon = float(options["epsilon"])
        self._add("LayerNormalization", [self.current, *weights], axis=-1, epsilon=epsilon)

    def _dropout(self, options, params, path):
        """Nothing: the model without a key is the one that is served."""

    def _bidirectional(self, options, params, path):
        cells = [options["forward"], options["backward"] or options["forward"]]
        merge = options["merge"]
        if merge not in ("concat", "sum", "mean"):
            raise ValueError(
                f"merge of model{_dotted(path)} must be concat, sum or mean for ONNX, got {merge}"
            )
        self._recurrent("bidirectional", cells, list(params), path, merge)

    def _recurrent(self, direction, cells, params, path, merge="concat"):
        parts = [("forward",), ("backward",)] if direction == "bidirectional" else [()]
        parts = [path + part for part in parts]
        made = [
            write_cell(cell, one, f"model{_dotted(part)}")
            for cell, one, part in zip(cells, params, parts, strict=True)
        ]
        if len(made) == 1 or _same_node(*made):
            self._node(direction, made, parts, path, merge)
            return
        # Two nodes: one cannot have two sizes, clips or kinds of cell.
        before, ends, widths = self.current, [], []
        for one, part, way in zip(made, parts, ("forward", "reverse"), strict=True):
            self.current = before
            self._node(way, [one], [part], part, "concat")
            ends.append(self.current)
            widths.append(self.width)
        if merge == "concat":
            self._add("Concat", ends, axis=2)
            self.width = sum(widths)
            return
        self._add(merge.capitalize(), ends)

    def _node(self, direction, made, parts, path, merge):
        """One operator, and what makes `[time, batch, features]` of its Y."""
        op, attributes = made[0].op, dict(made[0].attributes)
        num_units = made[0].weights.r.shape[1]
        weights = [
            self._weight(path, name, np.stack([getattr(one.weights, name.lower()) for one in made]))
            for name in "WRB"
        ]
        states = ["h", "c"] if op == "LSTM" else ["h"]
        lengths = "lengths" if self.has_lengths else ""
        starts = self._starts(parts, states, num_units) if self.has_carry else [""] * len(states)
        inputs = [self.current, *weights, lengths, *starts]
        if made[0].weights.p is not None:
            inputs += [self._weight(path, "P", np.stack([one.weights.p for one in made]))]
        while not inputs[-1]:
            inputs.pop()
        if not all(map(has_standard_activations, made)):
            attributes |= _activations(made, f"model{_dotted(path)}")
        name = f"model{_dotted(path)}"
        outputs = [f"{name}.Y", *(f"{name}.Y_{state}" for state in states if self.has_carry)]
        self._append(op, inputs, outputs, hidden_size=num_units, direction=direction, **attributes)
        if self.has_carry:
            self._ends(parts, dict(zip(states, outputs[1:], strict=True)), num_units)
        self._merge(outputs[0], len(made), num_units, merge)

    def _merge(self, output, num_directions, num_units, merge):
        self.width = num_units
        if num_directions == 1:
            self._add("Squeeze", [output, self._axis(1)])
        elif merge == "sum":
            self._add("ReduceSum", [output, self._axis(1)], keepdims=0)
        elif merge == "mean":
            # The axes are an attribute of ReduceMean, up to the opset 18.
            self._add("ReduceMean", [output], axes=[1], keepdims=0)
        else:
            self.width = 2 * num_units
            self._add("Transpose", [output], perm=[0, 2, 1, 3])
            shape = self._weight((), f"shape_{self.width}", np.array([0, 0, self.width]))
            self._add("Reshape", [self.current, shape])

    def _starts(self, parts, states, num_units):
        """Names of the initial states `[directions, batch, H]`, made of inputs of the graph."""
        for part in parts:
            self.inputs += [self._state("carry_in", part, state, num_units) for state in states]
        return [self._start(parts, state) for state in states]

    def _start(self, parts, state):
        rows = [f"start{_dotted(part)}.{state}" for part in parts]
        for part, row in zip(parts, rows, strict=True):
            self._append("Unsqueeze", [_carry_name("carry_in", part, state), self._axis(0)], [row])
        if len(rows) == 1:
            return rows[0]
        both = f"{rows[0]}.both"
        self._append("Concat", rows, [both], axis=0)
        return both

    def _ends(self, parts, states, num_units):
        """Outputs of the graph of the last states `[directions, batch, H]`."""
        for part in parts:
            self.outputs += [self._state("carry_out", part, state, num_units) for state in states]
        for state, output in states.items():
            rows = [output]
            if len(parts) > 1:
                rows = [f"{output}{_dotted(part)}" for part in parts]
                self._append("Split", [output], rows, axis=0)
            for part, row in zip(parts, rows, strict=True):
                name = _carry_name("carry_out", part, state)
                self._append("Squeeze", [row, self._axis(0)], [name])

    def _state(self, prefix, part, state, num_units):
        from onnx import helper

        name = _carry_name(prefix, part, state)
        return helper.make_tensor_value_info(name, self._type(), ["batch", num_units])

    def _axis(self, number):
        return self._weight((), f"axis_{number}", np.array([number]))

    def _weight(self, path, name, array):
        """An initializer, once for each name."""
        from onnx import numpy_helper

        title = ".".join([*map(str, path), name])
        if title not in {weight.name for weight in self.weights}:
            # ONNX wants rows one after another, and a transposed view has columns.
            self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), title))
        return title

    def _add(self, op, inputs, name=None, **attributes):
        """A node whose output is the sequence from here on."""
        output = name or f"{len(self.nodes)}.{op}"
        self._append(op, inputs, [output], **attributes)
        self.current = output

    def _append(self, op, inputs, outputs, **attributes):
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], **attributes))

    def _type(self, dtype=None):
        from onnx import helper

        return helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))


_LAYERS = ("bidirectional", "dense", "dropout", "embed", "layer_norm", "lift")


def _flat(model, params, path):
    """The layers of nested stacks with their params and paths."""
    made = made_by(model)
    if made.factory != "serial":
        return [(model, params, path)]
    parts = enumerate(zip(made.options["layers"], params, strict=True))
    return [one for number, (layer, part) in parts for one in _flat(layer, part, (*path, number))]


def _width(layers):
    """D of the inputs, which the first layer with a kernel or a scale shows."""
    for _, params, _ in layers:
        leaves = tree_flatten_with_path(params)[0]
        if leaves:
            return leaves[0][1].shape[0]
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


def _activations(made, name):
    written = [
        write_activation(function, IN_CELLS, f"an activation of {name}")
        for one in made
        for function in one.activations
    ]
    lists = {"activations": [onnx_name for onnx_name, _ in written]}
    for place, greek in enumerate(("alpha", "beta")):
        numbers = [numbers[place] for _, numbers in written if len(numbers) > place]
        if numbers:
            lists[f"activation_{greek}"] = numbers
    return lists


def _carry_name(prefix, path, state):
    return f"{prefix}{_dotted(path)}.{state}"


def _dotted(path):
    return "".join(f".{part}" for part in path)
