"""Carries as the states of recurrent modules of torch, both ways."""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxrnn.cells import ElmanCarry, GRUCarry, LSTMCarry
from jaxrnn.interop._models import bare, made_by
from jaxrnn.interop._torch_arrays import as_numpy
from jaxrnn.interop._torch_export import as_tensor
from jaxrnn.layers import Directions
from jaxrnn.types import Carry, Model

_CARRIES: dict[str, Any] = {"elman": ElmanCarry, "gru": GRUCarry, "lstm": LSTMCarry}
_WITHOUT_CARRY = ("dense", "dropout", "embed", "layer_norm", "lift", "rms_norm")


def carry_from_torch(model: Model, state: Any) -> Carry:
    """Reads the state of an RNN, LSTM or GRU of torch as the carry of its model.

    Args:
        model: model of the module, as `from_torch` returns it; other layers may be in the stack.
        state: h of shape `[layers * directions, *batch, H]`, or `(h, c)` of an LSTM; tensors or
            arrays.

    Returns:
        The carry, with leaves `[*batch, H]`, which are copies.

    Raises:
        TypeError: The state has other parts than tensors or arrays.
        ValueError: The state has another number of parts, or another shape than that of the model,
            or the model has cells of several kinds or sizes.

    Example:
        >>> import jaxrnn as jr, torch
        >>> lstm = torch.nn.LSTM(3, 4, bidirectional=True)
        >>> _, state = lstm(torch.ones(5, 2, 3))
        >>> carry = jr.interop.carry_from_torch(jr.bidirectional(jr.lstm(4)), state)
        >>> carry.forward.h.shape
        (2, 4)
    """
    kind, widths, number = _module(model)
    parts = state if isinstance(state, tuple | list) else (state,)
    if len(parts) != len(widths):
        raise ValueError(f"state must have {len(widths)} parts for {model}, got {len(parts)}.")
    arrays = [np.array(as_numpy(part, "state")) for part in parts]
    for array, width in zip(arrays, widths, strict=True):
        wrong = array.ndim < 2 or (array.shape[0], array.shape[-1]) != (number, width)
        if wrong or array.shape[1:-1] != arrays[0].shape[1:-1]:
            wanted = ", ".join(f"[{number}, *batch, {width}]" for width in widths)
            raise ValueError(
                f"state must have the shape {wanted}, layers * directions first, for {model}, got "
                f"{', '.join(str([*array.shape]) for array in arrays)}."
            )
    return _placed(model, itertools.starmap(_CARRIES[kind], zip(*arrays, strict=True)))


def carry_to_torch(model: Model, carry: Carry) -> Any:
    """Writes a carry as the state of the RNN, LSTM or GRU of torch that `to_torch` makes.

    Args:
        model: `elman`, `lstm` or `gru`, `bidirectional` of one, or a `serial` of those; layers
            without a carry may be in the stack.
        carry: its carry, with leaves `[*batch, H]`.

    Returns:
        The tensor h `[layers * directions, *batch, H]`, or `(h, c)` for an LSTM.

    Raises:
        TypeError: The carry is that of another model.
        ValueError: The model has cells of several kinds or sizes, or others than these, or the
            carry has other shapes.

    Example:
        >>> import jax, jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> carry = cell.initial_carry(cell.init(jax.random.key(0), 3), (2,))
        >>> jr.interop.carry_to_torch(cell, carry).shape
        torch.Size([1, 2, 4])
    """
    import torch

    kind, widths, number = _module(model)
    wanted = jax.tree.structure(_placed(model, itertools.repeat(_CARRIES[kind](*widths))))
    structure = jax.tree.structure(carry)
    if structure != wanted:
        raise TypeError(f"carry must be that of {model}, {wanted}, got {structure}.")
    leaves = jax.tree.leaves(carry)
    shapes = [np.shape(leaf) for leaf in leaves]
    batch = shapes[0][:-1]
    wanted = [(*batch, width) for _ in range(number) for width in widths]
    if shapes != wanted:
        raise ValueError(
            f"the leaves of carry must have the shapes {wanted} for {model}, got {shapes}."
        )
    leaves = [as_tensor(leaf) for leaf in leaves]
    parts = [torch.stack(leaves[part :: len(widths)]) for part in range(len(widths))]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _placed(model: Model, carries: Iterator[Carry]) -> Carry:
    """The carry of a stack from those of its cells, in the order of `_cells`."""
    factory, options = made_by(bare(model))
    if factory == "serial":
        return tuple(_placed(layer, carries) for layer in options["layers"])
    if factory == "bidirectional":
        forward = _placed(options["forward"], carries)
        return Directions(forward, _placed(options["backward"] or options["forward"], carries))
    return next(carries) if factory in _CARRIES else ()


def _module(model: Model) -> tuple[str, tuple[int, ...], int]:
    """The kind of all cells, the widths of the parts of their carry, and how many cells they are.

    One module of torch has them if they are equal.
    """
    cells = list(_cells(model))
    if len(set(cells)) != 1:
        raise ValueError(f"model must have one kind and size of cell, as torch has, got {model}.")
    return *cells[0], len(cells)


def _cells(model: Model) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Kind and widths of the cells, layer by layer, and in each forwards and backwards."""
    factory, options = made_by(bare(model))
    if factory == "serial":
        for layer in options["layers"]:
            yield from _cells(layer)
    elif factory == "bidirectional":
        yield from _cells(options["forward"])
        yield from _cells(options["backward"] or options["forward"])
    elif factory == "lstm":
        num_units = options["num_units"]
        yield "lstm", (options["projection"] or num_units, num_units)
    elif factory in _CARRIES:
        yield factory, (options["num_units"],)
    elif factory not in _WITHOUT_CARRY:
        raise ValueError(f"torch has no state for {model}.")
