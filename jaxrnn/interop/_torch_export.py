"""Models as modules of torch."""

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrnn.interop._models import check_written, flat, made_by
from jaxrnn.interop._torch_arrays import NONLINEARITIES, NUM_GATES, check_torch_has
from jaxrnn.interop._torch_functions import NAMES, module_of
from jaxrnn.types import Model, Params


class _Layer(NamedTuple):
    """A layer of a stack that is no stack."""

    model: Model
    params: Params

    def is_recurrent(self) -> bool:
        return made_by(self.model).factory in {*NUM_GATES, "bidirectional"}


def to_torch(model: Model, params: Params) -> Any:
    """Writes a model as a module of torch.

        to_torch(model, params)(xs) = jr.unroll(model, params, xs).outputs

    An `elman`, `lstm` or `gru`, `bidirectional` of one, and a `serial` of equal ones with or
    without the same `dropout` in between become an `RNN`, `LSTM` or `GRU`, which also returns its
    last state. Any other `serial` becomes a `Sequential` that returns outputs alone. All modules
    are `batch_first`. How a cell is evaluated, `recurrent(cell, evaluator)`, is left out. Of the
    two biases of torch, `bias_hh` is zero but for n of a GRU.

    Args:
        model: model of the factories above, `dense`, `embed`, `layer_norm`, `rms_norm`, `dropout`
            and `lift` of a function that torch has as a module.
        params: its parameters.

    Returns:
        The module, in evaluation mode, with the dtype of the parameters.

    Raises:
        TypeError: The parameters are those of another model.
        ValueError: The model or one of its options has no counterpart in torch, no factory made
            it, or the parameters have other shapes.

    Example:
        >>> import jax, jaxrnn as jr, torch
        >>> model = jr.serial(jr.embed(8), jr.bidirectional(jr.lstm(4)), jr.dense(3))
        >>> module = jr.interop.to_torch(model, model.init(jax.random.key(0), 100))
        >>> module(torch.tensor([[3, 14, 15], [92, 65, 35]])).shape
        torch.Size([2, 3, 3])
    """
    check_written(model, params)
    parts = flat(model, params)
    layers = [_Layer(_unevaluated(layer), layer_params) for layer, layer_params, _ in parts]
    modules = []
    while layers:
        run = _same_module(layers)
        modules += _recurrent(layers[:run]) if run else _stateless(layers[0])
        del layers[: run or 1]
    if len(modules) == 1:
        return modules[0].eval()
    from jaxrnn.interop._torch_stack import Stack

    return Stack(*modules).eval()


def _unevaluated(model: Model) -> Model:
    """The cell of `recurrent` that reads forwards; any other model as it is."""
    factory, options = made_by(model)
    return options["cell"] if factory == "recurrent" and not options["reverse"] else model


def _same_module(layers: list[_Layer]) -> int:
    """How many of the first layers are one recurrent module: equal ones, with equal dropout."""
    if not layers[0].is_recurrent():
        return 0
    equal, length = layers[0].model, 1
    between = [layer.model for layer in layers[1:2] if _is_plain_dropout(layer.model)]
    stride = 1 + len(between)
    while [layer.model for layer in layers[length : length + stride]] == [*between, equal]:
        length += stride
    return length


def _is_plain_dropout(model: Model) -> bool:
    factory, options = made_by(model)
    return factory == "dropout" and not options["variational"]


def as_tensor(array: Any) -> Any:
    """A tensor of its own with these numbers; torch cannot read bfloat16 of numpy."""
    import torch

    array = np.asarray(array)
    if array.dtype == jax.numpy.bfloat16:
        return torch.tensor(array.astype(np.float32)).bfloat16()
    return torch.tensor(array)


def _loaded(module: Any, arrays: dict[str, Any]) -> Any:
    """The module with these arrays, and with their dtype."""
    tensors = {name: as_tensor(array) for name, array in arrays.items()}
    module.to(next(iter(tensors.values())).dtype)
    module.load_state_dict(tensors)
    return module


