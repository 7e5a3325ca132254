"""What the traces of a model have to hold: what in its carry meets what, and which parameters.

The carry of one row is a vector of real coordinates, as in `engine/flat_carry.py`. All that is said
here is read off the traced program of one step's derivative, and holds for all numbers.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine import precision
from jaxrnn.engine.flat_carry import FlatCarry
from jaxrnn.engine.labels import MANY, NONE, carry_labels, unlabelled
from jaxrnn.engine.unroll import step
from jaxrnn.types import Array, Model


class Recurrence(NamedTuple):
    """Coordinates of the carry that are traced together, in G groups of k.

    Attributes:
        members: ints `[k, G]`, the coordinates of each group.
        apart: whether no group reads another.
        owners: for each leaf of the parameters None, if it has no trace, or its `Owners`.
    """

    members: np.ndarray
    apart: bool
    owners: tuple["Owners | None", ...]


class Owners(NamedTuple):
    """Which groups a parameter reaches within one step: all those of one block of m groups.

    Attributes:
        block: m, 1 where every number of the parameter reaches one group alone.
        groups: ints that broadcast against `[m, *leaf.shape]`, the groups of the block.
    """

    block: int
    groups: np.ndarray


def flat_carry(model: Model, params: Any) -> FlatCarry:
    """How the carry of one row becomes a vector; raises where there is nothing to trace."""
    like = jax.eval_shape(model.initial_carry, params)
    flat = FlatCarry(like, precision.compute_dtype((params, like)))
    if flat.size == 0:
        raise TypeError(
            "model must have a carry of floating or complex numbers, "
            f"got {jax.tree.structure(like)} of {model!r}."
        )
    return flat


def advance_row(
    model: Model, params: Any, vector: Array, carry: Any, x: Any, mask: Any, reset: Any
) -> Array:
    """The carry of one row after a step as a vector; its ints before the step are in `carry`."""
    flat = flat_carry(model, params)
    before = flat.unpack(vector, carry)
    return flat.pack(step(model, params, before, x, mask=mask, reset=reset)[0])


def find_recurrences(model: Model, method: str, params: Any, x: Any) -> tuple[Recurrence, ...]:
    """The recurrences of a model, for parameters and an input of one row, of which shapes count."""
    leaves, tree = jax.tree.flatten(jax.eval_shape(lambda *args: args, params, x))
    return _find_recurrences(model, method, tree, tuple(leaves))


# Kept, because a step that is not jitted asks at each call.
@functools.lru_cache(maxsize=128)
def _find_recurrences(model, method, tree, leaves):
    params, x = tree.unflatten(leaves)
    flat = flat_carry(model, params)
    parts = list(_parts(flat.like))
    follow = _label_walk(model, flat, params, x)
    followed = [follow(_labelled(flat.size, part, 0)) for part in parts]
    meets = np.array([[_any(leaf) for leaf in of_params] for of_params, _ in followed])
    reads = np.array([[_any(entries[part]) for part in parts] for _, entries in followed])
    if method == "exact":
        together = paths = _closure(reads | reads.T)
    else:
        paths = _closure(reads | _of_one_layer(flat.like))
        together = paths & paths.T
    recurrences = []
    for number, component in enumerate(together):
        if component.argmax() == number:  # once for all parts of a component
            upstream = paths[component].any(0) & ~component
            traced = meets[component].any(0) & ~meets[upstream].any(0)
            chosen = [part for part, is_in in zip(parts, component, strict=True) if is_in]
            recurrences.append(_recurrence(follow, flat.size, chosen, traced, method))
    return tuple(recurrences)


def _parts(like: Any) -> Iterator[np.ndarray]:
    """The coordinates of each leaf; real and imaginary ones of a complex leaf apart."""
    start = 0
    for leaf in jax.tree.leaves(like):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            for _ in range(2 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else 1):
                yield np.arange(start, start + leaf.size)
                start += leaf.size


def _of_one_layer(like: Any) -> np.ndarray:
    """Which parts are of one layer: stacks hold carries in tuples, and a layer has one record."""
    records = jax.tree.leaves(like, is_leaf=lambda node: type(node) not in (tuple, list))
    layers = np.repeat(np.arange(len(records)), [len(list(_parts(one))) for one in records])
    return layers[:, None] == layers


def _label_walk(model: Model, flat: FlatCarry, params: Any, x: Any) -> Callable[..., Any]:
    """A function from labels of the carry after a step to those of what it was computed from.

    An element of the parameters, or of the carry before the step, gets the label of all entries of
    the carry after the step that it reaches.
    """

    def pull(cotangent, params, vector, carry, x, flag):
        def advance(params, vector):
            return advance_row(model, params, vector, carry, x, flag, flag)

        from_params, before = jax.vjp(advance, params, vector)[1](cotangent)
        return jax.tree.leaves(from_params), before

    vector = jax.ShapeDtypeStruct((flat.size,), flat.dtype)
    flag = jax.ShapeDtypeStruct((), bool)
    program = jax.make_jaxpr(pull)(vector, params, vector, flat.like, x, flag).jaxpr
    others = [unlabelled(var) for var in program.invars[1:]]

    def follow(labels):
        *of_params, of_carry = carry_labels(program, [labels, *others])
        return of_params, of_carry

    return follow


def _labelled(size, entries, labels):
    """Labels of `size` entries, `NONE` but for some."""
    labelled = np.full(size, NONE)
    labelled[entries] = labels
    return labelled


def _any(labels):
    return bool((labels != NONE).any())


def _closure(reads: np.ndarray) -> np.ndarray:
    """Which parts a chain of others leads to, themselves included."""
    paths = reads | np.eye(len(reads), dtype=bool)
    for _ in range(len(reads).bit_length()):
        paths = paths @ paths
    return paths


def _recurrence(follow, size, parts, traced, method):
    members, apart = _groups(follow, size, parts, method)
    num_groups = members.shape[1]
    owners: list[Owners | None] = [None] * len(traced)
    for num_blocks in _divisors(num_groups):
        block = num_groups // num_blocks
        of_params, _ = follow(_labelled(size, members, np.arange(num_groups) // block))
        for number, labels in enumerate(of_params):
            if traced[number] and owners[number] is None and (labels != MANY).all():
                owners[number] = _owners(labels, block)
    return Recurrence(members, apart, tuple(owners))


def _groups(follow, size, parts, method):
    """The finest equal groups of coordinates that do not read each other, and whether they do."""
    for num_groups in _divisors(math.gcd(*(len(part) for part in parts))):
        # Of `[heads, units]` the heads lie one after another, of a window `[steps, features]` the
        # features alternate.
        blocks = np.concatenate([part.reshape(num_groups, -1).T for part in parts])
        strides = np.concatenate([part.reshape(-1, num_groups) for part in parts])
        for members in (blocks, strides):
            _, before = follow(_labelled(size, members, np.arange(num_groups)))
            read = before[members]
            apart = bool(((read == NONE) | (read == np.arange(num_groups))).all())
            if apart or method == "snap1":
                return members, apart
    raise AssertionError("one group reads no other")


def _divisors(number):
    """From the largest to the smallest."""
    return [divisor for divisor in range(number, 0, -1) if number % divisor == 0]


def _owners(labels, block):
    offsets = np.arange(block).reshape(-1, *[1] * labels.ndim)
    groups = np.maximum(labels, 0) * block + offsets
    # Along an axis where nothing changes one entry is enough, which then broadcasts.
    for axis in range(groups.ndim):
        first = groups.take([0], axis)
        groups = first if (groups == first).all() else groups
    return Owners(block, groups)
