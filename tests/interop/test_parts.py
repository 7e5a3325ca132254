"""The parts that every import and export is made of."""

from functools import partial

import jax
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.interop._gates import regrouped
from jaxrnn.interop._imported import Arrays
from jaxrnn.interop._models import made_by


def test_each_array_is_taken_exactly_once():
    arrays = Arrays({"kernel": np.ones((2, 3)), "bias": np.zeros(3)}, "the file")
    assert arrays.take("kernel", None, 3).shape == (2, 3)
    assert "kernel" not in arrays and "bias" in arrays
    with pytest.raises(ValueError, match="in the file are arrays .* no place for: bias"):
        arrays.finish()
    with pytest.raises(ValueError, match="'kernel' of the file was read already"):
        arrays.take("kernel", 2, 3)
    with pytest.raises(ValueError, match="the file has no array 'kernels'.*are: bias, kernel"):
        arrays.take("kernels", 2)
    with pytest.raises(
        ValueError, match=r"'bias' of the file must have the shape \[4\], got \[3\]"
    ):
        arrays.take("bias", 4)
    with pytest.raises(ValueError, match=r"must have the shape \[any, 4\], got \[3\]"):
        arrays.take("bias", None, 4)
    arrays.take("bias", 3)
    arrays.finish()


def test_blocks_of_gates_change_places():
    kernel = np.arange(8.0).reshape(1, 8)
    np.testing.assert_array_equal(regrouped(kernel, "iofc", "ifco"), [[0, 1, 4, 5, 6, 7, 2, 3]])


@pytest.mark.parametrize(
    ("write", "package"),
    [
        (jr.interop.to_equinox, "equinox"),
        (jr.interop.to_flax, "flax"),
        (partial(jr.interop.to_haiku, paths="gru"), "jax"),
        (jr.interop.to_keras, "keras"),
        (jr.interop.to_nnx, "flax"),
        (jr.interop.to_onnx, "onnx"),
        (jr.interop.to_torch, "torch"),
    ],
)
def test_parameters_of_another_model_are_refused(write, package):
    pytest.importorskip(package, reason=f"needs {package}")
    model = jr.gru(2, reset_after=False)
    params = model.init(jax.random.key(0), 3)
    with pytest.raises(TypeError, match="params must"):
        write(model, jr.lstm(2).init(jax.random.key(0), 3))
    with pytest.raises(ValueError, match="params.bias"):
        write(model, params._replace(bias=np.ones(5, np.float32)))


def test_the_call_that_made_a_model_with_its_defaults():
    factory, options = made_by(jr.gru(4, reset_after=False))
    assert factory == "gru"
    assert options["num_units"] == 4 and options["reset_after"] is False
    assert "param_dtype" in options
    assert made_by(jr.serial(jr.gru(4), jr.dense(2))).options["layers"] == (jr.gru(4), jr.dense(2))
    with pytest.raises(ValueError, match="model must be made by a factory"):
        made_by(jr.gru(4)._replace(num_outputs=len))
