"""Which entries of a vector a step couples, read off the program of its derivative.

Entries i and j are coupled where the Jacobian may have a nonzero entry Jᵢⱼ, or where a chain of
such pairs joins them. The derivative is a linear function of the tangent, and its program is walked
once. Each element of an array in it is labelled with one entry of the tangent that it depends on,
and where elements with two labels meet, the labels are paired. An operation that the walk does not
know pairs all that enters it. So the walk may couple too much and never too little: what is outside
the blocks is zero for all parameters, carries and inputs.
"""

from collections.abc import Sequence

import numpy as np
from jax.extend import core

_NONE = -1  # the label of an element that depends on no entry

Labels = np.ndarray | None
"""A label for each element of an array; None where no element has one."""


def coupled_blocks(jaxpr: core.Jaxpr, num_entries: int) -> tuple[np.ndarray, ...]:
    """The entries of a vector in blocks such that no entry depends on one of another block.

    Args:
        jaxpr: a function that is linear in its first argument; that one and the only result are
            vectors of N entries.
        num_entries: N.

    Returns:
        For each size of blocks that occurs ints `[size, number of blocks]`, the entries of the
        blocks of this size. Every entry is in one block.

    Example:
        >>> import jax
        >>> function = lambda h, w: jax.numpy.concatenate([h[2:] + w * h[:2], w * h[2:]])
        >>> coupled_blocks(jax.make_jaxpr(function)(jax.numpy.ones(4), 2.0).jaxpr, 4)
        (array([[0, 1],
               [2, 3]]),)
    """
    pairs = _Pairs()
    entries = np.arange(num_entries)
    (labels,) = _walk(jaxpr, [entries, *[None] * (len(jaxpr.invars) - 1)], pairs)
    if labels is not None:
        pairs.add(entries, labels)
    smallest = _smallest_member(num_entries, pairs.all())
    _, block, sizes = np.unique(smallest, return_inverse=True, return_counts=True)
    # Stable, so that members are in the order of the vector, block by block.
    by_block = np.split(np.argsort(block, kind="stable"), np.cumsum(sizes)[:-1])
    return tuple(
        np.stack([members for members in by_block if len(members) == size], axis=1)
        for size in np.unique(sizes)
    )


class _Pairs:
    """The pairs of labels that have met."""

    def __init__(self):
        self._found = [np.zeros((0, 2), int)]

    def add(self, labels: np.ndarray, others: np.ndarray) -> None:
        met = (labels != others) & (labels != _NONE) & (others != _NONE)
        self._found.append(np.unique(np.stack([labels[met], others[met]], axis=1), axis=0))

    def all(self) -> np.ndarray:
        return np.concatenate(self._found)


def _smallest_member(num_entries, pairs):
    """For each entry the smallest one that a chain of pairs joins it with."""
    smallest = np.arange(num_entries)
    while True:
        low = smallest.copy()
        for one, other in (pairs.T, pairs.T[::-1]):
            np.minimum.at(low, one, smallest[other])
        low = low[low]  # a shortcut, so that long chains take few rounds
        if (low == smallest).all():
            return low
        smallest = low


def _walk(jaxpr, inputs, pairs) -> Sequence[Labels]:
    """The labels of the outputs of a program, from those of its inputs."""
    known = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atoms):
        return [None if isinstance(atom, core.Literal) else known.get(atom) for atom in atoms]

    for equation in jaxpr.eqns:
        labels = read(equation.invars)
        if any(label is not None for label in labels):
            known.update(zip(equation.outvars, _follow(equation, labels, pairs), strict=True))
    return read(jaxpr.outvars)


def _follow(equation, labels, pairs) -> Sequence[Labels]:
    """The labels of the results of one operation, some of whose operands have labels."""
    name, params = equation.primitive.name, equation.params
    shapes = [var.aval.shape for var in equation.outvars]
    if name in _CALLS:
        inner = params["jaxpr"]
        return _walk(getattr(inner, "jaxpr", inner), labels, pairs)
    if name in _ELEMENTWISE:
        return [_met([np.broadcast_to(one, shapes[0]) for one in labels if one is not None], pairs)]
    if name in _SUMS:
        return [_summed(labels[0], params, shapes[0], pairs)]
    if name == "dot_general":
        return [_multiplied(labels, params["dimension_numbers"], shapes[0], pairs)]
    if name in _MOVES:
        filled = [
            np.full(atom.aval.shape, _NONE) if one is None else one
            for atom, one in zip(equation.invars, labels, strict=True)
        ]
        moved = _MOVES[name](params, filled, shapes[0])
        return moved if isinstance(moved, list) else [moved]
    met = _met_along(
        np.concatenate([one.reshape(-1) for one in labels if one is not None]), 0, pairs
    )
    return [np.full(shape, met) for shape in shapes]


