"""ONNX files in and out, against onnxruntime; torch's exporter where it is installed."""

import functools
import io
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import pages

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


ACTIVATED = {
    "lstm": ("LSTM", ["HardSigmoid", "Softsign", "Elu"], [0.3, 0.5], [0.4], 1.5),
    "lstm, one for g and c": ("LSTM", ["Sigmoid", "LeakyRelu", "LeakyRelu"], [0.1, 0.1], [], None),
    "lstm, all at once": (
        "LSTM",
        ["Affine", "ScaledTanh", "Softplus"],
        [0.2, 1.7],
        [0.5, 0.6],
        2.0,
    ),
    "gru": ("GRU", ["hardsigmoid", "LeakyRelu"], [], [], None),
    "gru clipped": ("GRU", ["Sigmoid", "Tanh"], [], [], 0.5),
    "rnn": ("RNN", ["ThresholdedRelu"], [0.1], [], 3.0),
    "rnn softplus": ("RNN", ["Softplus"], [], [], 0.7),
}


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name", ACTIVATED)
def test_activations_and_clip(name, direction):
    op, names, alphas, betas, clip = ACTIVATED[name]
    dirs = DIRECTIONS[direction]
    options = {"activations": names * dirs} | ({} if clip is None else {"clip": clip})
    lists = {"activation_alpha": alphas * dirs, "activation_beta": betas * dirs}
    options |= {key: value for key, value in lists.items() if value}
    imported = against_onnxruntime(
        recurrent_model(op, direction, **options), op, direction, False, 1e-5
    )
    if name == "lstm, one for g and c" and dirs == 1:
        slope = functools.partial(jax.nn.leaky_relu, negative_slope=0.1)
        assert imported.model == jr.lstm(H, activation=slope)


def test_directions_with_activations_of_their_own():
    names = ["Sigmoid", "Tanh", "HardSigmoid", "Relu"]
    proto = recurrent_model("GRU", "bidirectional", activations=names)
    imported = against_onnxruntime(proto, "GRU", "bidirectional", False)
    backward = {"gate_activation": jr.cells.hard_sigmoid, "activation": jax.nn.relu}
    assert imported.model == jr.bidirectional(
        jr.gru(H, reset_after=False), jr.gru(H, reset_after=False, **backward)
    )


def test_models_are_those_that_one_would_write():
    assert from_onnx(recurrent_model("LSTM")).model == jr.lstm(H)
    assert from_onnx(recurrent_model("GRU", linear_before_reset=1)).model == jr.gru(H)
    reverse = from_onnx(recurrent_model("RNN", "reverse")).model
    assert reverse == jr.recurrent(jr.elman(H), reverse=True)
    assert from_onnx(recurrent_model("LSTM", "bidirectional")).model == jr.bidirectional(jr.lstm(H))


def test_a_batch_major_node_is_the_same():
    # onnxruntime does not run it.
    proto = recurrent_model("LSTM", "bidirectional", states=False)
    major = onnx.ModelProto.FromString(proto.SerializeToString())
    major.graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    del major.graph.output[1:]
    start = numbers(2, 3, H)
    for model, array in ((proto, start), (major, start.swapaxes(0, 1).copy())):
        model.graph.node[0].input[5] = "start"
        model.graph.initializer.append(numpy_helper.from_array(array, "start"))
    one, other = from_onnx(proto), from_onnx(major)
    assert one.model == other.model
    jax.tree.map(np.testing.assert_array_equal, one[1:], other[1:])
    np.testing.assert_array_equal(one.carry.backward.h, start[1])


