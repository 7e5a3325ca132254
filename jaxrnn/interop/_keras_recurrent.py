"""Recurrent layers of keras."""

import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import (
    ElmanCarry,
    ElmanParams,
    GRUCarry,
    GRUParams,
    LSTMCarry,
    LSTMParams,
    elman,
    gru,
    lstm,
)
from jaxrnn.interop._gates import regrouped
from jaxrnn.interop._imported import Arrays
from jaxrnn.interop._keras_layer import KerasLayer
from jaxrnn.layers import Directions, bidirectional
from jaxrnn.types import Model

CELLS = {
    **{name: "elman" for name in ("SimpleRNN", "SimpleRNNCell")},
    **{name: "lstm" for name in ("LSTM", "LSTMCell", "CuDNNLSTM")},
    **{name: "gru" for name in ("GRU", "GRUCell", "CuDNNGRU")},
}
# What joins two directions, by the names of keras.
MERGES: dict[str, Any] = {"concat": "concat", "sum": "sum", "ave": "mean", "mul": jnp.multiply}


class Part(NamedTuple):
    """A layer of the model that is read, with the carry of a stateful one."""

    model: Model
    params: Any
    carry: Any = None


def read_bidirectional(layer: KerasLayer) -> Part:
    """Both directions."""
    merge = MERGES.get(layer.config["merge_mode"])
    if merge is None:
        raise ValueError(
            f"{layer.name()} has merge_mode={layer.config['merge_mode']!r}; readable are "
            f"{', '.join(MERGES)}"
        )
    forward = layer.config["layer"]
    backward = layer.config.get("backward_layer") or forward
    if not forward["config"].get("return_sequences"):
        raise ValueError(
            f"{layer.name()} has return_sequences=False, whose output is in no step: build it with "
            "return_sequences=True and read both directions of the carry"
        )
    half = len(layer.weights) // 2
    states = layer.states and [*layer.states]
    layer = layer._replace(states=states and states[: len(states) // 2])
    first = read_recurrent(layer.inner(forward, layer.weights[:half]))
    layer = layer._replace(states=states and states[len(states) // 2 :])
    # The direction that reads backwards says so, if it was written down at all.
    backward = {**backward, "config": {**backward["config"], "go_backwards": False}}
    second = read_recurrent(layer.inner(backward, layer.weights[half:]))
    other = None if first.model == second.model else second.model
    model = bidirectional(first.model, other, merge)
    carry = Directions(first.carry, second.carry) if states else None
    return Part(model, Directions(first.params, second.params), carry)


def read_recurrent(layer: KerasLayer) -> Part:
    """A cell with its parameters, and with the state of a stateful layer."""
    layer.refuse(go_backwards=False, time_major=False)
    if layer.class_name == "RNN":
        layer = layer.inner(layer.config["cell"], layer.weights)
    if layer.class_name not in CELLS:
        raise ValueError(f"{layer.name()} has no counterpart; cells are SimpleRNN, LSTM and GRU")
    for name in ("dropout", "recurrent_dropout"):
        if layer.config.get(name):
            warnings.warn(
                f"{layer.name()} has {name}={layer.config[name]}, which acts in training alone and "
                "is left out",
                stacklevel=2,
            )
    kind, num_units = CELLS[layer.class_name], layer.config["units"]
    has_bias = layer.config.get("use_bias", True)
    arrays = layer.arrays(*["kernel", "recurrent_kernel"] + ["bias"] * has_bias)
    rows = {"elman": 1, "lstm": 4, "gru": 3}[kind] * num_units
    kernel = arrays.take("kernel", None, rows)
    recurrent_kernel = arrays.take("recurrent_kernel", num_units, rows)
    if layer.class_name.startswith("CuDNN"):
        kernel, recurrent_kernel = _of_cudnn(kernel, recurrent_kernel, rows // num_units)
    read = {"elman": _elman, "lstm": _lstm, "gru": _gru}[kind]
    model, params, record = read(layer, kernel, recurrent_kernel, arrays if has_bias else None)
    carry = None if layer.states is None else record(*map(jnp.asarray, layer.states))
    return Part(model, params, carry)


def _elman(layer: KerasLayer, kernel: Any, recurrent_kernel: Any, arrays: Arrays | None) -> Any:
    size = kernel.shape[1]
    bias = arrays.take("bias", size) if arrays else np.zeros(size, kernel.dtype)
    model = elman(size, layer.function("activation", "tanh"))
    return model, ElmanParams(kernel, recurrent_kernel, bias), ElmanCarry


def _gates(layer: KerasLayer) -> dict[str, Any]:
    return {
        "activation": layer.function("activation", "tanh"),
        "gate_activation": layer.function("recurrent_activation", "sigmoid"),
    }


def _lstm(layer: KerasLayer, kernel: Any, recurrent_kernel: Any, arrays: Arrays | None) -> Any:
    size, is_cudnn = kernel.shape[1], layer.class_name == "CuDNNLSTM"
    bias = np.zeros(size, kernel.dtype)
    if arrays:
        # The biases of the inputs and of the recurrent product.
        bias = arrays.take("bias", 2 * size if is_cudnn else size).reshape(-1, size).sum(0)
    model = lstm(layer.config["units"], **_gates(layer))
    return model, LSTMParams(kernel, recurrent_kernel, bias), LSTMCarry


def _gru(layer: KerasLayer, kernel: Any, recurrent_kernel: Any, arrays: Arrays | None) -> Any:
    """Keras has the gates in the order z, r, n."""
    num_units, size = layer.config["units"], kernel.shape[1]
    is_cudnn = layer.class_name == "CuDNNGRU"
    reset_after = is_cudnn or layer.config.get("reset_after", False)
    # Two rows of biases after the reset, of which only the sum matters but for n.
    shape = (2 * size,) if is_cudnn else (2, size) if reset_after else (size,)
    biases = np.zeros(shape, kernel.dtype) if arrays is None else arrays.take("bias", *shape)
    bias, recurrent_bias = biases, None
    if reset_after:
        inputs, recurrent = biases.reshape(2, size)
        rest = 2 * num_units
        bias = np.concatenate([(inputs + recurrent)[:rest], inputs[rest:]])
        recurrent_bias = recurrent[rest:]
    leaves = [regrouped(leaf, "zrn", "rzn") for leaf in (kernel, recurrent_kernel, bias)]
    model = gru(num_units, reset_after=reset_after, **_gates(layer))
    return model, GRUParams(*leaves, recurrent_bias=recurrent_bias), GRUCarry


def _of_cudnn(kernel: np.ndarray, recurrent_kernel: np.ndarray, num_gates: int) -> tuple[Any, Any]:
    """The kernels that keras 2 kept in cuDNN's order of axes, gate by gate."""
    kernels = np.split(kernel, num_gates, axis=1)
    recurrent = np.split(recurrent_kernel, num_gates, axis=1)
    return (
        np.concatenate([block.T.reshape(block.shape, order="F") for block in kernels], axis=1),
        np.concatenate([block.T for block in recurrent], axis=1),
    )
