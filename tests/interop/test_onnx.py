"""ONNX files in and out, against onnxruntime; torch's exporter where it is installed."""

import functools
import io
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxrnn as jr
from jaxrnn.interop import from_onnx, to_onnx

onnx = pytest.importorskip("onnx", reason="needs onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

B, T, D, H = 2, 5, 3, 4
LENGTHS = np.array([5, 3], np.int32)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OPERATORS = {
    "lstm": ("LSTM", {}),
    "lstm peephole": ("LSTM", {"peephole": 1}),
    "lstm input forget": ("LSTM", {"input_forget": 1}),
    "lstm peephole, input forget": ("LSTM", {"peephole": 1, "input_forget": 1}),
    "gru reset after": ("GRU", {"linear_before_reset": 1}),
    "gru reset before": ("GRU", {}),
    "rnn tanh": ("RNN", {}),
    "rnn relu": ("RNN", {"activations": ["Relu"]}),
    "rnn sigmoid": ("RNN", {"activations": ["Sigmoid"]}),
}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def run(model, **feeds):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def graph_of(nodes, inputs, outputs, weights=(), opset=17):
    """A model of nodes; inputs and outputs are names with shapes, ints or open, weights arrays."""
    kinds = {"lengths": TensorProto.INT32, "tokens": TensorProto.INT64}
    inputs, outputs = (
        [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
            for name, shape in given.items()
        ]
        for given in (inputs, outputs)
    )
    initializers = [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def recurrent_model(op, direction="forward", with_lengths=False, states=True, **options):
    """One node with random weights, and all that it can read and return."""
    rng, dirs, gates = np.random.default_rng(len(op)), DIRECTIONS[direction], GATES[op]
    options = dict(options)
    shapes = {"W": (gates * H, D), "R": (gates * H, H), "B": (2 * gates * H,)}
    if options.pop("peephole", False):
        shapes["P"] = (3 * H,)
    weights = {
        name: rng.standard_normal((dirs, *shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    names = ["h", "c"] if op == "LSTM" else ["h"]
    inputs = {"X": ["t", "b", D]}
    inputs |= {"lengths": ["b"]} if with_lengths else {}
    inputs |= {f"initial_{name}": [dirs, "b", H] for name in names} if states else {}
    node_inputs = ["X", "W", "R", "B", "lengths" * with_lengths]
    node_inputs += [f"initial_{name}" if states else "" for name in names]
    node_inputs += ["P"] * ("P" in weights)
    outputs = {"Y": ["t", dirs, "b", H]} | {f"Y_{name}": [dirs, "b", H] for name in names}
    node = helper.make_node(
        op, node_inputs, list(outputs), "cell", hidden_size=H, direction=direction, **options
    )
    return graph_of([node], inputs, outputs, weights)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def carry_of(imported, states):
    """The carry of a model of one recurrence from `[directions, batch, H]`."""
    structure = jax.tree.structure(imported.model.initial_carry(imported.params))
    rows = [state[direction] for direction in range(len(states[0])) for state in states]
    return jax.tree.unflatten(structure, rows)


def against_onnxruntime(proto, op, direction, with_lengths, tolerance=2e-6):
    dirs = DIRECTIONS[direction]
    xs = numbers(T, B, D)
    states = [numbers(dirs, B, H, seed=seed) for seed in range(1 + (op == "LSTM"))]
    feeds = {"X": xs} | {f"initial_{n}": state for n, state in zip("hc", states, strict=False)}
    feeds |= {"lengths": LENGTHS} if with_lengths else {}
    theirs = run(proto, **feeds)
    imported = from_onnx(proto)
    # One program for both: a mask of ones changes nothing.
    mask = jr.mask_from_lengths(LENGTHS if with_lengths else np.full(B, T), T)
    rollout = jr.unroll(
        imported.model, imported.params, xs.swapaxes(0, 1),
        mask=mask, carry=carry_of(imported, states),
    )  # fmt: skip
    ys = np.moveaxis(theirs["Y"], 1, 2).reshape(T, B, -1).swapaxes(0, 1)
    np.testing.assert_allclose(rollout.outputs, ys, atol=tolerance)
    last = carry_of(imported, [theirs[name] for name in ("Y_h", "Y_c") if name in theirs])
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=tolerance), rollout.carry, last)
    # And out again: the same numbers from our file, and the same model and arrays read from it.
    ours = to_onnx(imported.model, imported.params, lengths=True, carry=True)
    assert sum(node.op_type == op for node in ours.graph.node) == 1
    names = [given.name for given in ours.graph.input if given.name.startswith("carry_in")]
    leaves = jax.tree.leaves(carry_of(imported, states))
    lengths = LENGTHS if with_lengths else np.full(B, T, np.int32)
    given = dict(zip(names, leaves, strict=True))
    written = run(ours, xs=xs.swapaxes(0, 1), lengths=lengths, **given)
    np.testing.assert_allclose(written.pop("ys"), ys, atol=tolerance)
    for leaf, want in zip(written.values(), jax.tree.leaves(last), strict=True):
        np.testing.assert_allclose(leaf, want, atol=tolerance)
    again = from_onnx(ours)
    assert again.model == imported.model
    jax.tree.map(np.testing.assert_array_equal, again.params, imported.params)
    return imported


@pytest.mark.parametrize("with_lengths", [False, True], ids=["full", "lengths"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_operators(name, direction, with_lengths):
    op, options = OPERATORS[name]
    options = dict(options)
    if "activations" in options:
        options["activations"] = options["activations"] * DIRECTIONS[direction]
    proto = recurrent_model(op, direction, with_lengths, **options)
    against_onnxruntime(proto, op, direction, with_lengths)