STACKS = {
    "tokens": lambda: jr.serial(
        jr.embed(D), jr.bidirectional(jr.lstm(3)), jr.dropout(0.1), jr.layer_norm(1e-3),
        jr.gru(4), jr.dense(2, jax.nn.softmax),
    ),
    "two sizes": lambda: jr.serial(
        jr.bidirectional(jr.gru(3), jr.lstm(2, peephole=True)),
        jr.bidirectional(jr.gru(2), jr.gru(3)),
        jr.recurrent(jr.elman(2), reverse=True),
    ),
    "sum": lambda: jr.serial(
        jr.bidirectional(jr.elman(3), merge="sum"), jr.bidirectional(jr.gru(2), merge="mean"),
        jr.bidirectional(jr.lstm(2), jr.gru(2), merge="mean"), jr.dense(2, use_bias=False),
    ),
    "nested": lambda: jr.serial(
        jr.dense(3, functools.partial(jax.nn.elu, alpha=0.5)),
        jr.serial(jr.gru(3), jr.lift(jnp.tanh)),
        jr.lstm(2, coupled=True, clip=1.0), jr.lift(jax.nn.log_softmax),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STACKS)
def test_stacks(name, tmp_path):
    model = STACKS[name]()
    tokens = name == "tokens"
    params = random_params(model, 7 if tokens else D)
    xs = np.random.default_rng(0).integers(0, 7, (B, T)) if tokens else numbers(B, T, D)
    path = tmp_path / "model.onnx"
    proto = to_onnx(model, params, path, lengths=True)
    assert onnx.load(path) == proto
    mask = jr.mask_from_lengths(LENGTHS, T)
    ys = np.asarray(jr.unroll(model, params, xs, mask=mask).outputs)
    theirs = run(proto, xs=xs, lengths=LENGTHS)["ys"]
    np.testing.assert_allclose(theirs[mask], ys[mask], atol=2e-6)
    imported = from_onnx(path)
    np.testing.assert_allclose(
        jr.unroll(imported.model, imported.params, xs, mask=mask).outputs, ys, atol=1e-6
    )
    assert imported.carry is None
    for leaf, want in zip(jax.tree.leaves(imported.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(leaf, want)
    assert from_onnx(path.read_bytes()).model == imported.model


def random_params(model, num_inputs, dtype=np.float32):
    """Parameters that no initialiser makes, so that nothing is zero; without compiling `init`."""
    return random_like(
        jax.eval_shape(lambda key: model.init(key, num_inputs), jax.random.key(0)), dtype
    )


def random_like(tree, dtype=np.float32):
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: 0.5 * rng.standard_normal(leaf.shape).astype(dtype), tree)


def test_options_that_are_arrays():
    activation = functools.partial(jax.nn.elu, alpha=np.float32(0.5))
    model = jr.serial(jr.elman(H, activation), jr.dense(2, activation))
    imported = from_onnx(to_onnx(model, random_params(model, D)))
    half = functools.partial(jax.nn.elu, alpha=0.5)
    assert imported.model == jr.serial(jr.elman(H, half), jr.dense(2, half))


def test_activations_after_dense_layers():
    functions = [
        jax.nn.elu, jr.cells.hard_sigmoid, jax.nn.leaky_relu, jax.nn.relu, jax.nn.sigmoid,
        jax.nn.softplus, jax.nn.soft_sign, jnp.tanh, jax.nn.log_softmax, jax.nn.selu,
        jax.nn.softmax, functools.partial(jr.cells.hard_sigmoid, slope=0.3, offset=0.4),
        functools.partial(jax.nn.leaky_relu, negative_slope=0.2),
    ]  # fmt: skip
    model = jr.serial(*(jr.dense(3, function) for function in functions))
    params, xs = random_params(model, D), numbers(B, T, D)
    proto = to_onnx(model, params)
    ours = jr.unroll(model, params, xs).outputs
    np.testing.assert_allclose(run(proto, xs=xs)["ys"], ours, atol=2e-6)
    assert from_onnx(proto).model == model


def test_axes_as_attributes_of_older_files():
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["batch of one"], axes=[1]),
        helper.make_node("LSTM", ["batch of one", "W", "R", "B"], ["Y"], hidden_size=H),
        node("Squeeze", "Y", "y", axes=[1]),
    ]
    x, y, weights = {"x": ["t", D]}, {"y": ["t", 1, H]}, lstm_weights(1)
    proto, xs = graph_of(nodes, x, y, weights, opset=11), numbers(T, D)
    imported = from_onnx(proto)
    ours = jr.unroll(imported.model, imported.params, xs).outputs
    np.testing.assert_allclose(ours, run(proto, x=xs)["y"][:, 0], atol=2e-6)
    nodes[2:] = [
        node("Slice", "Y", "cut", starts=[0], ends=[1], axes=[1]),
        node("Squeeze", "cut", "y", axes=[1]),
    ]
    older = graph_of(nodes, x, y, weights, opset=9)
    assert from_onnx(older).model == imported.model == jr.lstm(H)


CAUSAL = ("gru", "lstm", "elman")


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.data())
def test_streams_run_in_pieces(data):
    makes = [data.draw(st.sampled_from(CAUSAL)) for _ in range(data.draw(st.integers(1, 3)))]
    sizes = [data.draw(st.integers(1, 4)) for _ in makes]
    model = jr.serial(*(getattr(jr, make)(size) for make, size in zip(makes, sizes, strict=True)))
    num_inputs, length = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 6))
    params = random_params(model, num_inputs)
    xs = numbers(B, length, num_inputs)
    proto = to_onnx(model, params, carry=True)
    carry = {given.name: None for given in proto.graph.input if given.name.startswith("carry")}
    zeros = jax.tree.leaves(model.initial_carry(params, (B,)))
    carry = dict(zip(carry, map(np.asarray, zeros), strict=True))
    ys, cut = [], data.draw(st.integers(1, length - 1))
    for piece in (xs[:, :cut], xs[:, cut:]):
        out = run(proto, xs=piece, **carry)
        ys.append(out.pop("ys"))
        carry = {name.replace("out", "in"): leaf for name, leaf in out.items()}
    rollout = jr.unroll(model, params, xs)
    np.testing.assert_allclose(np.concatenate(ys, 1), rollout.outputs, atol=2e-6)
    for leaf, want in zip(carry.values(), jax.tree.leaves(rollout.carry), strict=True):
        np.testing.assert_allclose(leaf, want, atol=2e-6)


