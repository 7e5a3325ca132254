"""Labels carried through a traced program: what each number that comes out has met on its way.

Every element of an input has a label. An element of an output then has the label of all labelled
elements that it is computed from, `MANY` where these differ, or `NONE`. Nothing is evaluated, so
what is found holds for all numbers. An operation without a rule mixes all that it reads: a program
may be found to mix more than it does, and never less.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend import core

NONE = -1
MANY = np.iinfo(np.int32).max


def carry_labels(program: core.Jaxpr, labels: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The labels of what a program returns.

    Args:
        program: a jaxpr.
        labels: for each of its inputs an array of int32 of the same shape.

    Returns:
        For each of its outputs an array of int32 of the same shape.

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
            return _unlabelled(atom)
        return known[atom]

    for equation in program.eqns:
        inputs = [read(atom) for atom in equation.invars]
        if any((label != NONE).any() for label in inputs):
            rule = _RULES.get(equation.primitive.name, _mix)
            known.update(zip(equation.outvars, rule(equation, inputs), strict=True))
    return [read(atom) for atom in program.outvars]


def _unlabelled(atom):
    return np.full(np.shape(atom.val) if isinstance(atom, core.Literal) else atom.aval.shape, NONE)


def _met(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The label of an element that is computed from two."""
    either = np.where(one == NONE, other, one)
    return np.where((either == other) | (other == NONE), either, MANY)


