"""The nodes, weights, inputs and outputs of an ONNX graph, one after another."""

from typing import Any

import numpy as np

from jaxrnn.interop._onnx_activations import IN_CELLS, write_activation
from jaxrnn.interop._onnx_cells import Recurrence, has_standard_activations


class Builder:
    """A graph while it is written.

    Attributes:
        current: name of the sequence so far, `[time, batch, features]`.
        width: its number of features.
    """

    def __init__(self, dtype: np.dtype, lengths: bool, carry: bool):
        """An empty graph of this dtype; the flags are those of `to_onnx`."""
        self.dtype = dtype
        self.has_lengths = lengths
        self.has_carry = carry
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.current = "xs"
        self.width: Any = None

    def add(self, op: str, inputs: list[str], name: str | None = None, **attributes: Any) -> None:
        """A node whose output is the sequence from here on."""
        output = name or f"{len(self.nodes)}.{op}"
        self.append(op, inputs, [output], **attributes)
        self.current = output

    def append(self, op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        """A node, named after its first output."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], **attributes))

    def weight(self, path: tuple[Any, ...], name: str, array: np.ndarray) -> str:
        """The name of an initializer, which is added once for each path and name."""
        from onnx import numpy_helper

        title = ".".join([*map(str, path), name])
        if title not in {weight.name for weight in self.weights}:
            # ONNX wants rows one after another, and a transposed view has columns.
            self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), title))
        return title

    def type_of(self, dtype: Any = None) -> int:
        """The number that ONNX has for a dtype, or for that of the graph."""
        from onnx import helper

        return helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))

    def recurrent(
        self,
        direction: str,
        made: list[Recurrence],
        parts: list[tuple[Any, ...]],
        path: tuple[Any, ...],
        merge: str,
    ) -> None:
        """One operator, and what makes `[time, batch, features]` of its Y.

        Args:
            direction: "forward", "reverse" or "bidirectional".
            made: the recurrence of each direction.
            parts: the path of each direction in the carry.
            path: the path of the layer in the model.
            merge: how two directions are merged, "concat", "sum" or "mean".
        """
        op, attributes = made[0].op, dict(made[0].attributes)
        num_units = made[0].weights.r.shape[1]
        weights = [
            self.weight(path, name, np.stack([getattr(one.weights, name.lower()) for one in made]))
            for name in "WRB"
        ]
        states = ["h", "c"] if op == "LSTM" else ["h"]
        lengths = "lengths" if self.has_lengths else ""
        starts = self._starts(parts, states, num_units) if self.has_carry else [""] * len(states)
        inputs = [self.current, *weights, lengths, *starts]
        if made[0].weights.p is not None:
            inputs += [self.weight(path, "P", np.stack([one.weights.p for one in made]))]
        while not inputs[-1]:
            inputs.pop()
        if not all(map(has_standard_activations, made)):
            attributes |= _activations(made, f"model{dotted(path)}")
        name = f"model{dotted(path)}"
        outputs = [f"{name}.Y", *(f"{name}.Y_{state}" for state in states if self.has_carry)]
        self.append(op, inputs, outputs, hidden_size=num_units, direction=direction, **attributes)
        if self.has_carry:
            self._ends(parts, dict(zip(states, outputs[1:], strict=True)), num_units)
        self._merge(outputs[0], len(made), num_units, merge)

    def _merge(self, output, num_directions, num_units, merge):
        self.width = num_units
        if num_directions == 1:
            self.add("Squeeze", [output, self._axis(1)])
        elif merge == "sum":
            self.add("ReduceSum", [output, self._axis(1)], keepdims=0)
        elif merge == "mean":
            # The axes are an attribute of ReduceMean, up to the opset 18.
            self.add("ReduceMean", [output], axes=[1], keepdims=0)
        else:
            self.width = 2 * num_units
            self.add("Transpose", [output], perm=[0, 2, 1, 3])
            shape = self.weight((), f"shape_{self.width}", np.array([0, 0, self.width]))
            self.add("Reshape", [self.current, shape])

    def _starts(self, parts, states, num_units):
        """Names of the initial states `[directions, batch, H]`, made of inputs of the graph."""
        for part in parts:
            self.inputs += [self._state("carry_in", part, state, num_units) for state in states]
        return [self._start(parts, state) for state in states]

    def _start(self, parts, state):
        rows = [f"start{dotted(part)}.{state}" for part in parts]
        for part, row in zip(parts, rows, strict=True):
            self.append("Unsqueeze", [_carry_name("carry_in", part, state), self._axis(0)], [row])
        if len(rows) == 1:
            return rows[0]
        both = f"{rows[0]}.both"
        self.append("Concat", rows, [both], axis=0)
        return both

    def _ends(self, parts, states, num_units):
        """Outputs of the graph of the last states `[directions, batch, H]`."""
        for part in parts:
            self.outputs += [self._state("carry_out", part, state, num_units) for state in states]
        for state, output in states.items():
            rows = [output]
            if len(parts) > 1:
                rows = [f"{output}{dotted(part)}" for part in parts]
                self.append("Split", [output], rows, axis=0)
            for part, row in zip(parts, rows, strict=True):
                name = _carry_name("carry_out", part, state)
                self.append("Squeeze", [row, self._axis(0)], [name])

    def _state(self, prefix, part, state, num_units):
        from onnx import helper

        name = _carry_name(prefix, part, state)
        return helper.make_tensor_value_info(name, self.type_of(), ["batch", num_units])

    def _axis(self, number):
        return self.weight((), f"axis_{number}", np.array([number]))


def _activations(made, name):
    written = [
        write_activation(function, IN_CELLS, f"an activation of {name}")
        for one in made
        for function in one.activations
    ]
    lists: dict[str, Any] = {"activations": [onnx_name for onnx_name, _ in written]}
    for place, greek in enumerate(("alpha", "beta")):
        numbers = [numbers[place] for _, numbers in written if len(numbers) > place]
        if numbers:
            lists[f"activation_{greek}"] = numbers
    return lists


def _carry_name(prefix, path, state):
    return f"{prefix}{dotted(path)}.{state}"


def dotted(path):
    return "".join(f".{part}" for part in path)