def test_float64_is_not_cut_in_silence():
    proto = graph_of([node("MatMul", "x K", "y")], {"x": [T, B, D]}, {"y": None},
                     {"K": numbers(D, 2).astype(np.float64)})  # fmt: skip
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    with pytest.raises(ValueError, match="is float64, which JAX would cut to float32"):
        from_onnx(proto)


def test_float64_is_written_and_read(x64):
    model = jr.serial(jr.lstm(3, peephole=True), jr.dense(2))
    params = random_params(model, D, np.float64)
    imported = from_onnx(to_onnx(model, params))
    for leaf, want in zip(jax.tree.leaves(imported.params), jax.tree.leaves(params), strict=True):
        assert leaf.dtype == np.float64
        np.testing.assert_array_equal(leaf, want)


def node(op, inputs, output, name="", **attributes):
    return helper.make_node(op, inputs.split(" "), output.split(" "), name, **attributes)


def ints(*values):
    return np.array(values, np.int64)


def lstm_weights(dirs=2, num_inputs=D):
    return {
        "W": numbers(dirs, 4 * H, num_inputs),
        "R": numbers(dirs, 4 * H, H, seed=1),
        "B": numbers(dirs, 8 * H, seed=2),
    }


def agrees(proto, xs, time_major=False):
    """Imports a model of the input x, which must agree with onnxruntime on `[B, T, ...]`."""
    theirs = run(proto, x=xs.swapaxes(0, 1) if time_major else xs)
    ys = next(iter(theirs.values()))
    imported = from_onnx(proto)
    ours = jr.unroll(imported.model, imported.params, xs).outputs
    np.testing.assert_allclose(ours, ys.swapaxes(0, 1) if time_major else ys, atol=2e-6)
    return imported


def test_directions_taken_apart_and_joined_by_hand():
    # As tf2onnx writes both directions of keras: sliced, squeezed, turned round and concatenated.
    weights = lstm_weights() | {"zero": ints(0), "one": ints(1), "two": ints(2)}
    both = node("LSTM", "xt W R B", "Y", hidden_size=H, direction="bidirectional")
    nodes = [
        node("Transpose", "x", "xt", perm=[1, 0, 2]),
        both,
        node("Slice", "Y zero one one", "first"),
        node("Slice", "Y one two one", "second"),
        node("Squeeze", "first one", "f"),
        node("Squeeze", "second one", "b"),
        node("Transpose", "f", "ft", perm=[1, 0, 2]),
        node("Transpose", "b", "bt", perm=[1, 0, 2]),
        node("Concat", "ft bt", "y", axis=2),
    ]
    inputs, outputs = {"x": ["b", "t", D]}, {"y": ["b", "t", 2 * H]}
    proto = graph_of(nodes, inputs, outputs, weights)
    assert agrees(proto, numbers(B, T, D)).model == jr.bidirectional(jr.lstm(H))
    for op, merge in (("Sum", "sum"), ("Mean", "mean"), ("Add", "sum")):
        nodes[-1] = node(op, "bt ft", "y")
        proto = graph_of(nodes, inputs, {"y": ["b", "t", H]}, weights)
        assert agrees(proto, numbers(B, T, D)).model == jr.bidirectional(jr.lstm(H), merge=merge)
    # One direction alone, by Split and by Gather.
    split = node("Split", "Y", "first second", axis=1)
    gather = node("Gather", "Y index", "b", axis=1)
    rest = node("Transpose", "b", "y", perm=[1, 0, 2])
    for cut in ([split, node("Squeeze", "second one", "b")], [gather]):
        proto = graph_of([*nodes[:2], *cut, rest], inputs, {"y": ["b", "t", H]},
                         weights | {"index": np.array(1)})  # fmt: skip
        model = agrees(proto, numbers(B, T, D)).model
        assert model == jr.recurrent(jr.lstm(H), reverse=True)


