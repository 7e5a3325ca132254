"""LSTM, GRU and RNN of ONNX and our cells: options and weights of one direction, both ways."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
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
from jaxrnn.factories import comparable, word
from jaxrnn.interop._gates import regrouped
from jaxrnn.interop._models import made_by
from jaxrnn.interop._onnx_activations import is_odd_around_half
from jaxrnn.types import Cell


class Weights(NamedTuple):
    """W `[G*H, D]`, R `[G*H, H]`, B `[2*G*H]` and P `[3*H]` (or None) of one direction."""

    w: Any
    r: Any
    b: Any
    p: Any = None


class Recurrence(NamedTuple):
    """One direction of a node: the operator, its attributes, its activations and its weights."""

    op: str
    attributes: dict[str, Any]
    activations: tuple[Callable[[Any], Any], ...]
    weights: Weights


NUM_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
ATTRIBUTES = {
    "LSTM": ("clip", "input_forget"),
    "GRU": ("clip", "linear_before_reset"),
    "RNN": ("clip",),
}


def read_cell(recurrence: Recurrence, source: str) -> tuple[Cell, Any]:
    """The cell that computes one direction of a node, and its params.

    Args:
        recurrence: what the node says of the direction.
        source: what errors call the node.

    Raises:
        ValueError: `input_forget` with an activation φ for which 1 - φ(u) is not φ(-u).
    """
    return {"LSTM": _read_lstm, "GRU": _read_gru, "RNN": _read_rnn}[recurrence.op](
        recurrence, source
    )


def _read_lstm(recurrence, source):
    (gate, activation, output), weights = recurrence.activations, recurrence.weights
    is_coupled = bool(recurrence.attributes.get("input_forget", 0))
    if is_coupled and not is_odd_around_half(gate):
        raise ValueError(
            f"{source} has input_forget=1 with the activation {word(gate)}: our coupled cell "
            "computes f, and i = 1 - f, which needs an activation with 1 - φ(u) = φ(-u), such as "
            "Sigmoid"
        )
    # Of coupled gates ONNX computes i, and f = 1 - i = σ(-uᵢ); the weights of f are not read.
    take = _coupled if is_coupled else lambda array: regrouped(array, "iofc", "ifco")
    cell = lstm(
        weights.r.shape[1],
        activation=activation,
        gate_activation=gate,
        output_activation=None if comparable(output) == comparable(activation) else output,
        clip=recurrence.attributes.get("clip"),
        peephole=weights.p is not None,
        coupled=is_coupled,
    )
    peephole = None
    if weights.p is not None:
        i, o, f = np.split(weights.p, 3)
        peephole = np.concatenate([-i, o] if is_coupled else [i, f, o])
    return cell, LSTMParams(*map(take, _kernels(weights)), peephole=peephole)


def _coupled(array):
    i, o, _, c = np.split(array, 4, axis=-1)
    return np.concatenate([-i, c, o], axis=-1)


def _read_gru(recurrence, source):
    del source
    gate, activation = recurrence.activations
    weights = recurrence.weights
    reset_after = bool(recurrence.attributes.get("linear_before_reset", 0))
    cell = gru(
        weights.r.shape[1],
        reset_after=reset_after,
        activation=activation,
        gate_activation=gate,
        clip=recurrence.attributes.get("clip"),
    )
    kernel, recurrent_kernel, bias = _kernels(weights)
    recurrent_bias = None
    if reset_after:
        # Only the h block of the second half is multiplied by r.
        of_gates = 2 * weights.r.shape[1]
        from_x, from_h = np.split(weights.b, 2)
        bias = np.concatenate([bias[:of_gates], from_x[of_gates:]])
        recurrent_bias = from_h[of_gates:]
    params = GRUParams(kernel, recurrent_kernel, bias)
    params = jax.tree.map(lambda array: regrouped(array, "zrh", "rzh"), params)
    return cell, params._replace(recurrent_bias=recurrent_bias)


def _read_rnn(recurrence, source):
    del source
    (activation,) = recurrence.activations
    weights = recurrence.weights
    cell = elman(weights.r.shape[1], activation, clip=recurrence.attributes.get("clip"))
    return cell, ElmanParams(*_kernels(weights))


def _kernels(weights):
    # A copy, so that the rows of a file in memory are not kept for a view.
    return weights.w.T.copy(), weights.r.T.copy(), np.add(*np.split(weights.b, 2))


def write_cell(cell: Cell, params: Any, name: str) -> Recurrence:
    """The operator, attributes, activations and weights of one direction.

    Args:
        cell: a cell of `elman`, `lstm` or `gru`.
        params: its parameters, as numpy.
        name: what errors call the model.

    Raises:
        ValueError: ONNX has no operator for the cell or for one of its options.
    """
    factory, options = made_by(cell)
    write = {"elman": _write_elman, "lstm": _write_lstm, "gru": _write_gru}.get(factory)
    if write is None:
        raise ValueError(f"{name} must be elman, lstm or gru for ONNX, got {cell}")
    recurrence = write(options, params, name)
    if options["clip"] is not None:
        recurrence.attributes["clip"] = float(options["clip"])
    return recurrence


def _write_lstm(options, params, name):
    for option in ("projection", "layer_norm"):
        if options[option]:
            raise ValueError(
                f"{name} has {option}={options[option]}, which the operator LSTM of ONNX has not"
            )
    gate, activation = options["gate_activation"], options["activation"]
    num_units, peephole = options["num_units"], params.peephole
    attributes = {}
    take = lambda array: regrouped(array, "ifco", "iofc")  # noqa: E731
    if options["coupled"]:
        if not is_odd_around_half(gate):
            raise ValueError(
                f"{name} is coupled with gate_activation={word(gate)}, and ONNX couples the other "
                "gate: that needs a function with 1 - φ(u) = φ(-u), such as jax.nn.sigmoid"
            )
        attributes["input_forget"] = 1
        take = _uncoupled
    if peephole is not None:
        early, o = np.split(peephole, [-num_units])
        i, f = (-early, np.zeros_like(early)) if options["coupled"] else np.split(early, 2)
        peephole = np.concatenate([i, o, f])
    arrays = (take(array) for array in (params.kernel, params.recurrent_kernel, params.bias))
    functions = gate, activation, options["output_activation"] or activation
    return Recurrence("LSTM", attributes, functions, _weights(*arrays, peephole=peephole))


def _uncoupled(array):
    f, c, o = np.split(array, 3, axis=-1)
    return np.concatenate([-f, o, np.zeros_like(f), c], axis=-1)


def _write_gru(options, params, name):
    del name
    recurrent_bias = np.zeros_like(params.bias)
    if options["reset_after"]:
        recurrent_bias[-options["num_units"] :] = params.recurrent_bias
    arrays = (params.kernel, params.recurrent_kernel, params.bias, recurrent_bias)
    weights = _weights(*(regrouped(array, "rzh", "zrh") for array in arrays))
    attributes = {"linear_before_reset": int(options["reset_after"])}
    functions = options["gate_activation"], options["activation"]
    return Recurrence("GRU", attributes, functions, weights)


def _write_elman(options, params, name):
    del name
    return Recurrence("RNN", {}, (options["activation"],), _weights(*params))


def _weights(kernel, recurrent_kernel, bias, recurrent_bias=None, peephole=None):
    recurrent_bias = np.zeros_like(bias) if recurrent_bias is None else recurrent_bias
    return Weights(kernel.T, recurrent_kernel.T, np.concatenate([bias, recurrent_bias]), peephole)


def carry_of(cell: Cell, states: dict[str, Any]) -> Any:
    """The carry of a cell from its `h`, and for an LSTM its `c`."""
    kind = {"lstm": LSTMCarry, "gru": GRUCarry, "elman": ElmanCarry}
    return kind[made_by(cell).factory](**states)


def has_standard_activations(recurrence: Recurrence) -> bool:
    """Whether the activations are those that the operator has by default."""
    standard = (jax.nn.sigmoid, jnp.tanh, jnp.tanh)
    standard = standard[-1:] if recurrence.op == "RNN" else standard[: len(recurrence.activations)]
    return comparable(recurrence.activations) == comparable(standard)
