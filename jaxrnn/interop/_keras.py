"""Recurrent networks of keras: layers, models and files in."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jaxrnn.cells._activations import identity
from jaxrnn.interop._imported import Arrays, Imported
from jaxrnn.interop._keras_layer import ACTIVATIONS, KerasLayer
from jaxrnn.interop._keras_recurrent import CELLS, Part, read_bidirectional, read_recurrent
from jaxrnn.layers import (
    BatchNormParams,
    DenseParams,
    EmbedParams,
    LayerNormParams,
    batch_norm,
    dense,
    dropout,
    embed,
    layer_norm,
    lift,
    serial,
)

# Layers that change nothing here: a mask is an argument of `unroll`.
NOTHING = {"InputLayer", "Masking", "ActivityRegularization"}
# What keras 3 writes into a graph to compute the masks of `Masking` and `Embedding`.
MASKS = {"NotEqual", "Any"}


def from_keras(source: Any) -> Imported:
    """Reads a layer, a model or a file of keras.

        jr.unroll(*from_keras(model)[:2], xs).outputs = model(xs)

    Layers are `SimpleRNN`, `LSTM`, `GRU`, `RNN` of their cells, `Bidirectional`, `Embedding`,
    `Dense`, `LayerNormalization`, `BatchNormalization` as it is after training, `Dropout`,
    `SpatialDropout1D`, `Activation` and `TimeDistributed`; models are chains of those. The arrays
    of keras are read as they are, but for the gates of a GRU, which have another order.

    A mask is an argument of `unroll` here, so a layer such as `Masking` is left out. With
    `return_sequences=False` the model still returns all steps, and `jr.last_valid` takes the one
    that keras returns. `dropout` and `recurrent_dropout` of a recurrent layer are left out with a
    warning; they act in training alone. States of a layer with `stateful=True` are the carry. The
    dtype to compute in, such as that of "mixed_float16", is not read: the inputs say it here.

    Args:
        source: a layer or model of keras that is built, the path of a `.keras` file, which is read
            by keras in its safe mode, or that of an `.h5` file with the configuration of the model,
            which is read without keras and may have the layers of keras 2, `CuDNNLSTM` and
            `CuDNNGRU` among them.

    Returns:
        `Imported(model, params, carry)`; carry is None if no layer is stateful.

    Raises:
        TypeError: The source is none of these.
        ValueError: A layer or an option has no counterpart here, the graph is not a chain, a layer
            has no arrays yet, or the file is damaged.

    Example:
        >>> import jax.numpy as jnp, jaxrnn as jr, keras
        >>> layer = keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True))
        >>> layer.build((None, None, 3))
        >>> model, params, _ = jr.interop.from_keras(layer)
        >>> model
        bidirectional(lstm(4))
        >>> jr.unroll(model, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 8)
    """
    if isinstance(source, str | os.PathLike):
        from jaxrnn.interop._keras_files import read_file

        layers = read_file(os.fspath(source))
    elif hasattr(source, "get_config") and hasattr(source, "weights"):
        layers = layers_of(source)
    else:
        raise TypeError(f"source must be a layer or model of keras, or a path, got {source!r}")
    parts = [part for layer in layers for part in _read(layer)]
    if not parts:
        raise ValueError("source must have a layer that computes something, got none")
    parts = _with_all_carries(parts)
    if len(parts) == 1:
        return Imported(*parts[0])
    models, params, carries = zip(*parts, strict=True)
    return Imported(serial(*models), params, None if carries[0] is None else carries)


def layers_of(source: Any) -> list[KerasLayer]:
    """The layers of a model, or the one that it is."""
    if not type(source).__module__.startswith("keras."):
        raise ValueError(
            f"{type(source).__name__} is a class of its own, whose `call` can be anything: read "
            "its layers one by one, or as a keras.Sequential"
        )
    if hasattr(source, "layers"):
        config = source.get_config()
        _check_all_are_layers(config, {layer.name for layer in source.layers})
        check_chain(config)
        return [layer for part in source.layers for layer in layers_of(part)]
    if not source.built:
        raise ValueError(f"source must be built, so that it has arrays, got {source!r}")
    from keras import ops

    for part in _inside(source):
        _check_code(part)
    states = None
    if getattr(source, "stateful", False) and source.states and source.states[0] is not None:
        states = _values(source.states)
    weights = [ops.convert_to_numpy(weight.value) for weight in source.weights]
    return [KerasLayer(type(source).__name__, source.get_config(), weights, states)]


def _values(states: Any) -> Any:
    """States as arrays; stacked cells have a list for each."""
    from keras import ops

    if isinstance(states, list | tuple):
        return [_values(state) for state in states]
    return ops.convert_to_numpy(states.value)


def _inside(source: Any) -> Iterator[Any]:
    """A layer, and the layers and cells that it is made of."""
    yield source
    for name in ("cell", "layer", "forward_layer", "backward_layer"):
        if hasattr(source, name):
            yield from _inside(getattr(source, name))
    for cell in getattr(source, "cells", ()):
        yield from _inside(cell)


def _check_code(part: Any) -> None:
    """Raises if a part is not what its name says: a class, or a function, that is not of keras."""
    from keras import activations

    if not type(part).__module__.startswith("keras."):
        raise ValueError(
            f"{type(part).__name__} {part.name!r} is a class of its own, whose `call` can be "
            "anything, though keras has a class of that name or it has none: it cannot be read"
        )
    for option in ("activation", "recurrent_activation"):
        function = getattr(part, option, None)
        name = activations.serialize(function) if callable(function) else None
        # All that keras keeps of a function is its name.
        known = activations.get(name) if isinstance(name, str) else function
        if function is not known and function is not ACTIVATIONS.get(str(name)):
            raise ValueError(
                f"{type(part).__name__} {part.name!r} has the {option} {name!r} which is not "
                f"keras.activations.{name} but {function!r}"
            )


def _check_all_are_layers(config: Mapping[str, Any], names: set[str]) -> None:
    """Raises if a model has operations between its layers, other than those of masks."""
    for entry in config["layers"]:
        name = entry["config"].get("name")
        if entry["class_name"] not in MASKS | {"InputLayer"} and name not in names:
            raise ValueError(
                f"{entry['class_name']} {name!r} is an operation, which cannot be read; write it "
                "as a layer, such as keras.layers.Activation, or apply it outside of the model"
            )


def check_chain(config: Mapping[str, Any]) -> None:
    """Raises unless each layer of a functional model reads the one before it alone.

    The last one must be the output, the only one.
    """
    before = None
    for layer in config["layers"]:
        if layer["class_name"] in MASKS:
            continue
        nodes, name = layer.get("inbound_nodes", []), layer["config"]["name"]
        _check_call(nodes, name)
        read = sorted(set(_sources(nodes)))
        if read and read != [(before, 0)]:
            raise ValueError(f"the layers must be a chain, but {name!r} reads {_shown(read)}")
        before = name
    outputs = sorted(set(_sources(config.get("output_layers", []))))
    if outputs and outputs != [(before, 0)]:
        raise ValueError(f"the layer {before!r} must be the one output, got {_shown(outputs)}")


def _shown(read: list[tuple[str, int]]) -> str:
    """Outputs of layers, of which the states of a recurrent one have a number above 0."""
    return ", ".join(f"output {number} of {name}" if number else name for name, number in read)


def _sources(node: Any) -> Iterator[tuple[str, int]]:
    """Layers in a node of a graph, and which output of each: lists of a name and two ints."""
    if isinstance(node, Mapping):
        node = [part for key, part in node.items() if key != "mask"]
    if not isinstance(node, list | tuple):
        return
    if len(node) >= 3 and isinstance(node[0], str) and isinstance(node[1], int):
        yield node[0], node[2]
        yield from _sources(node[3:])
        return
    for part in node:
        yield from _sources(part)


def _check_call(node: Any, name: str) -> None:
    """Raises if a layer was called with more than its inputs and a mask."""
    if isinstance(node, list | tuple):
        for part in node:
            _check_call(part, name)
        return
    if not isinstance(node, Mapping) or "keras_history" in node.get("config", ()):
        return
    # The options are at the end of a list in the files of keras 2, and have a name in keras 3.
    options = node.get("kwargs", {} if "args" in node else node)
    for option, value in options.items():
        if option != "mask" and value not in (None, False):
            advice = {"initial_state": "; pass it as `carry` of `unroll`"}.get(option, "")
            raise ValueError(
                f"{name!r} is called with {option}, which cannot be represented{advice}"
            )
    if any(argument is not None for argument in node.get("args", ())[1:]):
        raise ValueError(f"{name!r} is called with more than its inputs, which cannot be read")


def _with_all_carries(parts: list[Part]) -> list[Part]:
    """Gives the layers without a state their initial carry, if another layer has a state."""
    states = [part.carry for part in parts if part.carry is not None]
    if not states:
        return parts
    batch = len(jax.tree.leaves(states)[0])
    return [
        part._replace(carry=part.model.initial_carry(part.params, (batch,)))
        if part.carry is None
        else part
        for part in parts
    ]


def _read(layer: KerasLayer) -> Iterator[Part]:
    """The parts of one layer: none, one, or several for stacked cells."""
    name, config = layer.class_name, layer.config
    if name in NOTHING:
        return
    if name == "TimeDistributed":
        # It takes a sequence for a batch, so its layer must not be one that reads sequences.
        yield _read_stateless(layer.inner(config["layer"], layer.weights))
    elif name == "RNN" and config["cell"]["class_name"] == "StackedRNNCells":
        weights, cells = list(layer.weights), config["cell"]["config"]["cells"]
        states = layer.states or [None] * len(cells)
        for cell, state in zip(cells, states, strict=True):
            count = 2 + cell["config"].get("use_bias", True)
            one = {**config, "cell": cell}
            yield read_recurrent(layer._replace(config=one, weights=weights[:count], states=state))
            del weights[:count]
    elif name in CELLS or name == "RNN":
        yield read_recurrent(layer)
    elif name == "Bidirectional":
        yield read_bidirectional(layer)
    else:
        yield _read_stateless(layer)


def _read_stateless(layer: KerasLayer) -> Part:
    """A layer without memory."""
    name, config = layer.class_name, layer.config
    if name == "Dense":
        arrays = layer.arrays(*["kernel"] + ["bias"] * config["use_bias"])
        kernel = arrays.take("kernel", None, config["units"])
        bias = arrays.take("bias", config["units"]) if config["use_bias"] else None
        function = layer.function("activation", "linear")
        activation = None if function is identity else function
        model = dense(config["units"], activation, use_bias=config["use_bias"])
        return Part(model, DenseParams(kernel, bias))
    if name == "Embedding":
        table = layer.arrays("table").take("table", config["input_dim"], config["output_dim"])
        return Part(embed(config["output_dim"]), EmbedParams(table))
    if name in ("LayerNormalization", "BatchNormalization"):
        return _read_norm(layer)
    if name in ("Dropout", "SpatialDropout1D"):
        return Part(dropout(config["rate"], variational=name == "SpatialDropout1D"), ())
    if name in ("Activation", "ReLU", "Softmax"):
        layer.refuse(max_value=None, negative_slope=0.0, threshold=0.0, axis=-1)
        return Part(lift(layer.function("activation", name.lower())), ())
    raise ValueError(
        f"{layer.name()} has no counterpart; readable are SimpleRNN, LSTM, GRU, RNN of their "
        "cells, Bidirectional, Embedding, Dense, LayerNormalization, BatchNormalization, Dropout, "
        "SpatialDropout1D, Activation, ReLU, Softmax, TimeDistributed and Masking"
    )


def _read_norm(layer: KerasLayer) -> Part:
    """A normalisation of the features, whose scale or offset keras may leave out."""
    layer.refuse(rms_scaling=False)
    if layer.config["axis"] not in (-1, 2, [-1], [2]):
        raise ValueError(f"{layer.name()} must normalise features, got axis={layer.config['axis']}")
    is_batch = layer.class_name == "BatchNormalization"
    names = ["gamma"] * layer.config["scale"] + ["beta"] * layer.config["center"]
    names += ["moving_mean", "moving_variance"] * is_batch
    if not names:
        raise ValueError(f"{layer.name()} must have center or scale, which tell its width")
    arrays: Arrays = layer.arrays(*names)
    found = {name: arrays.take(name, None) for name in names}
    scale = found.get("gamma", np.ones_like(found[names[0]]))
    offset = found.get("beta", np.zeros_like(found[names[0]]))
    epsilon = layer.config["epsilon"]
    if not is_batch:
        return Part(layer_norm(epsilon), LayerNormParams(scale, offset))
    params = BatchNormParams(scale, offset, found["moving_mean"], found["moving_variance"])
    return Part(batch_norm(running=True, epsilon=epsilon), params)