def test_dense_layers_of_merged_axes_and_weights_that_are_computed():
    # As tf2onnx writes a dense layer of all steps, and a kernel cut out of a wider one.
    halves = np.split(lstm_weights(1)["W"], 2, axis=1)
    weights = {
        "kernel": numbers(2, D), "bias": numbers(2, seed=1), "W1": halves[0], "W2": halves[1],
        "R": lstm_weights(1)["R"], "zero": np.array(0), "one": np.array(1), "size": ints(2),
        "front": ints(0), "direction": ints(1), "rows": ints(-1, D),
    }  # fmt: skip
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "b", axis=0),
        node("Gather", "shape one", "t", axis=0),
        node("Unsqueeze", "b front", "b1"),
        node("Unsqueeze", "t front", "t1"),
        node("Concat", "b1 t1 size", "new", axis=0),
        node("Reshape", "x rows", "merged"),
        node("Gemm", "merged kernel bias", "dense", transB=1, alpha=2.0, beta=0.5),
        node("Reshape", "dense new", "apart"),
        node("Relu", "apart", "active"),
        node("Transpose", "active", "major", perm=[1, 0, 2]),
        node("Concat", "W1 W2", "wide", axis=1),
        helper.make_node("Constant", [], ["end"], value_ints=[2]),
        node("Slice", "wide front end end", "W"),
        node("Identity", "R", "R2"),
        node("LSTM", "major W R2", "Y", hidden_size=H),
        node("Squeeze", "Y direction", "squeezed"),
        node("Cast", "squeezed", "cast", to=TensorProto.FLOAT),
        node("Dropout", "cast", "dropped"),
        node("Transpose", "dropped", "y", perm=[1, 0, 2]),
    ]
    proto = graph_of(nodes, {"x": ["b", "t", D]}, {"y": ["b", "t", H]}, weights)
    imported = agrees(proto, numbers(B, T, D))
    assert imported.model == jr.serial(jr.dense(2, jax.nn.relu), jr.lstm(H))


def test_directions_merged_by_sizes_that_are_computed():
    # As the exporter of torch that needs onnxscript writes it.
    weights = lstm_weights() | {str(number): ints(number) for number in (0, 2, 3, 4)}
    nodes = [
        node("LSTM", "x W R B", "Y", hidden_size=H, direction="bidirectional"),
        node("Transpose", "Y", "major", perm=[0, 2, 1, 3]),
        node("Shape", "major", "shape"),
        node("Slice", "shape 0 2", "leading"),
        node("Slice", "shape 2 3", "directions"),
        node("Slice", "shape 3 4", "units"),
        node("Slice", "major 0 end 0", "whole"),
        node("Mul", "directions units", "width"),
        node("Concat", "leading width", "new", axis=0),
        node("Reshape", "whole new", "y"),
    ]
    weights["end"] = ints(2**63 - 1)
    proto = graph_of(nodes, {"x": ["t", "b", D]}, {"y": ["t", "b", 2 * H]}, weights)
    assert agrees(proto, numbers(B, T, D), time_major=True).model == jr.bidirectional(jr.lstm(H))


def test_initial_states_that_are_constants():
    states = {"h": numbers(1, 1, H, seed=3), "c": numbers(1, 1, H, seed=4)}
    weights = lstm_weights(1) | states | {"H": ints(H), "one": ints(1), "where": ints(1)}
    weights |= {"W2": numbers(1, 3 * H, H), "R2": numbers(1, 3 * H, H, seed=5), "rank": ints(1)}
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape where", "b", axis=0),
        node("Concat", "one b H", "size", axis=0),
        node("Expand", "h size", "hs"),
        node("Expand", "c size", "cs"),
        helper.make_node("LSTM", ["x", "W", "R", "B", "", "hs", "cs"], ["Y", "Yh"], hidden_size=H),
        node("Squeeze", "Y one", "Y1"),
        node("ConstantOfShape", "size", "h2"),
        helper.make_node("GRU", ["Y1", "W2", "R2", "", "", "h2"], ["Y2"], hidden_size=H),
        node("Squeeze", "Y2 one", "y"),
    ]
    inputs, outputs = {"x": ["t", "b", D]}, {"y": ["t", "b", H], "Yh": [1, "b", H]}
    proto = graph_of(nodes, inputs, outputs, weights)
    imported = from_onnx(proto)
    carry = jr.broadcast_carry(imported.carry, (B,))
    xs = numbers(B, T, D)
    ours = jr.unroll(imported.model, imported.params, xs, carry=carry)
    theirs = run(proto, x=xs.swapaxes(0, 1))
    np.testing.assert_allclose(ours.outputs, theirs["y"].swapaxes(0, 1), atol=2e-6)
    np.testing.assert_allclose(ours.carry[0].h, theirs["Yh"][0], atol=2e-6)
    np.testing.assert_array_equal(imported.carry[0].c, states["c"][0, 0])
    assert not imported.carry[1].h.any()


