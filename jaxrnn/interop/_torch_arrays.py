"""Arrays with the names and layouts of torch as parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import ElmanParams, GRUParams, LSTMParams
from jaxrnn.interop._imported import Arrays, kept_by_jax
from jaxrnn.interop._models import bare, check_options, made_by
from jaxrnn.layers import (
    DenseParams,
    Directions,
    EmbedParams,
    LayerNormParams,
    RMSNormParams,
)
from jaxrnn.types import Model, Params

# A prefix of names for a layer, or one for each layer of a stack; None for a layer without arrays.
Prefix = str | Sequence[Any] | None

FLOATS = ("bfloat16", "float16", "float32", "float64")
NONLINEARITIES = {"tanh": jnp.tanh, "relu": jax.nn.relu}
NUM_GATES = {"elman": 1, "lstm": 4, "gru": 3}


def as_numpy(tensor: Any, name: str) -> np.ndarray:
    """The array of a tensor, or of an array, with its dtype."""
    if not hasattr(tensor, "dtype"):
        hint = ""
        if isinstance(tensor, Mapping):
            hint = "; if this is a checkpoint with a state_dict inside, pass that one"
        raise TypeError(
            f"{name!r} must be a tensor or an array, got {type(tensor).__name__}{hint}."
        )
    if str(tensor.dtype).removeprefix("torch.") not in FLOATS:
        raise ValueError(f"{name!r} must be of {', '.join(FLOATS)}, got {tensor.dtype}.")
    if hasattr(tensor, "detach"):
        if str(tensor.layout) != "torch.strided" or tensor.device.type == "meta":
            raise ValueError(f"{name!r} must be a dense tensor with values, got {tensor!r}.")
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            return tensor.float().numpy().astype(jnp.bfloat16)
        tensor = tensor.numpy()
    return kept_by_jax(np.asarray(tensor), name)


def read_params(model: Model, arrays: Arrays, prefix: Prefix, read: dict[str, int]) -> Params:
    """The parameters of a model from the arrays whose names begin with the prefixes.

    `read` counts the recurrent layers that were read of each module.
    """
    factory, options = made_by(bare(model))
    if factory == "serial":
        layers = options["layers"]
        # One module of torch may be the whole stack.
        each = [prefix] * len(layers) if prefix is None or isinstance(prefix, str) else list(prefix)
        if len(each) != len(layers):
            raise ValueError(
                f"prefix must have one entry for each of the {len(layers)} layers of {model}, got "
                f"{prefix!r}."
            )
        return tuple(
            read_params(layer, arrays, one, read) for layer, one in zip(layers, each, strict=True)
        )
    if factory in ("dropout", "lift"):
        return ()
    if not isinstance(prefix, str):
        raise ValueError(f"prefix of {model} must be a string, got {prefix!r}.")
    if factory in NUM_GATES or factory == "bidirectional":
        index = read.setdefault(prefix, 0)
        read[prefix] += 1
        return _read_recurrent(model, arrays, prefix, index)
    if factory == "dense":
        kernel = arrays.take(f"{prefix}weight", options["num_outputs"], None).T
        bias = arrays.take(f"{prefix}bias", options["num_outputs"]) if options["use_bias"] else None
        return DenseParams(kernel, bias)
    if factory == "embed":
        return EmbedParams(arrays.take(f"{prefix}weight", None, options["num_outputs"]))
    if factory == "layer_norm":
        scale = arrays.take(f"{prefix}weight", None)
        return LayerNormParams(scale, arrays.take(f"{prefix}bias", *scale.shape))
    if factory == "rms_norm" and options["scale_offset"] == 0:
        return RMSNormParams(arrays.take(f"{prefix}weight", None))
    raise ValueError(f"model must be made of layers that torch has, got {model}.")


def _read_recurrent(model: Model, arrays: Arrays, prefix: str, index: int) -> Params:
    """The parameters of layer `index` of a recurrent module, in one or both directions."""
    factory, options = made_by(bare(model))
    if factory != "bidirectional":
        return _read_cell(model, arrays, prefix, index, "")
    backward = options["backward"] or options["forward"]
    return Directions(
        _read_cell(options["forward"], arrays, prefix, index, ""),
        _read_cell(backward, arrays, prefix, index, "_reverse"),
    )


def _read_cell(cell: Model, arrays: Arrays, prefix: str, index: int, direction: str) -> Params:
    """One set of weights: `[G*H, D]`, with two biases or none."""
    kind, options = made_by(bare(cell))
    if kind not in NUM_GATES:
        raise ValueError(f"model must be made of elman, lstm and gru, which torch has, got {cell}.")
    check_torch_has(cell)
    # A module has numbered layers; a cell of torch has none.
    suffix = f"_l{index}{direction}"
    if f"{prefix}weight_ih{suffix}" not in arrays and f"{prefix}weight_ih" in arrays:
        suffix = ""
    num_units, width = options["num_units"], options.get("projection") or options["num_units"]
    rows = NUM_GATES[kind] * num_units
    kernel = arrays.take(f"{prefix}weight_ih{suffix}", rows, None).T
    recurrent_kernel = arrays.take(f"{prefix}weight_hh{suffix}", rows, width).T
    biases = [np.zeros(rows, kernel.dtype)] * 2
    if f"{prefix}bias_ih{suffix}" in arrays:
        biases = [arrays.take(f"{prefix}bias_{side}{suffix}", rows) for side in ("ih", "hh")]
    inputs, recurrent = biases
    if kind == "elman":
        return ElmanParams(kernel, recurrent_kernel, inputs + recurrent)
    if kind == "gru":
        rz = 2 * num_units
        bias = np.concatenate([(inputs + recurrent)[:rz], inputs[rz:]])
        return GRUParams(kernel, recurrent_kernel, bias, recurrent[rz:])
    projection_kernel = None
    if options["projection"]:
        projection_kernel = arrays.take(f"{prefix}weight_hr{suffix}", width, num_units).T
    bias = inputs + recurrent
    return LSTMParams(kernel, recurrent_kernel, bias, projection_kernel=projection_kernel)


def check_torch_has(cell: Model) -> None:
    """Raises if an option of an elman, lstm or gru is not one of torch's."""
    cell = bare(cell)
    kind, options = made_by(cell)
    has_activation = kind == "elman" and options["activation"] in NONLINEARITIES.values()
    represented = {"num_units", "projection"} | ({"activation"} if has_activation else set())
    check_options(cell, represented, "torch")
