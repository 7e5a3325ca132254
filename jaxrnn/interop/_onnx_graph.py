"""The tensors of an ONNX graph by name, and nodes of constants computed as they are met."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from jaxrnn.interop._onnx_values import Filled, Group, Loose, Sizes, Stream, real


class Node(NamedTuple):
    """A node of the graph as its reader sees it.

    Attributes:
        op: operator.
        title: what errors call the node.
        inputs: what its inputs are; None is one that was left out.
        input_names: their names.
        attributes: attributes as Python values.
        opset: version of the operators.
        clock: the axis that the recurrent nodes before it have read as time.
    """

    op: str
    title: str
    inputs: tuple[Any, ...]
    input_names: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int
    clock: list[Group]

    def input(self, number: int) -> Any:
        """What an input is; None if it was left out."""
        return self.inputs[number] if number < len(self.inputs) else None

    def constant(self, number: int, what: str) -> np.ndarray | None:
        """An input that has to be a constant; None if it was left out."""
        value = self.input(number)
        if value is not None and not isinstance(value, np.ndarray):
            raise ValueError(
                f"{what} of {self.title} must be a constant, got what {described(value)}"
            )
        return value

    def axes(self, number: int = 1) -> list[int] | None:
        """`axes`, an attribute in old versions and an input in new ones; None if left out."""
        if "axes" in self.attributes:
            return list(self.attributes["axes"])
        value = self.constant(number, "axes")
        return None if value is None else [int(axis) for axis in value.ravel()]

    def stream(self) -> Stream:
        """Input 0, which has to be a sequence."""
        value = self.input(0)
        if isinstance(value, Stream):
            return value
        raise ValueError(
            f"{self.title} must read the outputs of the layer before it, and reads what "
            f"{described(value)}"
        )

    def reads_time(self, group: Group) -> None:
        """Says that the axis is time, which it must be for all recurrent nodes."""
        if not self.clock:
            self.clock.append(real(group))
        elif real(group) != self.clock[0]:
            raise ValueError(
                f"{self.title} reads another axis as time than the recurrent nodes before it"
            )


class Graph:
    """What the tensors of a graph are, filled in node by node."""

    def __init__(self, model: Any, name: str):
        """Begins with the initializers; `name` is what errors call the model."""
        from onnx import numpy_helper

        self.name = name
        self.values: dict[str, Any] = {}
        self._opset_imports = list(model.opset_import)
        self._opset = max(
            [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")],
            default=1,
        )
        self._ir_version = model.ir_version
        self._clock: list[Group] = []
        self._titles: set[str] = set()
        if model.graph.sparse_initializer:
            raise ValueError(f"{name} has sparse weights, which cannot be read")
        for initializer in model.graph.initializer:
            try:
                self.values[initializer.name] = numpy_helper.to_array(initializer)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"the weight {initializer.name!r} of {name} cannot be read: {error}"
                ) from error

    def read(self, proto: Any, readers: dict[str, Callable[[Node], Any]]) -> None:
        """Finds out what the outputs of a node are."""
        node = self._node(proto)
        given = [value for value in node.inputs if value is not None]
        if proto.domain not in ("", "ai.onnx"):
            raise ValueError(
                f"{node.title} is of the domain {proto.domain!r}; {supported(readers)}"
            )
        if all(isinstance(value, np.ndarray) for value in given):
            outputs = self._folded(proto, node)
        elif proto.op_type in _MOVING and isinstance(node.input(0), Loose):
            outputs = node.input(0)
        elif proto.op_type in _MOVING | {"Concat"} and Filled in map(type, given):
            outputs = [Filled(array) for array in self._folded(proto, node)]
        elif proto.op_type in readers:
            outputs = readers[proto.op_type](node)
        else:
            raise ValueError(f"{node.title} cannot be read; {supported(readers)}")
        if not isinstance(outputs, list):
            outputs = [outputs] * (len(proto.output) if isinstance(outputs, Loose) else 1)
        outputs += [Loose("other", node.title)] * (len(proto.output) - len(outputs))
        self.values |= zip(proto.output, map(_known, outputs), strict=False)

    def _node(self, proto):
        from onnx import helper

        attributes = {
            attribute.name: _text(helper.get_attribute_value(attribute))
            for attribute in proto.attribute
        }
        inputs = tuple(self.values[name] if name else None for name in proto.input)
        title = name_of(proto)
        # Files may give one name to several nodes.
        if title in self._titles:
            title = f"{title} that makes {proto.output[0]!r}"
        self._titles.add(title)
        return Node(
            proto.op_type, title, inputs, tuple(proto.input), attributes, self._opset, self._clock
        )

    def _folded(self, proto, node):
        """The outputs of a node of constants, by the reference implementation of ONNX."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        if proto.op_type == "Constant" and "value" not in node.attributes:
            (value,) = node.attributes.values()
            return [np.asarray(value)]
        feeds = {
            name: value.array if isinstance(value, Filled) else value
            for name, value in zip(node.input_names, node.inputs, strict=True)
            if name
        }
        inputs, outputs = (
            [helper.make_empty_tensor_value_info(name) for name in names if name]
            for names in (feeds, proto.output)
        )
        graph = helper.make_graph([proto], "constant", inputs, outputs)
        model = helper.make_model(
            graph, opset_imports=self._opset_imports, ir_version=self._ir_version
        )
        try:
            return list(map(np.asarray, ReferenceEvaluator(model).run(None, feeds)))
        except Exception as error:
            raise ValueError(f"{node.title} of constants cannot be computed: {error}") from error


# What moves numbers and computes none: the way of an initial state from a constant that is repeated
# along the batch, or from an input.
_MOVING = set("Cast Gather Identity Reshape Slice Split Squeeze Transpose Unsqueeze".split())


def _known(value):
    """Sizes that the file does not leave open, as the constant that they are."""
    if not isinstance(value, Sizes) or not all(isinstance(size, int) for size in value.entries):
        return value
    entries = np.array(value.entries, np.int64)
    return entries if value.is_vector else entries[0]


def name_of(proto: Any) -> str:
    """What errors call a node: its name, or its first output if it has none."""
    name = repr(proto.name) if proto.name else f"that makes {proto.output[0]!r}"
    return f"the node {name} ({proto.op_type})"


def supported(readers: Iterable[str]) -> str:
    """The sentence of errors on what a graph may consist of."""
    return f"these operators can be read: {', '.join(sorted(readers))}, and any of constants"


def described(value: Any) -> str:
    """A value after the word "what", for errors."""
    if isinstance(value, Stream):
        return f"is made from the input {value.source!r}"
    if isinstance(value, Loose) and value.kind == "other":
        return f"is an output of {value.name} that is not its first one"
    if isinstance(value, Loose):
        return (
            f"is the last state of {value.name} (use the outputs Y, and `jr.last_valid` after "
            "`unroll`)"
            if value.kind == "state"
            else f"is a part of the input {value.name!r}"
        )
    if isinstance(value, Sizes):
        return "is a shape"
    return "is a constant"


def _text(value):
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [_text(item) for item in value] if isinstance(value, list) else value