def exported(module, *inputs, names, axes):
    torch = pytest.importorskip("torch", reason="needs torch")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), inputs, file, dynamo=False, input_names=names, dynamic_axes=axes
        )
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "fixed"])
def test_the_exporter_of_torch(kind, is_open):
    torch = pytest.importorskip("torch", reason="needs torch")

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(7, D)
            self.rnn = getattr(torch.nn, kind)(D, H, 2, bidirectional=True, batch_first=True)
            self.norm = torch.nn.LayerNorm(2 * H)
            self.out = torch.nn.Linear(2 * H, 3)

        def forward(self, tokens):
            return torch.tanh(self.out(self.norm(self.rnn(self.embedding(tokens))[0])))

    torch.manual_seed(0)
    axes = {"x": {0: "batch", 1: "time"}} if is_open else {}
    tokens = np.random.default_rng(0).integers(0, 7, (B, T))
    proto = exported(Tagger(), torch.tensor(tokens), names=["x"], axes=axes)
    imported = agrees(proto, tokens)
    cell = {"LSTM": jr.lstm(H), "GRU": jr.gru(H), "RNN": jr.elman(H)}[kind]
    both = jr.bidirectional(cell)
    assert imported.model == jr.serial(
        jr.embed(D), both, both, jr.layer_norm(), jr.dense(3, jnp.tanh)
    )
    # Out again, as one graph of two nodes.
    again = to_onnx(imported.model, imported.params)
    assert [one.op_type for one in again.graph.node].count(kind) == 2
    agrees_with = run(again, xs=tokens)["ys"]
    np.testing.assert_allclose(agrees_with, run(proto, x=tokens).popitem()[1], atol=2e-6)


def test_packed_sequences_and_given_states_of_torch():
    torch = pytest.importorskip("torch", reason="needs torch")
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.GRU(D, H, 2, bidirectional=True, batch_first=True)

        def forward(self, x, lengths, h):
            packed = pack_padded_sequence(x, lengths, batch_first=True)
            ys, h = self.rnn(packed, h)
            return pad_packed_sequence(ys, batch_first=True)[0], h

    torch.manual_seed(0)
    xs, lengths, h = numbers(B, T, D), LENGTHS.astype(np.int64), numbers(4, B, H)
    axes = {"x": {0: "b", 1: "t"}, "lengths": {0: "b"}, "h": {1: "b"}}
    module = Packed()
    proto = exported(
        module, *map(torch.tensor, (xs, lengths, h)), names=["x", "lengths", "h"], axes=axes
    )
    imported = from_onnx(proto)
    assert imported.model == jr.serial(*[jr.bidirectional(jr.gru(H))] * 2)
    carry = jax.tree.unflatten(
        jax.tree.structure(imported.model.initial_carry(imported.params)), list(h)
    )
    mask = jr.mask_from_lengths(LENGTHS, T)
    rollout = jr.unroll(imported.model, imported.params, xs, mask=mask, carry=carry)
    with torch.no_grad():
        ys, last = module(*map(torch.tensor, (xs, lengths, h)))
    np.testing.assert_allclose(rollout.outputs, ys, atol=2e-6)
    np.testing.assert_allclose(np.stack(jax.tree.leaves(rollout.carry)), last, atol=2e-6)


def test_files_that_are_not_onnx(tmp_path):
    whole = recurrent_model("LSTM").SerializeToString()
    wrong_shape = recurrent_model("LSTM", states=False)
    wrong_shape.graph.initializer[1].CopyFrom(numpy_helper.from_array(numbers(1, 3, H), "R"))
    no_such_input = recurrent_model("GRU")
    no_such_input.graph.node[0].input[0] = "Z"
    wrong_letter = recurrent_model("LSTM")
    (direction,) = [one for one in wrong_letter.graph.node[0].attribute if one.name == "direction"]
    direction.s = b"\xb9forward"
    with pytest.raises(ValueError, match="direction of the node 'cell' .* must be one of"):
        from_onnx(wrong_letter)
    for data in (
        whole[: len(whole) // 2], whole[:-1], b"hello", b"", whole[::-1],
        wrong_shape.SerializeToString(), no_such_input.SerializeToString(),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="the ONNX model is not a valid ONNX model|must have"):
            from_onnx(data)
    (tmp_path / "model.onnx").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ValueError, match=r"the ONNX file .*model\.onnx is not a valid ONNX model"):
        from_onnx(tmp_path / "model.onnx")
    with pytest.raises(FileNotFoundError):
        from_onnx(tmp_path / "no.onnx")
    with pytest.raises(TypeError, match="path, bytes or an onnx.ModelProto, got int"):
        from_onnx(3)


@pytest.mark.parametrize(
    ("op", "options", "message"),
    [
        ("LSTM", {"activations": ["Sigmoid", "Tanh", "Swish"]}, "the activation 'Swish'; these"),
        ("LSTM", {"activations": ["Sigmoid"]}, "must have 3 activations for each of its 1 dir"),
        ("RNN", {"activations": ["ScaledTanh"]}, "ScaledTanh of the node 'cell' .* given alpha"),
        ("LSTM", {"activations": ["Relu", "Tanh", "Tanh"], "input_forget": 1}, "input_forget=1"),
    ],
)
def test_options_that_no_cell_has(op, options, message):
    with pytest.raises(ValueError, match=message):
        from_onnx(recurrent_model(op, **options))


