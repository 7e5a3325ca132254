"""Weights of keras in and out: layers, models and files."""

import json
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.interop import from_keras, to_keras

keras = pytest.importorskip("keras", reason="needs keras")
h5py = pytest.importorskip("h5py", reason="needs h5py")
layers = keras.layers
# Keras itself, where it saves and loads.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
B, T, D = 3, 6, 2
KINDS = {
    "elman": lambda units, **options: layers.SimpleRNN(units, **options),
    "relu": lambda units, **options: layers.SimpleRNN(units, activation="relu", **options),
    "lstm": lambda units, **options: layers.LSTM(units, use_cudnn=False, **options),
    "hard": lambda units, **options: layers.LSTM(
        units, activation="softsign", recurrent_activation="hard_sigmoid", **options
    ),
    "gru": lambda units, **options: layers.GRU(units, use_cudnn=False, **options),
    "gru before": lambda units, **options: layers.GRU(units, reset_after=False, **options),
}
# Keras on JAX computes tanh in float32 at most.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def random_weights(layer, seed=0):
    generator = np.random.default_rng(seed)
    shapes = [weight.shape for weight in layer.weights]
    layer.set_weights([0.6 * generator.standard_normal(shape) for shape in shapes])
    return layer


def normal(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "merge", "use_bias"),
    [
        ("elman", None, True),
        ("relu", "sum", False),
        ("lstm", None, False),
        ("lstm", "concat", True),
        ("hard", "ave", True),
        ("gru", None, False),
        ("gru", "mul", True),
        ("gru before", "concat", True),
    ],
)
def test_outputs_gradients_and_the_way_back(kind, merge, use_bias):
    layer = KINDS[kind](3, use_bias=use_bias, return_sequences=True, zero_output_for_mask=True)
    if merge is not None:
        layer = layers.Bidirectional(layer, merge_mode=merge)
    layer.build((B, T, D))
    random_weights(layer)
    xs, mask = normal(B, T, D), normal(B, T) > 0
    model, params, carry = from_keras(layer)
    assert carry is None

    def theirs(weights, xs):
        constants = layer.non_trainable_variables
        outputs, _ = layer.stateless_call(weights, constants, xs, mask=mask)
        return (outputs**2).sum(), outputs

    def ours(params, xs):
        outputs = jr.unroll(model, params, xs, mask=mask).outputs
        return (outputs**2).sum(), outputs

    weights = [variable.value for variable in layer.trainable_variables]
    both = [
        jax.jit(jax.grad(run, argnums=(0, 1), has_aux=True))(arrays, xs)
        for run, arrays in ((theirs, weights), (ours, params))
    ]
    (want_gradients, want), (gradients, outputs) = both
    np.testing.assert_allclose(outputs, want, **CLOSE)
    np.testing.assert_allclose(gradients[1], want_gradients[1], rtol=1e-4, atol=1e-5)

    back = to_keras(model, params)
    assert from_keras(back).model == model
    # A layer without biases comes back with zeros, and of the two of a GRU their sum, but for n.
    for got, array in zip(back.weights, layer.weights if use_bias else (), strict=use_bias):
        if (kind, array.name) != ("gru", "bias"):
            np.testing.assert_array_equal(got.value, array.value)
    jax.tree.map(np.testing.assert_array_equal, from_keras(back).params, params)


def network():
    return keras.Sequential(
        [
            keras.Input((None,)),
            layers.Embedding(7, 4),
            layers.BatchNormalization(),
            layers.SpatialDropout1D(0.1),
            layers.Bidirectional(layers.GRU(3, return_sequences=True)),
            layers.LayerNormalization(center=False),
            layers.TimeDistributed(layers.Dense(4, use_bias=False)),
            layers.Activation("relu"),
            layers.RNN([layers.LSTMCell(3), layers.SimpleRNNCell(2)], return_sequences=True),
            layers.Dropout(0.2),
            layers.Dense(2, activation="softmax"),
        ]
    )


