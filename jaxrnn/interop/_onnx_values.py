"""What a tensor of an ONNX graph is, while the graph is read: its layers so far, and its axes."""

import math
from typing import Any, NamedTuple

import numpy as np

from jaxrnn.types import Model


class Axis:
    """One axis of a tensor, the same object wherever that axis is moved to."""

    def __init__(self, size: int | None):
        """An axis of this size; None is one that the file leaves open."""
        self.size = size


Group = tuple[Axis, ...]
"""The axes that a reshape has laid into one, the outer ones first."""


class Stage(NamedTuple):
    """A layer that was read, its params, and what its recurrence starts from and masks by.

    Attributes:
        model: cell or layer.
        params: its parameters.
        carry: the constant that the file gives as its start, or None.
        nodes: the recurrent nodes that it came from.
        lengths: the input of the graph that is `sequence_lens` of that node, or "".
    """

    model: Model
    params: Any
    carry: Any = None
    nodes: tuple[str, ...] = ()
    lengths: str = ""


class Stream(NamedTuple):
    """A sequence: an input of the graph after some layers.

    Attributes:
        source: name of the input.
        groups: its axes as they are now.
        stages: the layers that it went through.
        features: the axes that are the features, or None for an input that nothing has read yet.
        is_rounded: whether it is an input that was cast to ints, which only `Gather` may read.
    """

    source: str
    groups: tuple[Group, ...]
    stages: tuple[Stage, ...] = ()
    features: Group | None = None
    is_rounded: bool = False

    @property
    def is_input(self) -> bool:
        """Whether nothing has read it yet."""
        return not self.stages


class Sizes(NamedTuple):
    """A number or a vector that a graph computes from shapes: ints, and sizes of open axes."""

    entries: tuple[int | Group, ...]
    is_vector: bool = True


class Filled(NamedTuple):
    """A constant that is repeated along the batch; `array` has the size 1 there."""

    array: np.ndarray


class Loose(NamedTuple):
    """A last state `Y_h` or `Y_c`, a part of an input, or an output besides: no sequence.

    Attributes:
        kind: "state", "input" or "other".
        name: the recurrent node, the input, or the node.
    """

    kind: str
    name: str


def real(group: Group) -> Group:
    """The axes without those of size 1, which any reshape may add or drop."""
    return tuple(axis for axis in group if axis.size != 1)


def size_of(group: Group) -> int | None:
    """The product of the sizes, or None if one is open."""
    sizes = [axis.size for axis in group if axis.size is not None]
    return math.prod(sizes) if len(sizes) == len(group) else None


def sizes_of(groups: tuple[Group, ...]) -> Sizes:
    """The shape of a tensor."""
    sizes = [size_of(group) for group in groups]
    return Sizes(
        tuple(
            real(group) if size is None else size for group, size in zip(groups, sizes, strict=True)
        )
    )


def regroup(groups: tuple[Group, ...], target: tuple[int | Group, ...]) -> tuple[Group, ...] | None:
    """The axes laid into the groups of a reshape; None if the target would cut through one.

    Args:
        groups: axes as they are.
        target: the shape: sizes, -1 for the rest, or the axes whose size it is.
    """
    left = [axis for group in groups for axis in real(group)]
    if target.count(-1) > 1:
        return None
    rest = target.index(-1) if -1 in target else len(target)
    first = [_taken(left, want, 0) for want in target[:rest]]
    last = [_taken(left, want, -1) for want in reversed(target[rest + 1 :])][::-1]
    taken = first + ([tuple(left)] if -1 in target else []) + last
    if None in taken or (left and -1 not in target):
        return None
    # A group without an axis is one of size 1.
    return tuple(group or (Axis(1),) for group in taken)  # pyright: ignore


def _taken(left, want, end):
    """Takes the axes of this size from one end of the list; None if there are none."""
    taken = []
    while size_of(tuple(taken)) != want and tuple(taken) != want:
        if not left or (isinstance(want, int) and size_of(tuple(taken)) is None):
            return None
        axis = left.pop(end)
        taken = [*taken, axis] if end == 0 else [axis, *taken]
    return tuple(taken)