LSTM = [node("LSTM", "x W R B", "Y Yh", "cell", hidden_size=H)]
SQUEEZED = [*LSTM, node("Squeeze", "Y one", "z")]
GRAPHS = {
    "an operator": ([node("Exp", "x", "y", "exp")], r"the node 'exp' \(Exp\) cannot be read"),
    "no name": ([node("Exp", "x", "y")], r"the node that makes 'y' \(Exp\) cannot be read; these"),
    "a last state": (
        [*LSTM, node("MatMul", "Yh K", "y", "out")],
        "'out' .* reads what is the last state of the node 'cell'.*last_valid",
    ),
    "the last step": (
        [*SQUEEZED, node("Gather", "z step", "y", "last", axis=0)],
        "'last' .*single steps are taken by `jr.last_valid`",
    ),
    "only states": ([node("LSTM", "x W R B", "Y y", hidden_size=H)], "must have one output"),
    "no layer": ([node("Identity", "x", "y")], "has no layer in it"),
    "another time": (
        [*SQUEEZED, node("Transpose", "z", "u", perm=[1, 0, 2]),
         node("LSTM", "u W4 R B", "y", "second", hidden_size=H)],
        "'second' .* reads another axis as time",
    ),
    "a constant added": ([node("Add", "x scale", "y", "shift")], "'shift' .* as the bias of a Mat"),
    "a sum of layers": ([*SQUEEZED, node("Add", "z z", "y", "skip")], "'skip' .* where it joins a"),
    "a matrix a step": ([node("MatMul", "x K3", "y", "dense")], r"must have a kernel \[D, C\]"),
    "a product of inputs": ([node("MatMul", "x xt", "y", "dense")], "must be a constant"),
    "a norm over time": (
        [node("LayerNormalization", "x scale3", "y", "norm", axis=1)], "must normalise the last",
    ),
    "softmax over the batch": ([node("Softmax", "x", "y", "soft", axis=1)], "over the last axis"),
    "another selu": ([node("Selu", "x", "y", "selu", alpha=2.0)], "'selu' .* its definition"),
    "noise": ([node("Dropout", "x ratio on", "y", "noise")], "'noise' .* not be in training mode"),
    "half precision": (
        [*SQUEEZED, node("Cast", "z", "u", "half", to=TensorProto.FLOAT16),
         node("Cast", "u", "y", to=TensorProto.FLOAT)],
        "'half' .* must keep the dtype of the weights, which are float32, got float16",
    ),
    "states of a layer": (
        [*SQUEEZED, helper.make_node("LSTM", ["z", "W4", "R", "B", "", "Yh"], ["y"], "second",
                                     hidden_size=H)],
        "initial_h of the node 'second' .* got what is the last state of the node 'cell'",
    ),
    "constant lengths": (
        [helper.make_node("LSTM", ["x", "W", "R", "B", "two"], ["y"], "cell", hidden_size=H)],
        "sequence_lens of the node 'cell' .* must be an input of the graph",
    ),
    "lengths of one layer": (
        [*SQUEEZED, helper.make_node("LSTM", ["z", "W4", "R", "B", "lengths"], ["y"], "second",
                                     hidden_size=H)],
        "must share one sequence_lens",
    ),
    "lengths of one direction": (
        [node("LSTM", "x W R B lengths", "Y", hidden_size=H),
         node("LSTM", "x W R B", "Yr", hidden_size=H, direction="reverse"),
         node("Squeeze", "Y one", "z"), node("Squeeze", "Yr one", "u"),
         node("Concat", "z u", "y", "both", axis=2)],
        "'both' .* joins two recurrences with different sequence_lens",
    ),
    "directions joined across the batch": (
        [*SQUEEZED, node("LSTM", "x W R B", "Yr", hidden_size=H, direction="reverse"),
         node("Squeeze", "Yr one", "u"), node("Reshape", "z rows", "zr"),
         node("Reshape", "u rows", "ur"), node("Concat", "zr ur", "y", "both", axis=1)],
        "'both' .* can be read only where it joins",
    ),
    "lengths of one layer of two with one name": (
        [*SQUEEZED, helper.make_node("LSTM", ["z", "W4", "R", "B", "lengths"], ["y"], "cell",
                                     hidden_size=H)],
        "must share one sequence_lens",
    ),
    "a bias of the batch": (
        [node("MatMul", "x wide", "u"), node("Transpose", "u", "v", perm=[0, 2, 1]),
         node("Add", "v pair", "y", "shift")],
        "'shift' .* as the bias of a Mat",
    ),
    "the mean of a norm": (
        [node("LayerNormalization", "x scale", "u mean", "norm"), node("Relu", "mean", "y", "r")],
        "'r' .* reads what is an output of the node 'norm' .* that is not its first one",
    ),
    "a rounded input": (
        [node("Cast", "x", "u", to=TensorProto.INT32),
         node("Cast", "u", "v", "back", to=TensorProto.FLOAT), node("MatMul", "v wide", "y")],
        "'back' .* must not read an input that was rounded",
    ),
    "cut features": (
        [*SQUEEZED, node("Slice", "z zero one two", "y", "cut")], "'cut' .* must take one of the",
    ),
    "features cut in heads": (
        [*SQUEEZED, node("Reshape", "z heads", "y", "heads")], "'heads' .* must merge whole axes",
    ),
    "units before directions": (
        [node("LSTM", "x W2 R2 B2", "Y", hidden_size=H, direction="bidirectional"),
         node("Transpose", "Y", "u", perm=[0, 2, 3, 1]), node("Reshape", "u merge", "y")],
        "must have the directions of its last layer before the units",
    ),
    "unmerged directions": (
        [node("LSTM", "x W2 R2 B2", "Y", hidden_size=H, direction="bidirectional"),
         node("MatMul", "Y K", "y", "out")],
        "'out' .* both directions of a recurrent node merged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_that_are_no_chain_of_layers(name):
    nodes, message = GRAPHS[name]
    weights = lstm_weights(1) | {f"{key}2": value for key, value in lstm_weights().items()}
    weights |= {
        "W4": lstm_weights(1, H)["W"],
        "K": numbers(H, 2),
        "K3": numbers(1, D, 2),
        "wide": numbers(D, B),
        "pair": numbers(B),
        "one": ints(1),
        "two": ints(2),
    }
    weights |= {"scale": np.ones(D, np.float32), "scale3": np.ones((1, D), np.float32)}
    weights |= {
        "step": np.array(-1),
        "heads": ints(0, 0, 2, 2),
        "rows": ints(0, -1),
        "merge": ints(0, 0, -1),
    }
    weights |= {"zero": ints(0), "one": ints(1), "two": ints(2)}
    weights |= {"ratio": np.float32(0.5), "on": np.array(True)}
    used = {given for one in nodes for given in one.input}
    if name == "constant lengths":
        weights["two"] = np.array([5, 2], np.int32)
    if name == "a norm over time":
        weights["scale3"] = np.ones((B, D), np.float32)
    inputs = {"x": [T, B, D]} | ({"lengths": [B]} if "lengths" in used else {})
    inputs |= {"xt": [T, D, B]} if "xt" in used else {}
    weights = {key: value for key, value in weights.items() if key in used}
    with pytest.raises(ValueError, match=message):
        from_onnx(graph_of(nodes, inputs, {"y": None}, weights))


def test_other_outputs_and_domains_raise():
    weights, x = lstm_weights(1) | {"one": ints(1)}, {"x": [T, B, D]}
    one = node("Add", "one one", "two")
    proto = graph_of([*SQUEEZED, one], x, {"z": None, "two": None}, weights)
    proto.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(ValueError, match="the output 'two' of the ONNX model is neither"):
        from_onnx(proto)
    proto = graph_of([*SQUEEZED, node("Identity", "z", "y")], x, {"z": None, "y": None}, weights)
    with pytest.raises(ValueError, match=r"one output that is a sequence.*\['y', 'z'\]"):
        from_onnx(proto)
    foreign = helper.make_node("Attention", ["x"], ["y"], "mine", domain="com.example")
    proto = graph_of([foreign], x, {"y": [T, B, D]})
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(ValueError, match="the node 'mine' .* of the domain 'com.example'"):
        from_onnx(proto)


def projected(x):
    return x


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: jr.serial(jr.dense(2), jr.mamba(4)), r"model\.1 has no operator in ONNX: mamba"),
        (lambda: jr.mgu(3), "model must be elman, lstm or gru for ONNX, got mgu"),
        (lambda: jr.lstm(3, projection=2), "model has projection=2"),
        (lambda: jr.lstm(3, layer_norm=True), "model has layer_norm=True"),
        (lambda: jr.serial(jr.gru(3, activation=jnp.sin)), r"activation of model\.0 has no op"),
        (lambda: jr.dense(3, projected), "the activation of model has no operator in ONNX"),
        (lambda: jr.lstm(3, coupled=True, gate_activation=jax.nn.relu), "model is coupled with"),
        (lambda: jr.bidirectional(jr.gru(3), merge=jnp.multiply), "merge of model must be concat"),
        (lambda: jr.bidirectional(jr.serial(jr.gru(3))), r"model\.forward must be elman"),
        (lambda: jr.gru(3)._replace(num_outputs=lambda n: 3), "model must be made by a factory"),
    ],
)  # fmt: skip
def test_models_without_an_operator(model, message):
    model = model()
    with pytest.raises(ValueError, match=message):
        to_onnx(model, random_params(model, D))


