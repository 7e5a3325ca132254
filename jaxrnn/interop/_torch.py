"""Modules of torch and their arrays as models with parameters."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.cells import elman, gru, lstm
from jaxrnn.engine.parameters import check_params
from jaxrnn.interop._imported import Arrays, Imported
from jaxrnn.interop._torch_arrays import NONLINEARITIES, Prefix, as_numpy, read_params
from jaxrnn.interop._torch_functions import NAMES, function_of
from jaxrnn.layers import bidirectional, dense, dropout, embed, layer_norm, lift, rms_norm, serial
from jaxrnn.types import Cell, Layer, Model

RECURRENT = {"RNN": "elman", "LSTM": "lstm", "GRU": "gru"}


def from_torch(source: Any, model: Model | None = None, *, prefix: Prefix = "") -> Imported:
    """Reads a module of torch, or its arrays.

        jr.unroll(*from_torch(module)[:2], xs).outputs = module(xs)[0]

    Modules are `RNN`, `LSTM` and `GRU` with any number of layers and both directions, their cells,
    `Embedding`, `Linear`, `LayerNorm`, `RMSNorm`, `Dropout`, functions such as `ReLU` and `GELU`,
    and a `Sequential`, a `ModuleList`, a list or a dict of those, which run in that order. Other
    networks are read as a `state_dict`, with the model that its arrays are for. The two biases of
    torch become their sum, since only that matters; where torch has none, ours is zero and can be
    trained. A module that is in a stack twice becomes two layers with equal parameters.

    A recurrent module is one layer, or `serial` of its layers with `dropout` in between. Axes are
    those of `unroll`, so `batch_first` does not matter here, and neither do the options of
    `Embedding` that change its gradient alone (`padding_idx`, `scale_grad_by_freq`, `sparse`).

    Args:
        source: a module, a list or dict of modules, or a mapping from names to tensors or arrays.
        model: the model that a mapping is for; None for modules, which say what they are.
        prefix: what the names of the arrays begin with: a string for the model, or for a `serial`
            one for each of its layers, `("embedding.", "rnn.", None, "fc.")`. Recurrent layers with
            the same prefix are the layers l0, l1, ... of one module. Wrappers that add no
            parameters, such as `residual` and `recurrent`, take the prefix of what they wrap.

    Returns:
        `Imported(model, params)`, with copies of the arrays.

    Raises:
        TypeError: The source is neither of these, a mapping comes without a model or holds
            something else than arrays, or a module comes with a model or a prefix.
        ValueError: A module or an option of it has no counterpart here, a module has hooks or
            parametrisations such as `weight_norm`, an array is missing, left over, not floating or
            of another shape, or float64 comes where JAX computes in float32.

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
    if _is_state_dict(source):
        if not isinstance(model, Cell | Layer):
            raise TypeError(
                "model must be the cell or layer that the arrays of a state_dict are for, got "
                f"{model!r}."
            )
        arrays, where = source, "the state_dict"
    else:
        if model is not None or prefix != "":
            raise TypeError(
                "model and prefix must be left out for a module, which says what it is, got "
                f"{type(model).__name__} and {prefix!r}."
            )
        model, arrays, prefix = _read_module(source)
        where = f"the {type(source).__name__}"
    checked = Arrays({name: as_numpy(tensor, name) for name, tensor in arrays.items()}, where)
    params = jax.tree.map(jnp.asarray, read_params(model, checked, prefix, {}))
    checked.finish()
    check_params(model, params, None)
    return Imported(model, params)


def _is_state_dict(source: Any) -> bool:
    """Whether the source is a mapping of arrays; one of modules is a stack."""
    return isinstance(source, Mapping) and not any(
        hasattr(value, "named_modules") for value in source.values()
    )


def _read_module(module: Any) -> tuple[Model, Mapping[str, Any], Prefix]:
    """The model of a module, its arrays, and their prefixes."""
    from torch import nn

    if isinstance(module, list | tuple | Mapping) and module:
        named = dict(module) if isinstance(module, Mapping) else dict(enumerate(module))
        if all(isinstance(part, nn.Module) for part in named.values()):
            module = nn.Sequential()
            for name, part in named.items():
                module.add_module(str(name), part)
    if not isinstance(module, nn.Module):
        raise TypeError(
            "source must be a module of torch, a list or dict of modules, or a state_dict, got "
            f"{module!r}."
        )
    for name, part in module.named_modules():
        if type(part).__module__.startswith("torch.nn.utils.parametriz"):
            name = name or type(part).__name__
            raise ValueError(f"{name} is parametrised: remove the parametrisation first.")
    model = _model(module, type(module).__name__)
    for name, part in module.named_modules():
        # That is also how weight_norm, spectral_norm and pruning of old make their weights.
        if part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            raise ValueError(
                f"{name or type(part).__name__} has hooks or a forward of its own, which are not "
                "read: remove them first, with remove_weight_norm or prune.remove where those made "
                "them."
            )
    return model, module.state_dict(), _prefix(module, "")


def _is_stack(module: Any) -> bool:
    """Whether the parts of a module run one after another, and nothing else does."""
    from torch import nn

    from jaxrnn.interop._torch_stack import Stack

    return type(module) in (nn.Sequential, nn.ModuleList, Stack)


def _parts(module: Any) -> Any:
    """The parts of a stack with their names; `named_children` leaves out what comes again."""
    return module._modules.items()


def _prefix(module: Any, prefix: str) -> Prefix:
    """The prefix of the arrays of a module, None if it has none."""
    if _is_stack(module):
        return tuple(_prefix(part, f"{prefix}{name}.") for name, part in _parts(module))
    return prefix if len(module.state_dict()) else None


def _model(module: Any, name: str) -> Model:
    """The model of one module."""
    import torch
    from torch import nn

    kind = type(module).__name__
    if _is_stack(module) and len(module):
        return serial(*(_model(part, f"{name}.{key}") for key, part in _parts(module)))
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
    if type(module) is nn.RMSNorm and len(module.normalized_shape) == 1:
        if module.elementwise_affine:
            # What torch takes for None, as long as the inputs have the dtype of the weight.
            smallest = torch.finfo(module.weight.dtype).eps
            return rms_norm(smallest if module.eps is None else module.eps)
    if type(module) is nn.Dropout:
        return dropout(module.p)
    function = function_of(module)
    if function is not None:
        return lift(function)
    raise ValueError(
        f"{name} cannot be read: {module}. Readable are RNN, LSTM, GRU and their cells, Linear, "
        "Embedding without max_norm, LayerNorm over one axis with weight and bias, RMSNorm over "
        f"one axis with weight, Dropout, the functions {NAMES} with their default options, and "
        "Sequential, ModuleList, a list or a dict of those; other networks are read by their "
        "state_dict."
    )


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