def test_a_whole_network_and_its_files(tmp_path):
    net = random_weights(network())
    # Variances are not negative.
    norm = net.layers[1]
    norm.set_weights([abs(weight) + 0.1 for weight in norm.get_weights()])
    tokens = np.array([[1, 2, 3, 0], [4, 5, 6, 2]])
    want = net(tokens)
    model, params, _ = from_keras(net)
    np.testing.assert_allclose(jr.unroll(model, params, tokens).outputs, want, **CLOSE)
    np.testing.assert_allclose(to_keras(model, params)(tokens), want, **CLOSE)
    for name in ("net.keras", "net.h5"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net.save(tmp_path / name)
        read = from_keras(tmp_path / name)
        assert read.model == model
        jax.tree.map(np.testing.assert_array_equal, read.params, params)


def test_a_functional_chain_and_one_that_is_none():
    inputs = keras.Input((None, D))
    states = layers.LSTM(3, return_sequences=True)(layers.Masking()(inputs))
    net = keras.Model(inputs, layers.Dense(2)(states))
    xs = normal(B, T, D)
    model, params, _ = from_keras(net)
    assert model == jr.serial(jr.lstm(3), jr.dense(2))
    np.testing.assert_allclose(jr.unroll(model, params, xs).outputs, net(xs), **CLOSE)
    both = keras.Model(inputs, layers.Add()([states, layers.Dense(3)(inputs)]))
    with pytest.raises(ValueError, match="must be a chain, but 'dense.*' reads input"):
        from_keras(both)
    outputs = layers.Dense(2)(states)
    with pytest.raises(ValueError, match="'dense.*' must be the one output, got dense.*, lstm"):
        from_keras(keras.Model(inputs, [outputs, states]))
    assert from_keras(keras.Model(inputs, states)).model == jr.lstm(3)


def graph(make):
    inputs = keras.Input((T, D))
    return keras.Model(inputs, make(inputs))


def own_gelu(xs):
    return keras.activations.gelu(xs, approximate=True)


own_gelu.__name__ = "gelu"


class LSTMCell(layers.LSTMCell):
    """A cell that has the name of one of keras."""


# What keras writes into a configuration as if it were something that we can read.
NOT_IN_A_CHAIN = {
    "c of an LSTM": (
        lambda xs: layers.Dense(2)(layers.LSTM(3, return_state=True)(xs)[2]),
        "'dense.*' reads output 2 of lstm",
    ),
    "a state is the output": (
        lambda xs: layers.LSTM(3, return_state=True)(xs)[2],
        "must be the one output, got output 2 of lstm",
    ),
    "an operation": (lambda xs: layers.Dense(2)(xs) + 1.0, "Add 'add.*' is an operation"),
    "an operation of one input": (
        lambda xs: keras.ops.tanh(layers.Dense(2)(xs)),
        "Tanh 'tanh.*' is an operation",
    ),
    "statistics of the batch": (
        lambda xs: layers.BatchNormalization()(xs, training=True),
        "'batch_normalization.*' is called with training, which cannot be represented",
    ),
    "an initial state": (
        lambda xs: layers.GRU(3)(xs, initial_state=np.ones((B, 3), np.float32)),
        "'gru.*' is called with initial_state, .*; pass it as `carry`",
    ),
    "gelu of jax": (
        lambda xs: layers.Dense(2, jax.nn.gelu)(xs),
        "Dense 'dense.*' has the activation 'gelu' which is not keras.activations.gelu",
    ),
    "a function of the same name": (
        lambda xs: layers.GRU(3, recurrent_activation=own_gelu)(xs),
        "has the recurrent_activation 'gelu' which is not",
    ),
    "a class of the same name": (
        lambda xs: layers.RNN(LSTMCell(3), return_sequences=True)(xs),
        "LSTMCell 'lstm_cell.*' is a class of its own",
    ),
}


@pytest.mark.parametrize("name", NOT_IN_A_CHAIN)
def test_what_is_no_chain_of_layers_of_keras_is_named(name):
    make, message = NOT_IN_A_CHAIN[name]
    with pytest.raises(ValueError, match=message):
        from_keras(graph(make))


def test_functions_of_jax_that_keras_has_too():
    net = graph(lambda xs: layers.LSTM(3, activation=jnp.tanh, return_sequences=True)(xs))
    assert from_keras(net).model == jr.lstm(3)


STATEFUL = {
    "bidirectional": lambda: layers.Bidirectional(
        layers.LSTM(3, return_sequences=True, stateful=True)
    ),
    "stacked": lambda: layers.RNN(
        [layers.LSTMCell(3), layers.GRUCell(2)], return_sequences=True, stateful=True
    ),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_states_of_layers_that_have_several(name):
    net = keras.Sequential([keras.Input((T, D), batch_size=B), STATEFUL[name](), layers.Dense(2)])
    xs = normal(B, T, D)
    net(xs)
    model, params, carry = from_keras(net)
    outputs = jr.unroll(model, params, xs, carry=carry).outputs
    np.testing.assert_allclose(outputs, net(xs), **CLOSE)


def test_masks_in_a_file_of_keras_3(tmp_path):
    net = graph(lambda xs: layers.LSTM(3, return_sequences=True)(layers.Masking()(xs)))
    path = tmp_path / "net.h5"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.save(path)
    assert from_keras(path).model == jr.lstm(3)


class Crossed(keras.Model):
    """Runs its layers in another order than it made them in."""

    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(D), layers.Dense(D)

    def call(self, xs):
        return self.first(self.second(xs))


def test_the_last_output_and_the_state_of_a_stateful_layer():
    net = keras.Sequential(
        [
            keras.Input((T, D), batch_size=B),
            layers.GRU(4, return_sequences=True),
            layers.LSTM(3, stateful=True),
            layers.Dense(2),
        ]
    )
    xs = normal(B, T, D)
    net(xs)
    model, params, carry = from_keras(net)
    assert (carry[0].h == 0).all() and (carry[1].c != 0).any()
    outputs = jr.unroll(model, params, xs, carry=carry).outputs
    np.testing.assert_allclose(jr.last_valid(outputs, np.ones((B, T))), net(xs), **CLOSE)


def written_by_keras_2(path, layers, weights, version=b"2.1.6"):
    """The format of keras 2: a configuration in JSON, and a group of arrays for each layer."""
    config = {"class_name": "Sequential", "config": layers}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config).encode()
        file.attrs["keras_version"] = version
        group = file.create_group("model_weights")
        for name, arrays in weights.items():
            one = group.create_group(name)
            one.attrs["weight_names"] = [f"{name}/{key}".encode() for key in arrays]
            for key, array in arrays.items():
                one[f"{name}/{key}"] = array
    return path


def layer_of_keras_2(name, class_name="LSTM", **config):
    return {"class_name": class_name, "config": {"name": name, "units": 3, **config}}


def test_a_file_with_layers_of_cudnn(tmp_path):
    """Kernels are transposed by gate, and biases are in one row of two parts."""
    weights = {
        "lstm": {"kernel": normal(D, 12), "recurrent_kernel": normal(3, 12), "bias": normal(24)},
        "gru": {"kernel": normal(3, 9), "recurrent_kernel": normal(3, 9), "bias": normal(18)},
    }
    path = written_by_keras_2(
        tmp_path / "net.h5",
        [layer_of_keras_2("lstm", "CuDNNLSTM"), layer_of_keras_2("gru", "CuDNNGRU")],
        weights,
    )
    model, (first, second), _ = from_keras(path)
    assert model == jr.serial(jr.lstm(3), jr.gru(3))
    kernel, recurrent, bias = weights["lstm"].values()
    for gate in range(4):
        block = slice(3 * gate, 3 * gate + 3)
        np.testing.assert_array_equal(
            first.kernel[:, block], kernel[:, block].ravel().reshape(3, D).T
        )
        np.testing.assert_array_equal(first.recurrent_kernel[:, block], recurrent[:, block].T)
    np.testing.assert_array_equal(first.bias, bias[:12] + bias[12:])
    np.testing.assert_array_equal(second.recurrent_bias, weights["gru"]["bias"][15:])
    z = slice(0, 3)
    np.testing.assert_array_equal(
        second.recurrent_kernel[:, 3:6], weights["gru"]["recurrent_kernel"][:, z].T
    )


def test_time_first_in_a_file_of_keras_2(tmp_path):
    layer = layer_of_keras_2("one", activation="tanh", use_bias=False, time_major=True)
    arrays = {"kernel": normal(D, 12), "recurrent_kernel": normal(3, 12)}
    path = written_by_keras_2(tmp_path / "net.h5", [layer], {"one": arrays})
    with pytest.raises(ValueError, match="time_major=True, which cannot be represented"):
        from_keras(path)


def test_hard_sigmoid_is_that_of_the_version_that_wrote_the_file(tmp_path):
    arrays = {"kernel": normal(D, 12), "recurrent_kernel": normal(3, 12), "bias": normal(12)}
    layer = layer_of_keras_2("lstm", recurrent_activation="hard_sigmoid", activation="tanh")
    for version, function in ((b"2.1.6", jr.cells.hard_sigmoid), (b"3.4.1", jax.nn.hard_sigmoid)):
        path = written_by_keras_2(tmp_path / "net.h5", [layer], {"lstm": arrays}, version)
        assert from_keras(path).model == jr.lstm(3, gate_activation=function)


def empty(path):
    path.touch()


def text(path):
    path.write_text("a network")


def cut(path):
    written_by_keras_2(path, [layer_of_keras_2("lstm")], {})
    path.write_bytes(path.read_bytes()[:-900])


def only_weights(path):
    with h5py.File(path, "w") as file:
        file["kernel"] = np.ones(3)


def no_arrays(path):
    written_by_keras_2(path, [layer_of_keras_2("lstm")], {})


def bad_zip(path):
    import zipfile

    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "{}")