def test_params_of_another_model_or_dtype():
    model = jr.gru(3)
    params = model.init(jax.random.key(0), D)
    with pytest.raises(TypeError, match="params must have the structure"):
        to_onnx(jr.lstm(3), params)
    with pytest.raises(TypeError, match="all float32 or all float64 for ONNX, got bfloat16"):
        to_onnx(model, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params))
    with pytest.raises(TypeError, match="got bfloat16, float32"):
        to_onnx(model, params._replace(bias=params.bias.astype(jnp.bfloat16)))


def test_the_page_runs():
    pages.run(pages.DOCS / "interop.md", "python onnx")


def cases_of_onnx(monkeypatch):
    """The node, inputs and outputs of each case of these operators that the package onnx has."""
    from onnx.backend.test.case.node import gru, lstm, rnn

    cases = []

    def expect(node, inputs, outputs, name, **options):
        cases.append((name, node, inputs, outputs))

    for module, case in ((lstm, lstm.LSTM), (gru, gru.GRU), (rnn, rnn.RNN)):
        monkeypatch.setattr(module, "expect", expect)
        for name in dir(case):
            if name.startswith("export"):
                getattr(case, name)()
    return cases


def test_the_cases_of_onnx_itself(monkeypatch):
    # Those with layout=1, which onnxruntime does not run, among them.
    cases = cases_of_onnx(monkeypatch)
    assert len(cases) >= 12
    for name, cell, inputs, results in cases:
        weights = dict(zip([given for given in cell.input[1:] if given], inputs[1:], strict=True))
        results = dict(zip([made for made in cell.output if made], results, strict=True))
        y, y_h = [*cell.output, ""][:2]
        cell.output[0] = "Y"
        imported = from_onnx(graph_of([cell], {"X": inputs[0].shape}, {"Y": None}, weights))
        is_major = any(given.name == "layout" and given.i for given in cell.attribute)
        xs = inputs[0] if is_major else inputs[0].swapaxes(0, 1)
        rollout = jr.unroll(imported.model, imported.params, xs, carry=imported.carry)
        if y:
            axes = (0, 1, 2, 3) if is_major else (2, 0, 1, 3)
            want = results[y].transpose(axes).reshape(rollout.outputs.shape)
            np.testing.assert_allclose(rollout.outputs, want, atol=1e-6, err_msg=name)
        carry = rollout.carry
        both = carry if isinstance(carry, jr.layers.Directions) else [carry]
        want = results[y_h].swapaxes(0, 1) if is_major else results[y_h]
        np.testing.assert_allclose([one.h for one in both], want, atol=1e-6, err_msg=name)