def _met(several, pairs):
    """One label for elements that each depend on all elements in their place."""
    first, *others = several
    for other in others:
        pairs.add(first, other)
        first = np.maximum(first, other)
    return first


def _met_along(labels, axes, pairs):
    """One label for all elements along some axes, which are kept with a length of 1."""
    met = labels.max(axis=axes, keepdims=True, initial=_NONE)
    pairs.add(np.broadcast_to(met, labels.shape), labels)
    return met


def _summed(labels, params, shape, pairs):
    """`reduce_sum`, whose axes go, and `cumsum`, whose axis stays."""
    if "axes" in params:
        return _met_along(labels, params["axes"], pairs).reshape(shape)
    return np.broadcast_to(_met_along(labels, params["axis"], pairs), shape)


def _multiplied(labels, dimension_numbers, shape, pairs):
    """`dot_general`, whose axes are those of the batch, then the free ones of both operands."""
    results = []
    for side, one in enumerate(labels):
        if one is None:
            continue
        contracted, batch = (numbers[side] for numbers in dimension_numbers)
        met = _met_along(one, tuple(contracted), pairs)
        free = [axis for axis in range(one.ndim) if axis not in (*contracted, *batch)]
        met = met.transpose(*batch, *free, *contracted).reshape(
            [one.shape[axis] for axis in (*batch, *free)]
        )
        # The free axes of the other operand come last for the first one, and before its own for
        # the second one.
        missing = [1] * (len(shape) - met.ndim)
        sizes = met.shape
        at = len(sizes) if side == 0 else len(batch)
        results.append(np.broadcast_to(met.reshape(*sizes[:at], *missing, *sizes[at:]), shape))
    return _met(results, pairs)


def _broadcast(params, operands, shape):
    sizes = [1] * len(shape)
    for size, axis in zip(operands[0].shape, params["broadcast_dimensions"], strict=True):
        sizes[axis] = size
    return np.broadcast_to(operands[0].reshape(sizes), shape)


def _slice(params, operands, shape):
    del shape
    starts, stops = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or [1] * len(starts)
    return operands[0][tuple(map(slice, starts, stops, strides))]


def _reshape(params, operands, shape):
    order = params["dimensions"]
    return (operands[0] if order is None else operands[0].transpose(order)).reshape(shape)


def _pad(params, operands, shape):
    labels, fill = operands
    places = []
    for axis, (low, _, between) in enumerate(params["padding_config"]):
        places.append(low + (1 + between) * np.arange(labels.shape[axis]))
        # A negative padding cuts off.
        inside = (places[axis] >= 0) & (places[axis] < shape[axis])
        labels, places[axis] = labels.compress(inside, axis), places[axis][inside]
    padded = np.full(shape, fill)
    padded[np.ix_(*places)] = labels
    return padded


# The operations that a derivative is made of. What is not here may be anything, and is joined.
_CALLS = {"jit", "pjit", "closed_call", "checkpoint", "remat2"}
_ELEMENTWISE = {
    *("mul", "div", "neg", "add", "add_any", "sub", "select_n", "convert_element_type"),
    *("copy", "copy_p", "reduce_precision", "real", "imag", "complex", "conj", "pvary"),
}
_SUMS = {"reduce_sum", "cumsum"}
_MOVES = {
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "pad": _pad,
    "reshape": _reshape,
    "squeeze": lambda params, operands, shape: operands[0].reshape(shape),
    "expand_dims": lambda params, operands, shape: operands[0].reshape(shape),
    "transpose": lambda params, operands, shape: operands[0].transpose(params["permutation"]),
    "stack": lambda params, operands, shape: np.stack(operands, params["axis"]),
    "tile": lambda params, operands, shape: np.tile(operands[0], params["reps"]),
    "rev": lambda params, operands, shape: np.flip(operands[0], params["dimensions"]),
    "concatenate": lambda params, operands, shape: np.concatenate(operands, params["dimension"]),
    "split": lambda params, operands, shape: np.split(
        operands[0], np.cumsum(params["sizes"])[:-1], params["axis"]
    ),
}
