"""Packing sequences of many lengths into dense rows, and unpacking them.

The shapes depend on the data, so this is numpy on the host: pack before `jit`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import keystr

from jaxrnn.engine import checks


class Packed(NamedTuple):
    """Sequences laid end to end in R rows of L steps.

    Attributes:
        xs: a tree of arrays `[R, L, ...]`, zeros on padding.
        mask: bool `[R, L]`, True where a step is real.
        reset: bool `[R, L]`, True where a sequence starts.
        segment_ids: int32 `[R, L]`, the index of the sequence in the list, -1 on padding.
        num_sequences: number of sequences, including those of length 0, which are in no row.
    """

    xs: Any
    mask: np.ndarray
    reset: np.ndarray
    segment_ids: np.ndarray
    num_sequences: int


class Ragged(NamedTuple):
    """Sequences as lists of numpy leaves, checked to fit together.

    Attributes:
        leaves: for each sequence the list of its leaves `[T_i, ...]`.
        lengths: int64 `[N]`, the T_i.
        structure: the tree that the leaves are of.
    """

    leaves: list[list[np.ndarray]]
    lengths: np.ndarray
    structure: Any


def pack(sequences: Sequence[Any], row_length: int | None = None) -> Packed:
    """Lays sequences end to end in as few rows as first-fit-decreasing finds.

    Longest first, each sequence goes into the first row with room for it. No sequence is cut.
    `reset` is True at each start, so `unroll(..., mask=packed.mask, reset=packed.reset)` gives
    what one row per sequence would give; `unpack` separates the outputs again.

    Args:
        sequences: trees of arrays `[T_i, ...]` that differ only in T_i; T_i = 0 is allowed.
        row_length: L; None is the longest T_i.

    Returns:
        `Packed(xs, mask, reset, segment_ids, num_sequences)` of numpy arrays.

    Raises:
        TypeError: The trees or dtypes of two sequences differ, or `row_length` is not an int.
        ValueError: There is no sequence, one is longer than `row_length`, or shapes differ.

    Example:
        >>> packed = pack([np.array([1, 2]), np.array([3, 4, 5]), np.array([6])])
        >>> print(packed.xs, packed.segment_ids)
        [[3 4 5] [1 2 6]] [[1 1 1] [0 0 2]]
        >>> print(packed.reset[1])
        [ True False  True]
    """
    ragged = as_ragged(sequences, "sequences")
    longest = int(ragged.lengths.max())
    row_length = longest if row_length is None else checks.integer(row_length, "row_length")
    if longest > row_length:
        raise ValueError(
            f"row_length must be at least the longest sequence, {longest} steps, got {row_length}."
        )
    rows, starts, num_rows = _first_fit_decreasing(ragged.lengths, row_length)
    shape = (num_rows, row_length)
    ids = [np.full(length, index, np.int32) for index, length in enumerate(ragged.lengths)]
    segment_ids = place(ids, rows, starts, shape, fill=-1)
    reset = np.zeros(shape, bool)
    started = ragged.lengths > 0
    reset[rows[started], starts[started]] = True
    xs = place_trees(ragged.leaves, ragged.structure, rows, starts, shape)
    return Packed(xs, segment_ids >= 0, reset, segment_ids, len(sequences))


def unpack(ys: Any, packed: Packed) -> list[Any]:
    """Separates packed rows into their sequences, in the order of the list.

    Args:
        ys: a tree of arrays `[R, L, ...]`: the packed xs, or outputs computed from them.
        packed: the result of `pack`.

    Returns:
        A list of trees of numpy arrays `[T_i, ...]`.

    Raises:
        ValueError: A leaf does not start with the axes `[R, L]`.

    Example:
        >>> packed = pack([np.array([1, 2]), np.array([3, 4, 5]), np.array([6])])
        >>> unpack(packed.xs * 10, packed)
        [array([10, 20]), array([30, 40, 50]), array([60])]
    """
    ids = np.asarray(packed.segment_ids)
    leaves, structure = jax.tree.flatten(ys)
    leaves = [np.asarray(leaf) for leaf in leaves]
    for leaf in leaves:
        if leaf.shape[:2] != ids.shape:
            raise ValueError(f"ys must start with the axes {ids.shape}, got {leaf.shape}.")
    flat = ids.reshape(-1)
    # The steps of a sequence are in order, and a stable sort keeps them so; padding sorts first.
    order = np.argsort(flat, kind="stable")[np.count_nonzero(flat < 0) :]
    ends = np.cumsum(np.bincount(flat[order], minlength=int(packed.num_sequences)))[:-1]
    pieces = [np.split(leaf.reshape(-1, *leaf.shape[2:])[order], ends) for leaf in leaves]
    return [structure.unflatten(sequence) for sequence in zip(*pieces, strict=True)]


def as_ragged(sequences: Sequence[Any], name: str) -> Ragged:
    """Flattens sequences and checks that they fit together.

    Args:
        sequences: trees of arrays `[T_i, ...]`.
        name: name of the sequences in error messages.

    Returns:
        `Ragged(leaves, lengths, structure)`.

    Raises:
        TypeError: The trees or dtypes of two sequences differ.
        ValueError: There is no sequence or no array, the leaves of one sequence differ in T_i, or
            those of two in another axis.

    Example:
        >>> as_ragged([np.zeros((2, 3)), np.zeros((0, 3))], "sequences").lengths
        array([2, 0])
    """
    sequences = list(sequences)
    if not sequences:
        raise ValueError(f"{name} must hold at least one sequence, got none.")
    structure = jax.tree.structure(sequences[0])
    if structure.num_leaves == 0:
        raise ValueError(f"{name}[0] must have at least one array, got {sequences[0]!r}.")
    leaves = []
    for index, sequence in enumerate(sequences):
        found = jax.tree.structure(sequence)
        if found != structure:
            raise TypeError(f"{name}[{index}] must have the structure {structure}, got {found}.")
        checks.array_leaves(sequence, f"{name}[{index}]")
        leaves.append([np.asarray(leaf) for leaf in jax.tree.leaves(sequence)])
        if not _fits(leaves[-1], leaves[0]):
            _raise_misfit(f"{name}[{index}]", sequence, leaves[0])
    lengths = np.array([sequence[0].shape[0] for sequence in leaves])
    return Ragged(leaves, lengths, structure)


def place_trees(
    leaves: Sequence[Sequence[np.ndarray]],
    structure: Any,
    rows: np.ndarray,
    starts: np.ndarray,
    shape: tuple[int, int],
) -> Any:
    """`place` for every leaf of at least one sequence.

    Args:
        leaves: for each sequence the list of its leaves `[T_i, ...]`.
        structure: the tree that the leaves are of.
        rows: ints `[N]`, the row of each sequence.
        starts: ints `[N]`, its first step in the row.
        shape: `(R, L)`.

    Returns:
        A tree of arrays `[R, L, ...]`, zeros where there is no sequence.

    Example:
        >>> tree = {"token": np.array([7, 8])}
        >>> leaves, structure = jax.tree.flatten(tree)
        >>> place_trees([leaves], structure, np.array([0]), np.array([1]), (1, 4))
        {'token': array([[0, 7, 8, 0]])}
    """
    placed = [place(pieces, rows, starts, shape) for pieces in zip(*leaves, strict=True)]
    return structure.unflatten(placed)


def place(
    pieces: Sequence[np.ndarray],
    rows: np.ndarray,
    starts: np.ndarray,
    shape: tuple[int, int],
    fill: int = 0,
) -> np.ndarray:
    """Writes pieces `[T_i, ...]` into rows `[R, L, ...]`, which hold `fill` elsewhere.

    Args:
        pieces: at least one array.
        rows: ints `[N]`, the row of each piece.
        starts: ints `[N]`, its first step in the row.
        shape: `(R, L)`.
        fill: the value elsewhere.

    Returns:
        `[R, L, ...]`.

    Example:
        >>> place([np.array([7, 8]), np.array([9])], np.array([1, 0]), np.array([0, 1]), (2, 2))
        array([[0, 9],
               [7, 8]])
    """
    num_rows, row_length = shape
    steps = np.concatenate(pieces)
    placed = np.full((num_rows * row_length, *steps.shape[1:]), fill, steps.dtype)
    lengths = np.array([len(piece) for piece in pieces])
    # All steps of a piece move by the same distance from their place in `steps`.
    piece_starts = np.cumsum(lengths) - lengths
    shifts = np.repeat(rows * row_length + starts - piece_starts, lengths)
    placed[shifts + np.arange(len(steps))] = steps
    return placed.reshape(shape + steps.shape[1:])


def _first_fit_decreasing(lengths, row_length):
    """The row and the first step of each sequence, and the number of rows.

    Sequences of one length are placed together: first-fit fills each row with as many of them as
    it has room for, in the order of the rows. So each length takes one pass over the rows.
    """
    rows, starts = np.zeros_like(lengths), np.zeros_like(lengths)
    room = np.zeros(0, lengths.dtype)
    order = np.argsort(-lengths, kind="stable")
    distinct, counts = np.unique(-lengths, return_counts=True)
    for length, members in zip(-distinct, np.split(order, np.cumsum(counts)[:-1]), strict=True):
        if length == 0:
            break
        num_left = max(len(members) - (room // length).sum(), 0)
        num_new_rows = -(-num_left // (row_length // length))
        room = np.concatenate([room, np.full(num_new_rows, row_length, room.dtype)])
        num_placed = np.minimum(np.cumsum(room // length), len(members))
        num_in_row = np.diff(num_placed, prepend=0)
        rows[members] = np.repeat(np.arange(len(room)), num_in_row)
        rank_in_row = np.arange(len(members)) - np.repeat(num_placed - num_in_row, num_in_row)
        starts[members] = row_length - room[rows[members]] + rank_in_row * length
        room = room - num_in_row * length
    return rows, starts, len(room)


def _fits(leaves, like):
    return all(
        leaf.ndim and leaf.shape == (len(leaves[0]), *want.shape[1:]) and leaf.dtype == want.dtype
        for leaf, want in zip(leaves, like, strict=True)
    )


def _raise_misfit(name, sequence, like):
    num_steps = None
    for (path, leaf), want in zip(
        jax.tree_util.tree_flatten_with_path(sequence)[0], like, strict=True
    ):
        leaf, leaf_name = np.asarray(leaf), f"{name}{keystr(path)}"
        if leaf.ndim == 0:
            raise ValueError(f"{leaf_name} must have a time axis, got a scalar.")
        num_steps = leaf.shape[0] if num_steps is None else num_steps
        expected = (num_steps, *want.shape[1:])
        if leaf.shape != expected:
            raise ValueError(f"{leaf_name} must have the shape {expected}, got {leaf.shape}.")
        if leaf.dtype != want.dtype:
            raise TypeError(f"{leaf_name} must have the dtype {want.dtype}, got {leaf.dtype}.")
