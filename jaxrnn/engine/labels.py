"""Labels carried through a traced program: what each number that comes out has met on its way.

Every element of an input has a label, an int, or `NONE`. An element of an output then has the label
of all labelled elements that it is computed from; what becomes of two different ones is up to the
caller. Nothing is evaluated, so what is found holds for all numbers. An operation without a rule
mixes all that it reads: a program may be found to mix more than it does, and never less.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend import core

NONE = -1
MANY = np.iinfo(np.int32).max

Labels = np.ndarray
"""Ints of the shape of an array, `NONE` where there is no label."""

Meet = Callable[[Labels, Labels], Labels]
"""The labels of elements that are computed from two; at least the larger one of each pair."""


def many(one: Labels, other: Labels) -> Labels:
    """`MANY` where two different labels meet.

    Example:
        >>> many(np.array([NONE, 1, 1]), np.array([2, 1, 0])).tolist() == [2, 1, MANY]
        True
    """
    highest = np.maximum(one, other)
    same = (one == other) | (one == NONE) | (other == NONE)
    return np.where(same, highest, MANY)


def carry_labels(
    program: core.Jaxpr, labels: Sequence[Labels], meet: Meet = many
) -> Sequence[Labels]:
    """The labels of what a program returns.

    Args:
        program: a jaxpr.
        labels: those of each of its inputs.
        meet: what becomes of two labels that meet.

    Returns:
        The labels of each of its outputs.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> program = jax.make_jaxpr(lambda x: (2 * x, x - x[::-1], x @ jnp.ones(2)))(jnp.ones(2))
        >>> doubled, mixed, dot = carry_labels(program.jaxpr, [np.arange(2)])
        >>> doubled.tolist(), set(mixed.tolist()) == {MANY}, int(dot) == MANY
        ([0, 1], True, True)
    """
    known = dict(zip(program.invars, labels, strict=True))

    def read(atom):
        if isinstance(atom, core.Literal) or atom not in known:
            return unlabelled(atom)
        return known[atom]

    for equation in program.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if any((one != NONE).any() for one in inputs):
            rule = _RULES.get(equation.primitive.name, _mixed)
            known.update(zip(equation.outvars, rule(equation, inputs, meet), strict=True))
    return [read(atom) for atom in program.outvars]


def unlabelled(atom: Any) -> Labels:
    """The labels of an input, a constant or a result that has none."""
    return np.full(atom.aval.shape, NONE)


def _met_along(labels, axes, meet):
    """The labels of elements that are each computed from all those along some axes."""
    highest = labels.max(axes, keepdims=True, initial=NONE)
    return meet(np.broadcast_to(highest, labels.shape), labels).max(axes, initial=NONE)


def _mixed(equation, inputs, meet):
    """Every element of every output is computed from all that is read."""
    label = _met_along(np.concatenate([one.ravel() for one in inputs]), 0, meet)
    return [np.full(var.aval.shape, label) for var in equation.outvars]


def _elementwise(equation, inputs, meet):
    shape = equation.outvars[0].aval.shape
    return [functools.reduce(meet, (np.broadcast_to(one, shape) for one in inputs))]


def _summed(equation, inputs, meet):
    return [_met_along(inputs[0], tuple(equation.params["axes"]), meet)]


def _accumulated(equation, inputs, meet):
    axis = equation.params["axis"]
    met = np.expand_dims(_met_along(inputs[0], axis, meet), axis)
    return [np.broadcast_to(met, inputs[0].shape)]


def _multiplied(equation, inputs, meet):
    """`dot_general`, whose axes are those of the batch, then the free ones of both operands."""
    contracting, batch = equation.params["dimension_numbers"]
    num_axes, num_batch = len(equation.outvars[0].aval.shape), len(batch[0])
    sides = []
    for one, contracted, batched in zip(inputs, contracting, batch, strict=True):
        free = [axis for axis in range(one.ndim) if axis not in (*contracted, *batched)]
        moved = one.transpose(*batched, *free, *contracted)
        sides.append(_met_along(moved, tuple(range(num_batch + len(free), one.ndim)), meet))
    left, right = sides
    left = np.expand_dims(left, tuple(range(left.ndim, num_axes)))
    gap = num_axes - right.ndim
    right = np.expand_dims(right, tuple(range(num_batch, num_batch + gap)))
    return [meet(*np.broadcast_arrays(left, right))]


def _broadcast(equation, inputs, meet):
    del meet
    sizes = [1] * len(equation.params["shape"])
    for axis, size in zip(equation.params["broadcast_dimensions"], inputs[0].shape, strict=True):
        sizes[axis] = size
    return [np.broadcast_to(inputs[0].reshape(sizes), equation.params["shape"])]


def _reshaped(equation, inputs, meet):
    del meet
    order = equation.params["dimensions"]
    labels = inputs[0] if order is None else inputs[0].transpose(order)
    return [labels.reshape(equation.params["new_sizes"])]


def _sliced(equation, inputs, meet):
    del meet
    starts, stops = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or [1] * len(starts)
    return [inputs[0][tuple(map(slice, starts, stops, strides))]]


def _padded(equation, inputs, meet):
    labels, filling = inputs
    config = equation.params["padding_config"]
    if any(low < 0 or high < 0 for low, high, _ in config):
        return _mixed(equation, inputs, meet)
    padded = np.full(equation.outvars[0].aval.shape, filling)
    places = [
        slice(low, low + size * (between + 1), between + 1)
        for (low, _, between), size in zip(config, labels.shape, strict=True)
    ]
    padded[tuple(places)] = labels
    return [padded]


def _split(equation, inputs, meet):
    del meet
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return np.split(inputs[0], ends, axis=equation.params["axis"])


def _called(equation, inputs, meet):
    names = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    inner = next(equation.params[name] for name in names if name in equation.params)
    return carry_labels(_opened(inner), inputs, meet)


def _opened(program):
    return program.jaxpr if isinstance(program, core.ClosedJaxpr) else program


def _scanned(equation, inputs, meet):
    params = equation.params
    body, length = _opened(params["jaxpr"]), params["length"]
    first = params["num_consts"] + params["num_carry"]
    consts, carry = inputs[: params["num_consts"]], inputs[params["num_consts"] : first]
    xs = [_met_along(one, 0, meet) for one in inputs[first:]]

    def run(carry):
        outputs = carry_labels(body, [*consts, *carry, *xs], meet)
        return outputs[: len(carry)], outputs[len(carry) :]

    if length == 1:
        carry, ys = run(carry)
    else:
        carry = _settled(lambda carry: run(carry)[0], carry, meet)
        ys = run(carry)[1]
    return [*carry, *(np.broadcast_to(one, (length, *one.shape)) for one in ys)]


def _looped(equation, inputs, meet):
    params = equation.params
    first = params["cond_nconsts"] + params["body_nconsts"]
    test, step = _opened(params["cond_jaxpr"]), _opened(params["body_jaxpr"])
    consts = inputs[params["cond_nconsts"] : first]
    carry = _settled(lambda c: carry_labels(step, [*consts, *c], meet), inputs[first:], meet)
    (ends,) = carry_labels(test, [*inputs[: params["cond_nconsts"]], *carry], meet)
    return [meet(one, np.broadcast_to(ends, one.shape)) for one in carry]


def _settled(run, carry, meet):
    """The labels of a carry after any number of runs."""
    while True:
        new = list(map(meet, carry, run(carry)))
        if all(map(np.array_equal, carry, new)):
            return new
        carry = new


def _branched(equation, inputs, meet):
    chosen, *operands = inputs
    branches = [carry_labels(_opened(one), operands, meet) for one in equation.params["branches"]]
    met = [functools.reduce(meet, same) for same in zip(*branches, strict=True)]
    return [meet(one, np.broadcast_to(chosen, one.shape)) for one in met]


_ELEMENTWISE = """
    abs add add_any and clamp complex conj convert_element_type copy copy_p cos div eq exp expm1 ge
    gt imag integer_pow is_finite le log log1p logistic lt max min mul ne neg not or pow pvary real
    reduce_precision rsqrt select_n sign sin sqrt square stop_gradient sub tanh
"""
_CALLS = """
    jit pjit closed_call core_call checkpoint remat remat2 custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr
"""
_SUMS = "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or"
_RULES = {
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    **dict.fromkeys(_CALLS.split(), _called),
    **dict.fromkeys(_SUMS.split(), _summed),
    **dict.fromkeys(["cumsum", "cumprod", "cummax", "cummin"], _accumulated),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda eqn, inputs, _: [np.concatenate(inputs, eqn.params["dimension"])],
    "cond": _branched,
    "dot_general": _multiplied,
    "pad": _padded,
    "reshape": _reshaped,
    "rev": lambda eqn, inputs, _: [np.flip(inputs[0], eqn.params["dimensions"])],
    "scan": _scanned,
    "slice": _sliced,
    "split": _split,
    "squeeze": lambda eqn, inputs, _: [inputs[0].squeeze(tuple(eqn.params["dimensions"]))],
    "stack": lambda eqn, inputs, _: [np.stack(inputs, eqn.params["axis"])],
    "tile": lambda eqn, inputs, _: [np.tile(inputs[0], eqn.params["reps"])],
    "transpose": lambda eqn, inputs, _: [inputs[0].transpose(eqn.params["permutation"])],
    "while": _looped,
}
