"""Sequential depth, read off a traced program: the longest chain of operations that must wait."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core

FREE = {
    *("reshape", "transpose", "squeeze", "expand_dims", "slice", "broadcast_in_dim", "pad"),
    *("copy", "convert_element_type", "concatenate", "rev", "iota", "stop_gradient", "gather"),
    *("dynamic_slice", "dynamic_update_slice", "split", "select_n", "platform_index"),
}
CHOOSING = {"platform_index", "clamp", "convert_element_type"}


def sequential_depth(function: Callable[..., Any], *args: Any, shallow: bool = False) -> int:
    """How many operations follow each other at least, if everything else runs side by side.

    A product of matrices, a sum, or a function of all elements counts one; moving numbers counts
    nothing. A loop counts its length times what a turn adds to what it hands on, and its longest
    turn once more. It is a property of the program, not of the machine that runs it.

    Args:
        function: What is traced.
        args: Its arguments, arrays or `jax.ShapeDtypeStruct`.
        shallow: Of forms for several platforms the shallowest counts instead of the deepest.

    Raises:
        ValueError: There is a loop without a fixed number of turns.
    """
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    return max(_depths(jaxpr, [0] * len(jaxpr.invars), shallow), default=0)


def _depths(jaxpr: Any, inputs: list[int], shallow: bool) -> list[int]:
    """The depth of every result, given those of the arguments."""
    known = dict(zip(jaxpr.invars, inputs, strict=True))
    of_platform = set()

    def depth(atom):
        return 0 if isinstance(atom, core.Literal) else known.get(atom, 0)

    for equation in jaxpr.eqns:
        named = equation.primitive.name
        if named == "platform_index" or not of_platform.isdisjoint(_variables(equation)):
            of_platform.update(equation.outvars if named in CHOOSING else ())
        chooses = named == "cond" and equation.invars[0] in of_platform
        pick = min if shallow and chooses else max
        results = _of_equation(equation, [depth(atom) for atom in equation.invars], shallow, pick)
        known.update(zip(equation.outvars, results, strict=True))
    return [depth(atom) for atom in jaxpr.outvars]


def _of_equation(equation: Any, inputs: list[int], shallow: bool, pick: Any) -> list[int]:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return _of_scan(params, inputs, shallow)
    if name == "while":
        raise ValueError("a loop without a fixed number of turns has no depth")
    if name == "cond":
        branches = [_depths(each.jaxpr, inputs[1:], shallow) for each in params["branches"]]
        return pick(branches, key=max)
    inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), 0)
    if inner:
        return _depths(getattr(inner, "jaxpr", inner), inputs, shallow)
    deepest = max(inputs, default=0) + (name not in FREE)
    return [deepest] * len(equation.outvars)


def _of_scan(params: Any, inputs: list[int], shallow: bool) -> list[int]:
    """The chain through the carry grows by the same in every turn, from the second turn on."""
    body, length = params["jaxpr"].jaxpr, params["length"]
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    carries = slice(num_consts, num_consts + num_carry)
    turns = min(length, 2 + num_carry)
    before = inputs
    for _ in range(turns):
        results = _depths(body, before, shallow)
        grown = [max(a, b) for a, b in zip(results[:num_carry], before[carries], strict=True)]
        step = max((a - b for a, b in zip(grown, before[carries], strict=True)), default=0)
        before = [*inputs[:num_consts], *grown, *inputs[carries.stop :]]
        last = results
    return [depth + (length - turns) * step for depth in last]


def _variables(equation: Any) -> set[Any]:
    return {atom for atom in equation.invars if not isinstance(atom, core.Literal)}