FILES = {
    empty: "is not a whole file of keras",
    text: "is not a whole file of keras",
    cut: "is not a whole file of keras",
    only_weights: "weights alone do not say what they are for",
    no_arrays: "LSTM 'lstm' must have the arrays kernel, recurrent_kernel, bias, got 0",
    bad_zip: "keras cannot read",
}


@pytest.mark.parametrize("write", FILES, ids=lambda write: write.__name__)
def test_a_wrong_file_is_named(tmp_path, write):
    path = tmp_path / "net.keras"
    write(path)
    with pytest.raises(ValueError, match=FILES[write]):
        from_keras(path)


def test_code_in_a_file_is_not_run(tmp_path):
    net = keras.Sequential([keras.Input((None, D)), layers.Lambda(lambda x: x + 1)])
    net.save(tmp_path / "net.keras")
    with pytest.raises(ValueError, match="keras cannot read"):
        from_keras(tmp_path / "net.keras")


def built(layer, *shape):
    layer.build(shape or (None, None, D))
    return layer


WRONG = {
    "nothing": (lambda: 3, TypeError, "source must be a layer or model of keras"),
    "missing file": (lambda: "missing.keras", FileNotFoundError, "there is no file missing.keras"),
    "not built": (lambda: layers.GRU(2), ValueError, "must be built"),
    "own class": (Crossed, ValueError, "Crossed is a class of its own"),
    "sequences of sequences": (
        lambda: built(layers.TimeDistributed(layers.GRU(2)), None, 3, 4, D),
        ValueError,
        "GRU .* has no counterpart",
    ),
    "backwards": (lambda: built(layers.GRU(2, go_backwards=True)), ValueError, "go_backwards=True"),
    "last of both": (
        lambda: built(layers.Bidirectional(layers.GRU(2))),
        ValueError,
        "return_sequences=False, whose output is in no step",
    ),
    "no merge": (
        lambda: built(layers.Bidirectional(layers.GRU(2, return_sequences=True), merge_mode=None)),
        ValueError,
        "merge_mode=None; readable are concat",
    ),
    "activation": (
        lambda: built(layers.LSTM(2, recurrent_activation="mish")),
        ValueError,
        "recurrent_activation 'mish'; readable are",
    ),
    "convolution": (lambda: built(layers.Conv1D(2, 3)), ValueError, "Conv1D .* has no counterpart"),
    "pictures": (
        lambda: built(layers.ConvLSTM1D(2, 3), None, None, 4, D),
        ValueError,
        "ConvLSTM1D .* has no counterpart",
    ),
    "axis": (
        lambda: built(layers.BatchNormalization(axis=1), None, 3, D),
        ValueError,
        "must normalise features, got axis=1",
    ),
    "no width": (
        lambda: built(layers.LayerNormalization(scale=False, center=False)),
        ValueError,
        "must have center or scale",
    ),
    "empty": (lambda: keras.Sequential([keras.Input((None, 2))]), ValueError, "got none"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_named(name):
    make, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        from_keras(make())


def test_dropout_of_a_recurrent_layer_is_left_out_with_a_warning():
    layer = built(layers.GRU(2, recurrent_dropout=0.2))
    with pytest.warns(
        UserWarning, match="GRU 'gru.*' has recurrent_dropout=0.2, which acts in tra"
    ):
        assert from_keras(layer).model == jr.gru(2)


def test_functions_come_back():
    net = keras.Sequential(
        [
            keras.Input((None, D)),
            layers.SimpleRNN(2, activation=None, return_sequences=True),
            layers.Activation("linear"),
            layers.Dense(2, activation="gelu"),
        ]
    )
    model, params, _ = from_keras(net)
    # The functions of a model that was pickled are other objects.
    back = to_keras(pickle.loads(pickle.dumps(model)), params)
    assert from_keras(back).model == model


UNWRITABLE = {
    "peephole": (jr.lstm(2, peephole=True), "keras has no lstm with peephole=True"),
    "output": (jr.lstm(2, output_activation=jax.nn.relu), "output_activation="),
    "old gates": (
        jr.lstm(2, gate_activation=jr.cells.hard_sigmoid),
        "keras has no name for an act",
    ),
    "merge": (
        jr.bidirectional(jr.gru(2), merge=jnp.maximum),
        "keras has no bidirectional with merge",
    ),
    "stack": (jr.bidirectional(jr.serial(jr.gru(2))), "both directions with elman, lstm and gru"),
    "batch": (jr.batch_norm(), "keras has no layer for batch_norm"),
    "function": (jr.lift(jnp.cos), "keras has no name for an activation"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_keras_has_not_is_named(name):
    model, message = UNWRITABLE[name]
    with pytest.raises(ValueError, match=message):
        to_keras(model, model.init(jax.random.key(0), D))
