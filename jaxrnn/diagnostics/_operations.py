"""Multiplications counted in a traced program."""

import math
from typing import Any

import jax.numpy as jnp
from jax.extend import core


def multiply_adds(jaxpr: core.Jaxpr) -> int:
    """Multiplications of a program, each with its addition; loops count times their length."""
    return sum(map(_of_equation, jaxpr.eqns))


def _of_equation(equation):
    name, params = equation.primitive.name, equation.params
    inner = [multiply_adds(jaxpr) for jaxpr in _jaxprs(params)]
    if name == "scan":
        return params["length"] * sum(inner)
    if name == "cond":
        return max(inner)
    if name == "while":
        if any(inner):
            raise ValueError("model must not loop until something converges: no count.")
        return 0
    count = _COUNTS.get(name)
    return sum(inner) + (0 if count is None else count(equation))


def _jaxprs(params):
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else [value]:
            if isinstance(item, core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield item


def _of_dot(equation):
    left, right = (var.aval for var in equation.invars)
    contracted = equation.params["dimension_numbers"][0][0]
    inner = math.prod(left.shape[axis] for axis in contracted)
    return equation.outvars[0].aval.size * inner * _real_products(left, right)


def _of_product(equation):
    left, right = (var.aval for var in equation.invars)
    if not jnp.issubdtype(left.dtype, jnp.inexact):
        return 0
    return equation.outvars[0].aval.size * _real_products(left, right)


def _of_square(equation):
    operand = equation.invars[0].aval
    return operand.size * _real_products(operand, operand)


def _of_convolution(equation):
    left, right = (var.aval for var in equation.invars)
    # The kernel's axes, without those of its outputs, are what one output sums over.
    outputs = right.shape[equation.params["dimension_numbers"].rhs_spec[0]]
    inner = right.size // outputs
    return equation.outvars[0].aval.size * inner * _real_products(left, right)


def _of_fft(equation):
    lengths = equation.params["fft_lengths"]
    rows = max(equation.invars[0].aval.size, equation.outvars[0].aval.size) // math.prod(lengths)
    return max(rows, 1) * math.prod(lengths) * round(2 * math.log2(max(math.prod(lengths), 1)))


def _real_products(left: Any, right: Any) -> int:
    """How many real products one product is."""
    widths = [2 if jnp.issubdtype(side.dtype, jnp.complexfloating) else 1 for side in (left, right)]
    return math.prod(widths)


_COUNTS = {
    "dot_general": _of_dot,
    "mul": _of_product,
    "square": _of_square,
    "conv_general_dilated": _of_convolution,
    "fft": _of_fft,
}
