"""Functions of one step that torch has as modules."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells._activations import identity
from jaxrnn.factories import comparable


class Function(NamedTuple):
    """A class of `torch.nn`, the options that it must have, and what it computes."""

    name: str
    function: Callable[[Any], Any]
    options: dict[str, Any] = {}


# Torch's Softplus is y = x above its threshold, which is 2e-9 less.
FUNCTIONS = (
    Function("ELU", jax.nn.elu, {"alpha": 1}),
    Function("GELU", functools.partial(jax.nn.gelu, approximate=False), {"approximate": "none"}),
    Function("GELU", jax.nn.gelu, {"approximate": "tanh"}),
    Function("Hardsigmoid", jax.nn.hard_sigmoid),
    Function("Hardswish", jax.nn.hard_silu),
    Function("Hardtanh", jax.nn.hard_tanh, {"min_val": -1, "max_val": 1}),
    Function("Identity", identity),
    Function("LeakyReLU", jax.nn.leaky_relu, {"negative_slope": 0.01}),
    Function("LogSigmoid", jax.nn.log_sigmoid),
    Function("LogSoftmax", jax.nn.log_softmax, {"dim": -1}),
    Function("Mish", jax.nn.mish),
    Function("ReLU", jax.nn.relu),
    Function("ReLU6", jax.nn.relu6),
    Function("SELU", jax.nn.selu),
    Function("SiLU", jax.nn.silu),
    Function("Sigmoid", jax.nn.sigmoid),
    Function("Softmax", jax.nn.softmax, {"dim": -1}),
    Function("Softplus", jax.nn.softplus, {"beta": 1, "threshold": 20}),
    Function("Softsign", jax.nn.soft_sign),
    Function("Tanh", jnp.tanh),
)
NAMES = ", ".join(sorted({function.name for function in FUNCTIONS}))


def function_of(module: Any) -> Callable[[Any], Any] | None:
    """What a module of torch computes, or None if it is not one of these with these options."""
    from torch import nn

    for name, function, options in FUNCTIONS:
        if type(module) is getattr(nn, name):
            if all(getattr(module, option) == value for option, value in options.items()):
                return function
    return None


def module_of(function: Callable[[Any], Any]) -> Any:
    """The module of torch that computes a function, or None if there is none."""
    from torch import nn

    for name, known, options in FUNCTIONS:
        if comparable(known) == comparable(function):
            return getattr(nn, name)(**options)
    return None
