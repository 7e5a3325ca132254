"""The activations of ONNX: their names there and functions here."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import hard_sigmoid
from jaxrnn.factories import word


def affine(x: Any, alpha: float, beta: float) -> Any:
    """y = alpha x + beta."""
    return alpha * x + beta


def scaled_tanh(x: Any, alpha: float, beta: float) -> Any:
    """y = alpha tanh(beta x)."""
    return alpha * jnp.tanh(beta * x)


def thresholded_relu(x: Any, alpha: float) -> Any:
    """y = x where x > alpha, and 0 elsewhere."""
    return jnp.where(x > alpha, x, 0)


class Activation(NamedTuple):
    """A function, the names that it has for alpha and beta, and what ONNX takes for those.

    The number is None where runtimes disagree on it, so that a file has to give it.
    """

    function: Callable[..., Any]
    options: tuple[str, ...] = ()
    defaults: tuple[float | None, ...] = ()


# Of the recurrent operators, which give alpha and beta in lists.
IN_CELLS = {
    "Affine": Activation(affine, ("alpha", "beta"), (None, None)),
    "Elu": Activation(jax.nn.elu, ("alpha",), (1.0,)),
    "HardSigmoid": Activation(hard_sigmoid, ("slope", "offset"), (0.2, 0.5)),
    "LeakyRelu": Activation(jax.nn.leaky_relu, ("negative_slope",), (0.01,)),
    "Relu": Activation(jax.nn.relu),
    "ScaledTanh": Activation(scaled_tanh, ("alpha", "beta"), (None, None)),
    "Sigmoid": Activation(jax.nn.sigmoid),
    "Softplus": Activation(jax.nn.softplus),
    "Softsign": Activation(jax.nn.soft_sign),
    "Tanh": Activation(jnp.tanh),
    "ThresholdedRelu": Activation(thresholded_relu, ("alpha",), (None,)),
}

# Operators of their own, which give alpha and beta as attributes.
AS_NODES = {
    name: activation
    for name, activation in IN_CELLS.items()
    if name not in ("Affine", "ScaledTanh", "ThresholdedRelu")
} | {
    "LogSoftmax": Activation(jax.nn.log_softmax),
    "Selu": Activation(jax.nn.selu),
    "Softmax": Activation(jax.nn.softmax),
}


def read_activations(
    names: Iterable[str], alphas: Iterable[float], betas: Iterable[float], source: str
) -> Iterator[Callable[[Any], Any]]:
    """The functions of a recurrent node, which take their alphas and betas in turn.

    Args:
        names: names of ONNX, in any case.
        alphas: numbers for those that have an alpha.
        betas: numbers for those that have a beta.
        source: what errors call the node.

    Yields:
        A function for each name.

    Raises:
        ValueError: A name is unknown, or a number is missing.
    """
    known = {name.lower(): name for name in IN_CELLS}
    left = {"alpha": iter(alphas), "beta": iter(betas)}
    for name in names:
        if name.lower() not in known:
            raise ValueError(
                f"{source} has the activation {name!r}; these are known: {', '.join(IN_CELLS)}"
            )
        activation = IN_CELLS[known[name.lower()]]
        numbers = [
            next(left[greek], None) for greek in ("alpha", "beta")[: len(activation.options)]
        ]
        yield with_numbers(activation, numbers, f"the activation {name} of {source}")


def with_numbers(
    activation: Activation, numbers: Iterable[float | None], source: str
) -> Callable[[Any], Any]:
    """The function with its alpha and beta; None is the number of ONNX."""
    given = {}
    for option, number, default in zip(
        activation.options, numbers, activation.defaults, strict=True
    ):
        number = default if number is None else decimal(number)
        if number is None:
            raise ValueError(
                f"{source} must be given alpha and beta, because runtimes take different ones"
            )
        # The function of jax or ours has the same default, and is then equal to itself.
        if number != default:
            given[option] = number
    return functools.partial(activation.function, **given) if given else activation.function


def decimal(number: float) -> float:
    """The number that was written, 0.01, and not its float32, 0.009999999776."""
    return float(str(np.float32(number)))


def write_activation(
    function: Callable[[Any], Any], table: dict[str, Activation], name: str
) -> tuple[str, list[float]]:
    """The name of ONNX, and alpha and beta as far as it has them.

    Args:
        function: a function of the table, or a `functools.partial` of one.
        table: `IN_CELLS` or `AS_NODES`.
        name: what the error calls the function.

    Raises:
        ValueError: ONNX has no such function, or it is given other options.
    """
    inner, given = function, {}
    if isinstance(function, functools.partial) and not function.args:
        inner, given = function.func, dict(function.keywords)
    for onnx_name, activation in table.items():
        if activation.function is inner and given.keys() <= set(activation.options):
            # Onnx takes numbers of Python only.
            given = {option: float(number) for option, number in given.items()}
            defaults: dict[str, Any] = dict(
                zip(activation.options, activation.defaults, strict=True)
            )
            return onnx_name, [*(defaults | given).values()]
    known = ", ".join(word(activation.function) for activation in table.values())
    raise ValueError(
        f"{name} has no operator in ONNX: {word(function)}; these functions have one: {known}"
    )


def is_odd_around_half(function: Callable[[Any], Any]) -> bool:
    """Whether 1 - φ(u) = φ(-u), so that 1 minus a gate is a gate with its sign changed."""
    inner, given = function, {}
    if isinstance(function, functools.partial):
        inner, given = function.func, function.keywords
    return inner is jax.nn.sigmoid or (inner is hard_sigmoid and given.get("offset", 0.5) == 0.5)