def _met_along(labels: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    """The label of an element that is computed from all those along some axes."""
    highest = labels.max(axes, initial=NONE)
    lowest = np.where(labels == NONE, MANY, labels).min(axes, initial=MANY)
    return np.where((highest == NONE) | (lowest == highest), highest, MANY)


def _mix(equation, inputs):
    """Every output is computed from every input."""
    label = _met_along(np.concatenate([labels.ravel() for labels in inputs]), None)
    return [np.full(var.aval.shape, label) for var in equation.outvars]


def _elementwise(equation, inputs):
    met = np.full(equation.outvars[0].aval.shape, NONE)
    for labels in inputs:
        met = _met(met, labels)
    return [met]


def _reduced(equation, inputs):
    return [_met_along(inputs[0], tuple(equation.params["axes"]))]


def _accumulated(equation, inputs):
    axis = equation.params["axis"]
    met = np.expand_dims(_met_along(inputs[0], (axis,)), axis)
    return [np.broadcast_to(met, inputs[0].shape)]


def _product(equation, inputs):
    contracting, batch = equation.params["dimension_numbers"]
    shape = equation.outvars[0].aval.shape
    num_batch = len(batch[0])
    sides = []
    for labels, contracted, batched in zip(inputs, contracting, batch, strict=True):
        free = [axis for axis in range(labels.ndim) if axis not in (*contracted, *batched)]
        moved = labels.transpose(*batched, *free, *contracted)
        first = len(batched) + len(free)
        sides.append(_met_along(moved, tuple(range(first, labels.ndim))))
    left, right = sides
    left = np.expand_dims(left, tuple(range(left.ndim, len(shape))))
    right = np.expand_dims(right, tuple(range(num_batch, num_batch + len(shape) - right.ndim)))
    return [np.broadcast_to(_met(left, right), shape)]


def _broadcast(equation, inputs):
    shape, axes = equation.params["shape"], equation.params["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for axis, size in zip(axes, inputs[0].shape, strict=True):
        sizes[axis] = size
    return [np.broadcast_to(inputs[0].reshape(sizes), shape)]


def _reshaped(equation, inputs):
    return [inputs[0].reshape(equation.outvars[0].aval.shape)]


def _sliced(equation, inputs):
    params = equation.params
    strides = params["strides"] or [1] * inputs[0].ndim
    parts = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return [inputs[0][tuple(slice(*part) for part in parts)]]


def _padded(equation, inputs):
    labels, filling = inputs
    config = equation.params["padding_config"]
    if any(low < 0 or high < 0 for low, high, _ in config):
        return _mix(equation, inputs)
    padded = np.full(equation.outvars[0].aval.shape, filling)
    places = zip(config, labels.shape, strict=True)
    padded[tuple(slice(low, low + n * (gap + 1), gap + 1) for (low, _, gap), n in places)] = labels
    return [padded]


def _split(equation, inputs):
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return np.split(inputs[0], ends, axis=equation.params["axis"])


def _called(equation, inputs):
    return carry_labels(_open(_inner(equation)), inputs)


def _inner(equation):
    words = ("jaxpr", "call_jaxpr", "fun_jaxpr")
    return next(equation.params[word] for word in words if word in equation.params)


def _open(program):
    return program.jaxpr if isinstance(program, core.ClosedJaxpr) else program


def _scanned(equation, inputs):
    params = equation.params
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    consts, carry = inputs[:num_consts], inputs[num_consts : num_consts + num_carry]
    xs = [_met_along(labels, (0,)) for labels in inputs[num_consts + num_carry :]]
    body, length = _open(params["jaxpr"]), params["length"]

    def run(carry):
        outputs = carry_labels(body, [*consts, *carry, *xs])
        return outputs[:num_carry], outputs[num_carry:]

    after, ys = run(carry)
    if length > 1:
        carry = _settled(lambda carry: run(carry)[0], carry)
        after, ys = carry, run(carry)[1]
    return [*after, *(np.broadcast_to(labels, (length, *labels.shape)) for labels in ys)]


def _looped(equation, inputs):
    params = equation.params
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond, body = inputs[:num_cond], inputs[num_cond : num_cond + num_body]
    carry = inputs[num_cond + num_body :]
    test, step = _open(params["cond_jaxpr"]), _open(params["body_jaxpr"])
    carry = _settled(lambda carry: carry_labels(step, [*body, *carry]), carry)
    (stops,) = carry_labels(test, [*cond, *carry])
    return [_met(labels, stops) for labels in carry]


def _settled(run: Callable[..., Any], carry: list[np.ndarray]) -> list[np.ndarray]:
    """The labels of a carry after any number of runs."""
    while True:
        new = [_met(old, met) for old, met in zip(carry, run(carry), strict=True)]
        if all((old == met).all() for old, met in zip(carry, new, strict=True)):
            return new
        carry = new


def _branched(equation, inputs):
    chosen, *operands = inputs
    branches = [carry_labels(_open(branch), operands) for branch in equation.params["branches"]]
    return [functools.reduce(_met, same, chosen) for same in zip(*branches, strict=True)]


_ELEMENTWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp
    complex conj convert_element_type copy cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1
    floor ge gt imag integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg
    nextafter not or pow real reduce_precision rem round rsqrt select_n sign sin sinh sqrt square
    stop_gradient sub tan tanh xor
"""
_RULES = {
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    **dict.fromkeys(
        "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin".split(),
        _reduced,
    ),
    **dict.fromkeys("cumsum cumprod cummax cummin cumlogsumexp".split(), _accumulated),
    **dict.fromkeys("reshape squeeze expand_dims".split(), _reshaped),
    **dict.fromkeys(
        "jit pjit closed_call core_call remat remat2 checkpoint custom_jvp_call custom_vjp_call "
        "custom_vjp_call_jaxpr".split(),
        _called,
    ),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda equation, inputs: [np.concatenate(inputs, equation.params["dimension"])],
    "cond": _branched,
    "dot_general": _product,
    "pad": _padded,
    "rev": lambda equation, inputs: [np.flip(inputs[0], equation.params["dimensions"])],
    "scan": _scanned,
    "slice": _sliced,
    "split": _split,
    "stack": lambda equation, inputs: [np.stack(inputs, equation.params["axis"])],
    "transpose": lambda equation, inputs: [inputs[0].transpose(equation.params["permutation"])],
    "while": _looped,
}