def _recurrent(layers: list[_Layer]) -> list[Any]:
    """One RNN, LSTM or GRU."""
    from torch import nn

    rates = {made_by(layer.model).options["rate"] for layer in layers if not layer.is_recurrent()}
    directions = [_directions(layer) for layer in layers if layer.is_recurrent()]
    cell = directions[0][0].model
    kind, options = made_by(cell)
    check_torch_has(cell)
    arrays = {}
    for index, each in enumerate(directions):
        for layer, direction in zip(each, ("", "_reverse"), strict=False):
            for name, array in _weights(kind, layer.params).items():
                arrays[f"{name}_l{index}{direction}"] = array
    more = {"proj_size": options["projection"] or 0} if kind == "lstm" else {}
    if kind == "elman":
        names = {function: name for name, function in NONLINEARITIES.items()}
        more = {"nonlinearity": names[options["activation"]]}
    module = getattr(nn, {"elman": "RNN", "lstm": "LSTM", "gru": "GRU"}[kind])(
        arrays["weight_ih_l0"].shape[1],
        options["num_units"],
        len(directions),
        batch_first=True,
        bidirectional=len(directions[0]) == 2,
        dropout=rates.pop() if rates else 0.0,
        **more,
    )
    return [_loaded(module, arrays)]


def _directions(layer: _Layer) -> list[_Layer]:
    """The cells of a recurrent layer with their parameters: one, or two that are equal."""
    factory, options = made_by(layer.model)
    if factory != "bidirectional":
        return [layer]
    forward = _unevaluated(options["forward"])
    backward = _unevaluated(options["backward"] or options["forward"])
    if made_by(forward).factory not in NUM_GATES or forward != backward:
        raise ValueError(
            f"torch reads in both directions with equal elman, lstm or gru, got {layer.model}"
        )
    if options["merge"] != "concat":
        raise ValueError(f"torch has no merge={options['merge']!r}, got {layer.model}")
    return [_Layer(forward, params) for params in layer.params]


def _weights(kind: str, params: Any) -> dict[str, Any]:
    """The arrays of one layer and direction, with what torch adds to n of a GRU in `bias_hh`."""
    bias = np.asarray(params.bias)
    # The sum of any number and -0 is that number, -0 included.
    recurrent_bias = np.full_like(bias, -0.0)
    if kind == "gru":
        recurrent_bias[2 * len(params.recurrent_bias) :] = params.recurrent_bias
    arrays = {
        "weight_ih": np.asarray(params.kernel).T,
        "weight_hh": np.asarray(params.recurrent_kernel).T,
        "bias_ih": bias,
        "bias_hh": recurrent_bias,
    }
    if kind == "lstm" and params.projection_kernel is not None:
        arrays["weight_hr"] = np.asarray(params.projection_kernel).T
    return arrays


def _stateless(layer: _Layer) -> list[Any]:
    """The modules of a layer without memory."""
    from torch import nn

    params: Any = layer.params
    factory, options = made_by(layer.model)
    if factory == "dense":
        arrays = {"weight": np.asarray(params.kernel).T}
        if options["use_bias"]:
            arrays["bias"] = params.bias
        module = nn.Linear(*params.kernel.shape, bias=options["use_bias"])
        activation = options["activation"]
        return [_loaded(module, arrays)] + (
            [_function(activation, layer.model)] if activation else []
        )
    if factory == "embed":
        return [_loaded(nn.Embedding(*params.table.shape), {"weight": params.table})]
    if factory == "layer_norm":
        module = nn.LayerNorm(params.scale.shape[0], eps=options["epsilon"])
        return [_loaded(module, {"weight": params.scale, "bias": params.offset})]
    if factory == "rms_norm" and options["scale_offset"] == 0:
        module = nn.RMSNorm(params.scale.shape[0], eps=options["epsilon"])
        return [_loaded(module, {"weight": params.scale})]
    if _is_plain_dropout(layer.model):
        return [nn.Dropout(options["rate"])]
    if factory == "lift":
        return [_function(options["function"], layer.model)]
    raise ValueError(f"torch has no module for {layer.model}")


def _function(function: Any, model: Model) -> Any:
    module = module_of(function)
    if module is None:
        raise ValueError(f"torch has no module for the function of {model}; it has {NAMES}")
    return module
