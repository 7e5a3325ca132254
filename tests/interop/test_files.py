"""Files of parameters: every model, every dtype, and files that are none."""

import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from experiments.frame.models import MODELS, Sizes
from jaxrnn.interop import load_params, save_params

safetensors = pytest.importorskip("safetensors", reason="needs safetensors")
GRU = jr.gru(2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def test_every_model(path):
    models = {name: model.make(Sizes.of(4, 2, window=3)) for name, model in MODELS.items()}
    like = {
        name: jax.eval_shape(lambda key, model=model: model.init(key, 4), jax.random.key(0))
        for name, model in models.items()
    }
    numbers = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: numbers.standard_normal(leaf.shape).astype(leaf.dtype), like)
    save_params(path, params)
    same(load_params(path, like), params)


def test_any_tree_and_dtype(path):
    tree = {
        "half": jnp.ones(3, jnp.bfloat16),
        "complex": jnp.array([1 + 2j], jnp.complex64),
        "scalar": jnp.float32(-0.0),
        "none": (None, (), jnp.arange(4, dtype=jnp.int8), jnp.array([True])),
        "empty": jnp.zeros((0, 3)),
    }
    save_params(path, tree)
    same(load_params(path, tree), tree)
    save_params(path, jnp.ones(2))
    same(load_params(path, jnp.zeros(2)), jnp.ones(2))
    save_params(path, ())
    assert load_params(path, ()) == ()


def test_views_of_arrays_keep_their_numbers(path):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    views = {
        "transposed": array.T,
        "reversed": array[::-1],
        "strided": array[:, ::2],
        "repeated": np.broadcast_to(array[0], (2, 4)),
        "columns": np.asfortranarray(array),
        "complex": array.astype(np.complex64).T,
        "half": np.asarray(jnp.asarray(array, jnp.bfloat16)).T,
    }
    save_params(path, views)
    same(load_params(path, views), views)


def test_names_and_what_wrote_it(path):
    model = jr.serial(jr.bidirectional(jr.gru(2)), jr.dense(3))
    save_params(path, model.init(jax.random.key(0), 2), model)
    with safetensors.safe_open(path, "numpy") as file:
        names, metadata = set(file.keys()), file.metadata()
    assert {"0.forward.recurrent_kernel", "0.backward.bias", "1.kernel"} <= names
    assert metadata == {"format": "jaxrnn", "version": jr.__version__, "model": repr(model)}


def damaged(path):
    save_params(path, GRU.init(jax.random.key(0), 2))
    path.write_bytes(path.read_bytes()[:-7])


def pickled(path):
    path.write_bytes(pickle.dumps({"kernel": np.ones(3)}))


def npz(path):
    with path.open("wb") as file:
        np.savez(file, kernel=np.ones(3))


def test_a_file_that_ends_anywhere_is_refused(path):
    params = GRU.init(jax.random.key(0), 2)
    save_params(path, params)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="is not a whole safetensors file"):
            load_params(path, params)


@pytest.mark.parametrize(
    "write", [damaged, pickled, npz, lambda path: path.write_text("kernel"), lambda p: p.touch()]
)
def test_a_file_of_another_kind_is_refused(path, write):
    write(path)
    with pytest.raises(ValueError, match="net.safetensors is not a whole safetensors file"):
        load_params(path, GRU.init(jax.random.key(0), 2))


@pytest.mark.parametrize(
    ("like", "error", "message"),
    [
        (jr.gru(3).init(jax.random.key(0), 2), ValueError, r"'kernel' .* shape \[2, 9\], got"),
        (jr.lstm(2).init(jax.random.key(0), 2), ValueError, r"shape \[2, 8\], got \[2, 6\]"),
        (GRU, TypeError, "like must have arrays or their shapes .*, got <function"),
        ({"bias": 1.0}, TypeError, "got 1.0 for 'bias'"),
        ({"kernels": jnp.ones(2)}, ValueError, "has no array 'kernels'; its arrays are: bias, ke"),
        (
            jr.gru(2, reset_after=False).init(jax.random.key(0), 2),
            ValueError,
            "no place for: recurrent_bias",
        ),
        (
            jr.cells.GRUParams(*(jnp.zeros(shape, int) for shape in ((2, 6), (2, 6), 6, 2))),
            TypeError,
            "'kernel' of .* must be like int32, got float32",
        ),
    ],
)
def test_parameters_of_another_model_are_refused(path, like, error, message):
    save_params(path, GRU.init(jax.random.key(0), 2))
    with pytest.raises(error, match=message):
        load_params(path, like)


def test_float64_is_not_cut(path):
    with jax.enable_x64(True):
        params = jnp.ones(2, jnp.float64)
        save_params(path, params)
        same(load_params(path, params), params)
    with pytest.raises(ValueError, match="'params' is float64, which JAX would cut to float32"):
        load_params(path, jnp.ones(2))


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"kernel": "ones"}, TypeError, "as leaves, got 'ones' for 'kernel'"),
        ({"key": jax.random.key(0)}, TypeError, "must have arrays of float16"),
        ({"wide": np.ones(1, np.complex128)}, TypeError, "for 'wide'"),
        ({"__metadata__": jnp.ones(1)}, ValueError, "named '__metadata__'"),
        ({"a.b": jnp.ones(1), "a": {"b": jnp.ones(1)}}, ValueError, "got two of 'a.b'"),
    ],
)
def test_what_cannot_be_saved_leaves_the_file_as_it_was(path, params, error, message):
    path.write_text("before")
    with pytest.raises(error, match=message):
        save_params(path, params)
    assert path.read_text() == "before" and os.listdir(path.parent) == [path.name]


def test_a_disk_that_is_full_leaves_the_file_as_it_was(path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    path.write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_params(path, jnp.ones(2))
    assert path.read_text() == "before" and os.listdir(path.parent) == [path.name]
    with pytest.raises(FileNotFoundError):
        save_params(path.parent / "missing" / "net.safetensors", jnp.ones(2))
