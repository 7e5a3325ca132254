"""Reads the call that made a model, to write the model in another framework."""

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

from jaxrnn.engine.parameters import check_params
from jaxrnn.types import Cell, Layer, Model, Params


class Made(NamedTuple):
    """The factory that made a model, and all arguments, with those at their default."""

    factory: str
    options: dict[str, Any]


# Factories of models that have the parameters and the carry of the model that they are given.
_AROUND = {
    "recurrent": "cell",
    "recurrent_dropout": "cell",
    "residual": "layer",
    "zoneout": "cell",
}


def bare(model: Model) -> Model:
    """The innermost model with the same parameters and carry.

    `bare(jr.recurrent(jr.gru(4), jr.newton()))` is `jr.gru(4)`.
    """
    factory, options = made_by(model)
    return bare(options[_AROUND[factory]]) if factory in _AROUND else model


def flat(
    model: Model, params: Params, path: tuple[int, ...] = ()
) -> Iterator[tuple[Model, Params, tuple[int, ...]]]:
    """The layers of a stack of stacks one after another, with their parameters and their paths."""
    factory, options = made_by(model)
    if factory != "serial":
        yield model, params, path
        return
    for index, (layer, layer_params) in enumerate(zip(options["layers"], params, strict=True)):
        yield from flat(layer, layer_params, (*path, index))


def made_by(model: Model) -> Made:
    """The call that made the model.

    `made_by(jr.lstm(4))` is `Made("lstm", {"num_units": 4, "activation": ..., ...})`.

    Raises:
        TypeError: if it is not a model.
        ValueError: if no factory made it, or if one of its fields was replaced.
    """
    _check_model(model)
    call = model.made_by
    if call is None:
        raise ValueError(
            f"model must be made by a factory, so that its options are known, got {model}"
        )
    bound = inspect.signature(call.factory).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    return Made(call.factory.__name__, dict(bound.arguments))


def check_written(model: Model, params: Params) -> None:
    """Raises unless these are a model and parameters of its own.

    Raises:
        TypeError: `model` is not a model, or `params` are those of another one.
        ValueError: `params` have other shapes.
    """
    _check_model(model)
    check_params(model, params, None)


def _check_model(model):
    if not isinstance(model, Cell | Layer):
        raise TypeError(f"model must be a Cell or a Layer, got {type(model).__name__}.")


# Options of a cell that say how its parameters are made, which they are already.
OF_INIT = frozenset({"param_dtype", "forget_bias", "chrono"})


def check_options(model: Model, represented: set[str], framework: str) -> None:
    """Raises if an option that the other framework does not have is not at its default.

    Args:
        model: model that a factory made.
        represented: names of options that it has, beside those of `OF_INIT`.
        framework: its name, for the error.

    Raises:
        ValueError: if there is such an option.
    """
    call: Any = model.made_by
    factory, options = made_by(model)
    for name, parameter in inspect.signature(call.factory).parameters.items():
        is_default = options[name] == parameter.default
        if name not in represented | OF_INIT and not is_default:
            raise ValueError(
                f"{framework} has no {factory} with {name}={options[name]!r}, got {model}"
            )
