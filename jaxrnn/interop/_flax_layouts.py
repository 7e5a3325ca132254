"""Where flax keeps parameters: names of arrays, and for cells the order of the gates."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.interop._imported import Arrays


class Layout(NamedTuple):
    """The dense layers of a cell, each for one gate or for all of them.

    Attributes:
        inputs: those that read x, with the gates in our order.
        recurrent: those that read h.
        biased: those of both that have a bias, in the order of the gates.
    """

    inputs: tuple[str, ...]
    recurrent: tuple[str, ...]
    biased: tuple[str, ...]


def _by_gates(inputs: str, recurrent: str, *, biased: str) -> Layout:
    names = {"inputs": tuple(inputs.split()), "recurrent": tuple(recurrent.split())}
    return Layout(**names, biased=names[biased])


_LINEN_LSTM = _by_gates("ii if ig io", "hi hf hg ho", biased="recurrent")
LINEN = {
    "SimpleCell": _by_gates("i", "h", biased="inputs"),
    "LSTMCell": _LINEN_LSTM,
    "OptimizedLSTMCell": _LINEN_LSTM,
    "GRUCell": _by_gates("ir iz in", "hr hz hn", biased="inputs"),
}
NNX = {
    "SimpleCell": _by_gates("dense_i", "dense_h", biased="inputs"),
    "LSTMCell": _by_gates("ii if_ ig io", "hi hf hg ho", biased="recurrent"),
    "OptimizedLSTMCell": _by_gates("dense_i", "dense_h", biased="recurrent"),
    "GRUCell": _by_gates("dense_i", "dense_h", biased="inputs"),
}
LINEN_GRU_RECURRENT_BIAS = "hn/bias"


def mean_of_directions(forward: Any, backward: Any) -> Any:
    """What `bidirectional` calls "mean"."""
    return (forward + backward) / 2


# What joins two directions, by the names that `bidirectional` has; theirs for "concat" is private.
MERGES = {"sum": jnp.add, "mean": mean_of_directions}


def linen_arrays(variables: Any) -> Arrays:
    """The parameters of a linen module by their paths, `layers_0/kernel`."""
    from flax import core, linen, traverse_util

    if not isinstance(variables, Mapping):
        raise TypeError(
            f"variables must be those of the linen module, {{'params': ...}}, got {variables!r}"
        )
    others = sorted(name for name, held in variables.items() if jax.tree.leaves(held))
    if set(others) - {"params"}:
        raise ValueError(
            "variables must hold 'params' and nothing else, as {'params': ...}, got "
            f"{', '.join(others)}"
        )
    params = linen.meta.unbox(variables.get("params", {}))
    return Arrays(traverse_util.flatten_dict(core.unfreeze(params), sep="/"), "the linen module")


def nnx_arrays(module: Any) -> Arrays:
    """The parameters of an nnx module by their paths, `layers/0/kernel`."""
    from flax import nnx

    _, params, _, others = nnx.split(module, nnx.Param, nnx.RngState, ...)
    left = ["/".join(map(str, path)) for path, _ in nnx.to_flat_state(others)]
    if left:
        raise ValueError(f"the nnx module has variables that are not nnx.Param: {', '.join(left)}")
    arrays = {"/".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(params)}
    return Arrays(arrays, "the nnx module")


def read_cell(
    arrays: Arrays, path: str, layout: Layout, num_units: int, num_gates: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The kernel `[D, G*H]`, the recurrent kernel `[H, G*H]` and the bias `[G*H]`."""
    size = num_gates * num_units // len(layout.inputs)
    num_inputs, kernels = None, []
    for name in layout.inputs:
        kernels.append(arrays.take(f"{path}{name}/kernel", num_inputs, size))
        num_inputs = kernels[0].shape[0]
    recurrent = [arrays.take(f"{path}{name}/kernel", num_units, size) for name in layout.recurrent]
    biases = [arrays.take(f"{path}{name}/bias", size) for name in layout.biased]
    blocks = kernels, recurrent, biases
    kernel, recurrent_kernel, bias = (np.concatenate(each, axis=-1) for each in blocks)
    return kernel, recurrent_kernel, bias


def write_cell(params: Any, layout: Layout) -> Iterator[tuple[str, Any]]:
    """The name and the value of each array of flax's, of any params with these three leaves."""
    leaves = params.kernel, params.recurrent_kernel, params.bias
    for names, leaf, kind in zip(layout, leaves, ("kernel", "kernel", "bias"), strict=True):
        for name, block in zip(names, jnp.split(leaf, len(names), axis=-1), strict=True):
            yield f"{name}/{kind}", block
