"""Parameters of haiku and modules of equinox, in and out; their recurrences are oracles too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.pages import DOCS, run

import jaxrnn as jr
from jaxrnn.interop import from_equinox, from_haiku, to_equinox, to_haiku

B, T, D = 2, 4, 3


def random_like(tree, seed=0):
    numbers = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: 0.5 * numbers.standard_normal(leaf.shape), tree)


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    jax.tree.map(np.testing.assert_array_equal, got, want)


HAIKU = jr.serial(
    *(jr.embed(D), jr.lstm(2), jr.dropout(0.1), jr.gru(3, reset_after=False)),
    *(jr.elman(4, jax.nn.relu), jr.layer_norm(), jr.dense(2, jnp.tanh)),
)
PATHS = (
    "net/embed",
    "net/lstm",
    None,
    "net/gru",
    "net/vanilla_rnn",
    "net/layer_norm",
    "net/linear",
)


def haiku_network(hk):
    class Net(hk.Module):
        def __call__(self, tokens):
            ys = hk.Embed(7, D)(tokens)
            for core in (hk.LSTM(2), hk.GRU(3), hk.VanillaRNN(4)):
                ys, _ = hk.dynamic_unroll(core, ys, core.initial_state(len(ys)), time_major=False)
            norm = hk.LayerNorm(-1, create_scale=True, create_offset=True)
            return jnp.tanh(hk.Linear(2)(norm(ys)))

    return hk.without_apply_rng(hk.transform(lambda tokens: Net(name="net")(tokens)))


def test_a_network_of_haiku_and_back(x64):
    hk = pytest.importorskip("haiku", reason="needs dm-haiku")
    net, tokens = haiku_network(hk), jnp.array([[1, 2, 3, 4], [0, 6, 5, 1]])
    theirs = random_like(jax.eval_shape(net.init, jax.random.key(0), tokens))
    model, params, _ = from_haiku(theirs, HAIKU, PATHS)
    outputs = jr.unroll(model, params, tokens).outputs
    np.testing.assert_allclose(outputs, net.apply(theirs, tokens), rtol=1e-10, atol=1e-12)
    back = to_haiku(model, params, PATHS)
    assert back.keys() == theirs.keys()
    for path, arrays in back.items():
        for name, array in arrays.items():
            if name == "b" and "vanilla" in path:
                continue
            if (path, name) == ("net/lstm/linear", "b"):
                # 1 was added to the bias of f and taken away.
                np.testing.assert_allclose(array, theirs[path][name], atol=1e-15)
            else:
                np.testing.assert_array_equal(array, theirs[path][name])
    biases = (theirs[f"net/vanilla_rnn/{name}"]["b"] for name in ("linear", "linear_1"))
    np.testing.assert_array_equal(back["net/vanilla_rnn/linear"]["b"], sum(biases))


def linear(**more):
    return {"net/linear": {"w": np.ones((3, 2), np.float32), **more}}


@pytest.mark.parametrize(
    ("model", "paths", "message"),
    [
        (jr.dense(2), "net/linear", "no array 'net/linear/b'"),
        (jr.dense(2, use_bias=False), "linear", "no array 'linear/w'"),
        (jr.dense(3, use_bias=False), "net/linear", r"shape \[any, 3\], got \[3, 2\]"),
        (jr.serial(jr.dropout(0.1)), (None,), "no place for: net/linear/w"),
        (jr.serial(jr.gru(2), jr.dense(2)), "net", "one entry for each of the 2 layers"),
        (jr.dense(2), None, "path of dense.2. must be a string"),
        (jr.gru(2), "gru", "haiku has no gru with reset_after=True"),
        (jr.elman(2), "rnn", "no elman but with the activation relu"),
        (jr.lstm(2, peephole=True), "lstm", "haiku has no lstm with peephole=True"),
        (jr.bidirectional(jr.gru(2)), "gru", "haiku has no module for bidirectional"),
    ],
)
def test_what_haiku_has_not_is_named(model, paths, message):
    with pytest.raises(ValueError, match=message):
        from_haiku(linear(), model, paths)


def test_a_path_of_haiku_is_for_one_layer():
    model = jr.serial(jr.dense(2), jr.dense(2))
    with pytest.raises(ValueError, match="different for each layer, got 'linear' twice"):
        to_haiku(model, model.init(jax.random.key(0), 3), ("linear", "linear"))


@pytest.mark.parametrize("use_bias", [True, False])
def test_modules_of_equinox_and_back(x64, use_bias):
    eqx = pytest.importorskip("equinox", reason="needs equinox")
    keys = jax.random.split(jax.random.key(0), 5)
    stack = eqx.nn.Sequential(
        [
            eqx.nn.Linear(D, 4, use_bias=use_bias, key=keys[0]),
            eqx.nn.Lambda(jnp.tanh),
            eqx.nn.LayerNorm(4),
            eqx.nn.Dropout(0.1, inference=True),
        ]
    )
    dynamic, static = eqx.partition(stack, eqx.is_array)
    stack = eqx.combine(random_like(dynamic), static)
    xs = np.random.default_rng(1).standard_normal((B, T, D))
    model, params, _ = from_equinox(stack)
    want = jax.vmap(jax.vmap(lambda x: stack(x)))(xs)
    outputs = jr.unroll(model, params, xs).outputs
    np.testing.assert_allclose(outputs, want, rtol=1e-10, atol=1e-12)
    back = to_equinox(model, params)
    same(eqx.filter(back, eqx.is_array), eqx.filter(stack, eqx.is_array))
    assert from_equinox(back).model == model

    table = eqx.nn.Embedding(5, D, key=keys[1])
    assert from_equinox(table).model == jr.embed(D)
    same(to_equinox(*from_equinox(table)[:2]).weight, table.weight)
    for kind, expected in ((eqx.nn.LSTMCell, jr.lstm(4)), (eqx.nn.GRUCell, jr.gru(4))):
        cell = kind(D, 4, use_bias=use_bias, key=keys[2])
        model, params, _ = from_equinox(cell)
        assert model == expected
        back = to_equinox(model, params)
        same(back.weight_hh, cell.weight_hh)
        if use_bias:
            same(eqx.filter(back, eqx.is_array), eqx.filter(cell, eqx.is_array))
        else:
            assert not jnp.any(back.bias)
        carry = (jnp.zeros(4),) * 2 if kind is eqx.nn.LSTMCell else jnp.zeros(4)
        after = cell(xs[0, 0], carry)
        h = after[0] if isinstance(after, tuple) else after
        _, y = jr.step(model, params, None, xs[0, 0])
        np.testing.assert_allclose(y, h, rtol=1e-10, atol=1e-12)


def test_what_equinox_has_not_is_named():
    eqx = pytest.importorskip("equinox", reason="needs equinox")
    key = jax.random.key(0)
    for module, error, message in (
        (3, TypeError, "must be a module of equinox"),
        (eqx.nn.Conv1d(1, 1, 1, key=key), ValueError, "Conv1d cannot be read"),
        (eqx.nn.LayerNorm(3, use_bias=False), ValueError, "LayerNorm cannot be read"),
        (eqx.nn.LayerNorm((2, 3)), ValueError, "LayerNorm cannot be read"),
        (eqx.nn.Linear("scalar", 3, key=key), ValueError, "shape"),
    ):
        with pytest.raises(error, match=message):
            from_equinox(module)
    for model, message in (
        (jr.gru(2, reset_after=False), "equinox has no gru with reset_after=False"),
        (jr.dense(2, jnp.tanh), "equinox has no module for dense"),
        (jr.elman(2), "equinox has no module for elman"),
    ):
        with pytest.raises(ValueError, match=message):
            to_equinox(model, model.init(key, 3))


def test_a_model_inside_a_module_of_equinox():
    pytest.importorskip("equinox", reason="needs equinox")
    run(DOCS / "interop.md", "python equinox")
