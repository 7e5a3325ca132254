"""Recurrent networks of torch: modules and state dicts in, modules out, and their states."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import ElmanParams, GRUParams, LSTMParams, elman, gru, lstm
from jaxrnn.interop._imported import Arrays, Imported, kept_by_jax
from jaxrnn.interop._models import check_options, made_by
from jaxrnn.layers import (
    DenseParams,
    Directions,
    EmbedParams,
    LayerNormParams,
    bidirectional,
    dense,
    dropout,
    embed,
    layer_norm,
    lift,
    serial,
)
from jaxrnn.types import Cell, Layer, Model, Params

# A prefix of names for a layer, or one for each layer of a stack; None for a layer without arrays.
Prefix = str | Sequence[Any] | None

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "Tanh": jnp.tanh,
    "ReLU": jax.nn.relu,
    "Sigmoid": jax.nn.sigmoid,
    "SiLU": jax.nn.silu,
    "Softplus": jax.nn.softplus,
}
NONLINEARITIES = {"tanh": jnp.tanh, "relu": jax.nn.relu}
NUM_GATES = {"elman": 1, "lstm": 4, "gru": 3}
RECURRENT = {"RNN": "elman", "LSTM": "lstm", "GRU": "gru"}


def from_torch(source: Any, model: Model | None = None, *, prefix: Prefix = "") -> Imported:
    """Reads a module of torch, or its arrays.

        jr.unroll(*from_torch(module)[:2], xs).outputs = module(xs)[0]

    Modules are `RNN`, `LSTM` and `GRU` with any number of layers and both directions, their cells,
    `Embedding`, `Linear`, `LayerNorm`, `Dropout`, `Identity`, `Tanh`, `ReLU`, `Sigmoid`, `SiLU` and
    `Softplus`, and a `Sequential`, a `ModuleList` or a list of those. Other networks are read as a
    `state_dict`, with the model that its arrays are for. The two biases of torch become their sum,
    since only that matters; where torch has none, ours is zero and can be trained.

    A recurrent module is one layer, or `serial` of its layers with `dropout` in between. Axes are
    those of `unroll`, so `batch_first` does not matter here, and neither do the options of
    `Embedding` that change its gradient alone (`padding_idx`, `scale_grad_by_freq`, `sparse`).

    Args:
        source: a module, a list of modules, or a mapping from names to tensors or arrays.
        model: the model that a mapping is for; None for modules, which say what they are.
        prefix: what the names of the arrays begin with: a string for the model, or for a `serial`
            one for each of its layers, `("embedding.", "rnn.", None, "fc.")`. Recurrent layers with
            the same prefix are the layers l0, l1, ... of one module.

    Returns:
        `Imported(model, params)`.

    Raises:
        TypeError: The source is neither of these, or a mapping comes without a model.
        ValueError: A module or an option of it has no counterpart here, an array is missing, left
            over or of another shape, or float64 comes where JAX computes in float32.

    Example:
        >>> import jax.numpy as jnp, jaxrnn as jr, torch
        >>> lstm = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True)
        >>> model, params, _ = jr.interop.from_torch(lstm)
        >>> model
        serial(bidirectional(lstm(4)), bidirectional(lstm(4)))
        >>> jr.unroll(model, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 8)

        A network of your own is read by its arrays:

        >>> net = torch.nn.ModuleDict({"rnn": torch.nn.GRU(3, 4), "fc": torch.nn.Linear(4, 2)})
        >>> model = jr.serial(jr.gru(4), jr.dense(2))
        >>> params = jr.interop.from_torch(net.state_dict(), model, prefix=("rnn.", "fc.")).params
    """
    if isinstance(source, Mapping) and not hasattr(source, "state_dict"):
        if not isinstance(model, Cell | Layer):
            raise TypeError(
                "model must be the cell or layer that the arrays of a state_dict are for, got "
                f"{model!r}."
            )
        arrays, where = source, "the state_dict"
    else:
        if model is not None:
            raise TypeError(
                f"model must be None for a module, which says what it is, got {model!r}."
            )
        model, arrays, prefix = _read_module(source)
        where = f"the {type(source).__name__}"
    checked = Arrays({name: as_numpy(tensor, name) for name, tensor in arrays.items()}, where)
    params = _params(model, checked, prefix)
    checked.finish()
    return Imported(model, params)


def as_numpy(tensor: Any, name: str) -> np.ndarray:
    """The array of a tensor, or of an array, with its dtype."""
    if hasattr(tensor, "detach"):
        if tensor.is_quantized or tensor.is_sparse or tensor.device.type == "meta":
            raise ValueError(f"{name!r} must be a dense tensor with values, got {tensor!r}")
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            return tensor.float().numpy().astype(jnp.bfloat16)
        tensor = tensor.numpy()
    return kept_by_jax(np.asarray(tensor), name)


# Modules -> models


def _read_module(module: Any) -> tuple[Model, Mapping[str, Any], Prefix]:
    """The model of a module, its arrays, and their prefixes."""
    from torch import nn

    if type(module) in (list, tuple) and all(isinstance(part, nn.Module) for part in module):
        module = nn.ModuleList(module)
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"source must be a module of torch, a list of modules, or a state_dict, got {module!r}."
        )
    for name, part in module.named_modules():
        if type(part).__module__.startswith("torch.nn.utils.parametriz"):
            raise ValueError(f"{name!r} is parametrised: remove the parametrisation first.")
    return _model(module, type(module).__name__), module.state_dict(), _prefix(module, "")


def _is_stack(module: Any) -> bool:
    """Whether the parts of a module run one after another, and nothing else does."""
    from torch import nn

    from jaxrnn.interop._torch_stack import Stack

    return type(module) in (nn.Sequential, nn.ModuleList, Stack)


def _prefix(module: Any, prefix: str) -> Prefix:
    """The prefix of the arrays of a module, None if it has none."""
    if _is_stack(module):
        return tuple(_prefix(part, f"{prefix}{name}.") for name, part in module.named_children())
    return prefix if len(module.state_dict()) else None


def _model(module: Any, name: str) -> Model:
    """The model of one module."""
    from torch import nn

    kind = type(module).__name__
    if _is_stack(module):
        return serial(*(_model(part, f"{name}.{key}") for key, part in module.named_children()))
    if type(module) in (nn.RNN, nn.LSTM, nn.GRU):
        return _recurrent(module, RECURRENT[kind])
    if type(module) in (nn.RNNCell, nn.LSTMCell, nn.GRUCell):
        return _cell(module, RECURRENT[kind.removesuffix("Cell")])
    if type(module) is nn.Linear:
        return dense(module.out_features, use_bias=module.bias is not None)
    if type(module) is nn.Embedding and module.max_norm is None:
        return embed(module.embedding_dim)
    if type(module) is nn.LayerNorm and len(module.normalized_shape) == 1:
        if module.elementwise_affine and module.bias is not None:
            return layer_norm(module.eps)
    if type(module) is nn.Dropout:
        return dropout(module.p)
    if type(module) is nn.Identity:
        return lift(_identity)
    if kind in FUNCTIONS and type(module) is getattr(nn, kind):
        if kind != "Softplus" or (module.beta, module.threshold) == (1, 20):
            return lift(FUNCTIONS[kind])
    raise ValueError(
        f"{name} cannot be read: {module}. Readable are RNN, LSTM, GRU and their cells, Linear, "
        "Embedding without max_norm, LayerNorm over one axis with weight and bias, Dropout, "
        f"Identity, {', '.join(FUNCTIONS)}, and Sequential, ModuleList or a list of those; other "
        "networks are read by their state_dict."
    )


def _identity(x: Any) -> Any:
    return x


def _cell(module: Any, kind: str) -> Cell:
    if kind == "elman":
        return elman(module.hidden_size, NONLINEARITIES[module.nonlinearity])
    if kind == "gru":
        return gru(module.hidden_size)
    return lstm(module.hidden_size, projection=getattr(module, "proj_size", 0) or None)


def _recurrent(module: Any, kind: str) -> Model:
    """The layers of a recurrent module, with dropout in between."""
    layer: Model = _cell(module, kind)
    if module.bidirectional:
        layer = bidirectional(layer)
    layers = [layer] * module.num_layers
    if module.dropout:
        between = dropout(module.dropout)
        layers = [each for layer in layers for each in (layer, between)][:-1]
    return serial(*layers) if len(layers) > 1 else layer


# Arrays -> parameters


def _params(model: Model, arrays: Arrays, prefix: Prefix) -> Params:
    """The parameters of a model from the arrays whose names begin with the prefixes."""
    return _read(model, arrays, prefix, {})


def _read(model: Model, arrays: Arrays, prefix: Prefix, read: dict[str, int]) -> Params:
    """`read` counts the recurrent layers that were read of each module."""
    factory, options = made_by(model)
    if factory == "serial":
        layers = options["layers"]
        # One module of torch may be the whole stack.
        each = [prefix] * len(layers) if prefix is None or isinstance(prefix, str) else list(prefix)
        if len(each) != len(layers):
            raise ValueError(
                f"prefix must have one entry for each of the {len(layers)} layers of {model}, got "
                f"{prefix!r}."
            )
        return tuple(
            _read(layer, arrays, one, read) for layer, one in zip(layers, each, strict=True)
        )
    if factory in ("dropout", "lift"):
        return ()
    if not isinstance(prefix, str):
        raise ValueError(f"prefix of {model} must be a string, got {prefix!r}.")
    if factory in NUM_GATES or factory == "bidirectional":
        index = read.setdefault(prefix, 0)
        read[prefix] += 1
        return _read_recurrent(model, arrays, prefix, index)
    if factory == "dense" and options["activation"] is None:
        kernel = arrays.take(f"{prefix}weight", options["num_outputs"], None).T
        bias = arrays.take(f"{prefix}bias", options["num_outputs"]) if options["use_bias"] else None
        return DenseParams(kernel, bias)
    if factory == "dense":
        return _read(
            dense(options["num_outputs"], use_bias=options["use_bias"]), arrays, prefix, read
        )
    if factory == "embed":
        return EmbedParams(arrays.take(f"{prefix}weight", None, options["num_outputs"]))
    if factory == "layer_norm":
        scale = arrays.take(f"{prefix}weight", None)
        return LayerNormParams(scale, arrays.take(f"{prefix}bias", *scale.shape))
    raise ValueError(f"model must be made of layers that torch has, got {model}.")


def _read_recurrent(model: Model, arrays: Arrays, prefix: str, index: int) -> Params:
    """The parameters of layer `index` of a recurrent module, in one or both directions."""
    factory, options = made_by(model)
    if factory != "bidirectional":
        return _read_cell(model, arrays, prefix, index, "")
    backward = options["backward"] or options["forward"]
    return Directions(
        _read_cell(options["forward"], arrays, prefix, index, ""),
        _read_cell(backward, arrays, prefix, index, "_reverse"),
    )


def _read_cell(cell: Model, arrays: Arrays, prefix: str, index: int, direction: str) -> Params:
    """One set of weights: `[G*H, D]`, with two biases or none."""
    kind, options = made_by(cell)
    if kind not in NUM_GATES:
        raise ValueError(f"model must be made of elman, lstm and gru, which torch has, got {cell}.")
    check_torch_has(cell)
    # A module has numbered layers; a cell of torch has none.
    suffix = f"_l{index}{direction}"
    if f"{prefix}weight_ih{suffix}" not in arrays and f"{prefix}weight_ih" in arrays:
        suffix = ""
    num_units, width = options["num_units"], options.get("projection") or options["num_units"]
    rows = NUM_GATES[kind] * num_units
    kernel = arrays.take(f"{prefix}weight_ih{suffix}", rows, None).T
    recurrent_kernel = arrays.take(f"{prefix}weight_hh{suffix}", rows, width).T
    biases = [np.zeros(rows, kernel.dtype)] * 2
    if f"{prefix}bias_ih{suffix}" in arrays:
        biases = [arrays.take(f"{prefix}bias_{side}{suffix}", rows) for side in ("ih", "hh")]
    inputs, recurrent = biases
    if kind == "elman":
        return ElmanParams(kernel, recurrent_kernel, inputs + recurrent)
    if kind == "gru":
        rz = 2 * num_units
        bias = np.concatenate([(inputs + recurrent)[:rz], inputs[rz:]])
        return GRUParams(kernel, recurrent_kernel, bias, recurrent[rz:])
    projection_kernel = None
    if options["projection"]:
        projection_kernel = arrays.take(f"{prefix}weight_hr{suffix}", width, num_units).T
    bias = inputs + recurrent
    return LSTMParams(kernel, recurrent_kernel, bias, projection_kernel=projection_kernel)


def check_torch_has(cell: Model) -> None:
    """Raises if an option of an elman, lstm or gru is not one of torch's."""
    represented = {"num_units", "projection"}
    factory, options = made_by(cell)
    if factory == "elman" and options["activation"] in NONLINEARITIES.values():
        represented.add("activation")
    check_options(cell, represented, "torch")
