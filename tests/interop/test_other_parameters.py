"""Parameters of another model, which no writer and no reader takes for its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.interop import carry_to_torch, from_equinox, from_flax, from_haiku, from_keras, to_keras

KEY = jax.random.key(0)
WRITERS = {
    "to_equinox": "equinox",
    "to_flax": "flax",
    "to_haiku": "haiku",
    "to_keras": "keras",
    "to_nnx": "flax",
    "to_onnx": "onnx",
    "to_torch": "torch",
}
# A model, and one that made the parameters.
PAIRS = {
    "more units": (jr.lstm(4), jr.lstm(8)),
    "a peephole": (jr.lstm(4), jr.lstm(4, peephole=True)),
    "another cell": (jr.lstm(4), jr.gru(4)),
    "more outputs": (jr.dense(3), jr.dense(5)),
    "a bias": (jr.dense(3, use_bias=False), jr.dense(3)),
    "no bias": (jr.dense(3), jr.dense(3, use_bias=False)),
    "a wider table": (jr.embed(4), jr.embed(5)),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", WRITERS)
def test_writers(name, pair):
    pytest.importorskip(WRITERS[name])
    model, other = PAIRS[pair]
    params, paths = other.init(KEY, 3), ("net",) if name == "to_haiku" else ()
    with pytest.raises((TypeError, ValueError), match="params(.|\n)* init make"):
        getattr(jr.interop, name)(model, params, *paths)


@pytest.mark.parametrize("name", [*WRITERS, "carry_to_torch", "carry_from_torch", "to_mamba"])
def test_arguments_in_the_wrong_order(name):
    pytest.importorskip(WRITERS.get(name, "torch"))
    params, paths = jr.lstm(4).init(KEY, 3), ("net",) if name == "to_haiku" else ()
    with pytest.raises(TypeError, match="model must be a Cell or a Layer, got LSTMParams"):
        getattr(jr.interop, name)(params, jr.lstm(4), *paths)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["to_keras", "to_nnx"])
def test_half_precision(name, dtype):
    pytest.importorskip(WRITERS[name])
    # The loop of nnx wants inputs of the dtype of the parameters.
    xs = jax.random.normal(KEY, (2, 5, 3)).astype(dtype)
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), jr.lstm(4).init(KEY, 3))
    outputs = getattr(jr.interop, name)(jr.lstm(4), params)(xs)
    want = jr.unroll(jr.lstm(4), params, xs).outputs
    outputs, want = (np.asarray(ys, np.float32) for ys in (outputs, want))
    # Both compute in the dtype of the parameters, and our cell in float32.
    np.testing.assert_allclose(outputs, want, atol=2e-2)


def test_the_identity_of_keras_comes_back():
    pytest.importorskip("keras", reason="needs keras")
    from keras import Input, Sequential, layers

    cell = layers.SimpleRNN(4, activation="linear", return_sequences=True)
    model, params, _ = from_keras(Sequential([Input((5, 3)), cell, layers.Activation("linear")]))
    assert from_keras(to_keras(model, params)).model == model


def test_layers_that_do_not_fit_each_other():
    model = jr.serial(jr.dense(3), jr.dense(3))
    arrays = {"w": np.ones((4, 3), np.float32), "b": np.ones(3, np.float32)}
    others = arrays | {"w": np.ones((7, 3), np.float32)}
    with pytest.raises(ValueError, match=r"params\[1\].kernel must have the shape \(3, 3\)"):
        from_haiku({"one": arrays, "two": others}, model, ("one", "two"))
    with pytest.raises(TypeError, match="a mapping from paths of modules to mappings of arrays"):
        from_haiku({"w": arrays["w"]}, jr.dense(3), "one")


def test_a_module_of_equinox_with_another_array():
    eqx = pytest.importorskip("equinox", reason="needs equinox")
    cell = eqx.nn.LSTMCell(3, 4, key=KEY)
    cell = eqx.tree_at(lambda cell: cell.weight_hh, cell, jnp.zeros((5, 5)))
    with pytest.raises(ValueError, match="params.recurrent_kernel must have the shape"):
        from_equinox(cell)


def test_a_function_of_flax_that_halves_the_features():
    linen = pytest.importorskip("flax.linen", reason="needs flax")
    net, xs = linen.Sequential([linen.Dense(8), linen.glu, linen.Dense(3)]), jnp.ones((2, 5, 3))
    variables = net.init(KEY, xs)
    model, params, _ = from_flax(net, variables)
    outputs = jr.unroll(model, params, xs).outputs
    np.testing.assert_allclose(outputs, net.apply(variables, xs), rtol=1e-6)


def test_a_carry_of_another_size():
    pytest.importorskip("torch", reason="needs torch")
    with pytest.raises(ValueError, match=r"shapes \[\(2, 5\)\] for gru\(5\), got \[\(2, 4\)\]"):
        carry_to_torch(jr.gru(5), jr.cells.GRUCarry(jnp.zeros((2, 4))))
    carry = jr.cells.LSTMCarry(jnp.zeros((2, 5)), jnp.zeros((3, 5)))
    with pytest.raises(ValueError, match="the leaves of carry must have the shapes"):
        carry_to_torch(jr.lstm(5), carry)