LAYERS = {
    "elman": lambda size: jr.elman(size, jax.nn.relu),
    "lstm": lambda size: jr.lstm(size, peephole=True),
    "coupled": lambda size: jr.lstm(size, coupled=True),
    "gru": lambda size: jr.gru(size),
    "reset before": lambda size: jr.gru(size, reset_after=False),
}


@settings(max_examples=5, deadline=None, derandomize=True)
@given(st.data())
def test_random_stacks_with_lengths_and_carries(data):
    sizes, layers = st.integers(1, 4), []
    for _ in range(data.draw(st.integers(1, 2))):
        cells = [
            LAYERS[data.draw(st.sampled_from(list(LAYERS)))](data.draw(sizes)) for _ in range(2)
        ]
        both = jr.bidirectional(*dict.fromkeys(cells))
        layers.append(data.draw(st.sampled_from([both, jr.recurrent(cells[0], reverse=True)])))
    model, num_inputs = jr.serial(*layers), data.draw(sizes)
    batch, length = data.draw(sizes), data.draw(st.integers(1, 5))
    params = random_params(model, num_inputs)
    carry = random_like(jax.eval_shape(lambda: model.initial_carry(params, (batch,))))
    lengths = data.draw(st.lists(st.integers(1, length), min_size=batch, max_size=batch))
    lengths, xs = np.array(lengths, np.int32), numbers(batch, length, num_inputs)
    proto = to_onnx(model, params, lengths=True, carry=True)
    names = [one.name for one in proto.graph.input if one.name.startswith("carry_in")]
    starts = dict(zip(names, jax.tree.leaves(carry), strict=True))
    theirs = run(proto, xs=xs, lengths=lengths, **starts)
    mask = jr.mask_from_lengths(lengths, length)
    rollout = jr.unroll(model, params, xs, mask=mask, carry=carry)
    np.testing.assert_allclose(theirs.pop("ys"), rollout.outputs, atol=5e-6)
    for leaf, want in zip(theirs.values(), jax.tree.leaves(rollout.carry), strict=True):
        np.testing.assert_allclose(leaf, want, atol=5e-6)
    imported = from_onnx(proto)
    assert imported.model == (model if len(layers) > 1 else layers[0])
    for leaf, want in zip(jax.tree.leaves(imported.params), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(leaf, want)
