"""Parameters of haiku, which come without a module: the model says what they are for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import ElmanParams, GRUParams, LSTMParams
from jaxrnn.engine.parameters import check_params
from jaxrnn.interop._gates import regrouped
from jaxrnn.interop._imported import Arrays, Imported, kept_by_jax
from jaxrnn.interop._models import check_options, check_written, made_by
from jaxrnn.layers import DenseParams, EmbedParams, LayerNormParams
from jaxrnn.types import Model, Params

Paths = str | Sequence[Any] | None
MODULES = ("lstm", "gru", "elman", "dense", "embed", "layer_norm")


def from_haiku(params: Mapping[str, Any], model: Model, paths: Paths) -> Imported:
    """Reads parameters of haiku for a model.

    Haiku keeps arrays by the paths of modules, `{"lstm/linear": {"w": ..., "b": ...}}`, and
    nothing of their options. These modules have a counterpart: `LSTM`, which is `lstm`; `GRU`,
    which is `gru(reset_after=False)`; `VanillaRNN`, which is `elman(num_units, jax.nn.relu)`;
    `Linear`, which is `dense`; `Embed` and `LayerNorm`. The step of haiku's LSTM adds 1 to the bias
    of f, which is part of our bias; z of its GRU admits the new state, so the signs of its
    parameters change.

    Args:
        params: parameters as `hk.transform(...).init` makes them.
        model: model that they are for.
        paths: path of the module, "lstm" or "net/~/lstm"; for a `serial` one for each of its
            layers, `("embed", "lstm", None, "linear")`, with None for a layer without parameters.

    Returns:
        `Imported(model, params)`.

    Raises:
        TypeError: `params` has something else than mappings of arrays.
        ValueError: An array is missing, left over or of another shape, or the model or an option of
            it has no counterpart in haiku.

    Example:
        >>> import haiku as hk, jax, jax.numpy as jnp, jaxrnn as jr
        >>> @hk.transform
        ... def net(xs):
        ...     lstm = hk.LSTM(4)
        ...     return hk.dynamic_unroll(lstm, xs, lstm.initial_state(2), time_major=False)[0]
        >>> theirs = net.init(jax.random.key(0), jnp.ones((2, 5, 3)))
        >>> model, params, _ = jr.interop.from_haiku(theirs, jr.lstm(4), "lstm")
        >>> ys = jr.unroll(model, params, jnp.ones((2, 5, 3))).outputs
        >>> bool(jnp.allclose(ys, net.apply(theirs, None, jnp.ones((2, 5, 3))), atol=1e-6))
        True
    """
    if not isinstance(params, Mapping) or not all(
        isinstance(module, Mapping) for module in params.values()
    ):
        raise TypeError(
            "params must be a mapping from paths of modules to mappings of arrays, as "
            "hk.transform(...).init makes them"
        )
    arrays = {
        f"{path}/{name}": kept_by_jax(np.asarray(array), f"{path}/{name}")
        for path, module in params.items()
        for name, array in module.items()
    }
    checked = Arrays(arrays, "the parameters of haiku")
    read = _read(model, checked, paths)
    checked.finish()
    check_params(model, read, None)
    return Imported(model, read)


def to_haiku(model: Model, params: Params, paths: Paths) -> dict[str, dict[str, Any]]:
    """Writes parameters with the names and layouts of haiku.

    Args:
        model: model of the parameters, as `from_haiku` takes it.
        params: its parameters.
        paths: paths of modules, as `from_haiku` takes them.

    Returns:
        The parameters for `hk.transform(...).apply`. They are the bits of ours, but for the bias of
        f of an LSTM, from which 1 is taken away and to which haiku adds it.

    Raises:
        TypeError: The parameters are those of another model.
        ValueError: The model or an option of it has no counterpart in haiku, or the parameters have
            other shapes.

    Example:
        >>> import jax, jaxrnn as jr
        >>> cell = jr.gru(4, reset_after=False)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> sorted(jr.interop.to_haiku(cell, params, "gru")["gru"])
        ['b', 'w_h', 'w_i']
    """
    check_written(model, params)
    written: dict[str, dict[str, Any]] = {}
    for path, arrays in _write(model, params, paths):
        if path in written:
            raise ValueError(f"paths must be different for each layer, got {path!r} twice")
        written[path] = arrays
    return written


def _layers(model: Model, paths: Paths) -> list[tuple[Model, Paths]] | None:
    """The layers of a stack with their paths, None for a model that is no stack."""
    factory, options = made_by(model)
    if factory != "serial":
        return None
    layers = options["layers"]
    if isinstance(paths, str) or paths is None or len(paths) != len(layers):
        raise ValueError(
            f"paths must have one entry for each of the {len(layers)} layers of {model}, got "
            f"{paths!r}"
        )
    return list(zip(layers, paths, strict=True))


def _checked(model: Model, path: Paths) -> tuple[str, dict[str, Any], str]:
    """The factory, its options, and the path of a layer that haiku has as a module."""
    factory, options = made_by(model)
    if factory not in MODULES:
        raise ValueError(f"haiku has no module for {model}; it has {', '.join(MODULES)}")
    if not isinstance(path, str):
        raise ValueError(f"the path of {model} must be a string, got {path!r}")
    if factory == "gru" and options["reset_after"]:
        raise ValueError(f"haiku has no gru with reset_after=True, got {model}")
    if factory == "elman" and options["activation"] is not jax.nn.relu:
        raise ValueError(f"haiku has no elman but with the activation relu, got {model}")
    represented = {"num_units", "num_outputs", "use_bias", "epsilon", "reset_after"}
    represented |= {"activation"} if factory in ("elman", "dense") else set()
    check_options(model, represented, "haiku")
    return factory, options, path


def _read(model: Model, arrays: Arrays, paths: Paths) -> Params:
    layers = _layers(model, paths)
    if layers is not None:
        return tuple(_read(layer, arrays, path) for layer, path in layers)
    if made_by(model).factory in ("dropout", "lift"):
        return ()
    factory, options, path = _checked(model, paths)
    if factory == "lstm":
        num_units = options["num_units"]
        rows = arrays.take(f"{path}/linear/w", None, 4 * num_units)
        bias = arrays.take(f"{path}/linear/b", 4 * num_units)
        rows, bias = (regrouped(leaf, "igfo", "ifgo") for leaf in (rows, bias))
        bias[num_units : 2 * num_units] += 1
        return LSTMParams(rows[:-num_units], rows[-num_units:], bias)
    if factory == "gru":
        num_units = options["num_units"]
        leaves = (
            arrays.take(f"{path}/w_i", None, 3 * num_units),
            arrays.take(f"{path}/w_h", num_units, 3 * num_units),
            arrays.take(f"{path}/b", 3 * num_units),
        )
        return GRUParams(*(regrouped(leaf, "zrn", "rZn") for leaf in leaves))
    if factory == "elman":
        num_units = options["num_units"]
        kernel = arrays.take(f"{path}/linear/w", None, num_units)
        recurrent_kernel = arrays.take(f"{path}/linear_1/w", num_units, num_units)
        names = (f"{path}/{side}/b" for side in ("linear", "linear_1"))
        bias = sum(arrays.take(name, num_units) for name in names)
        return ElmanParams(kernel, recurrent_kernel, bias)
    if factory == "dense":
        kernel = arrays.take(f"{path}/w", None, options["num_outputs"])
        use_bias = options["use_bias"]
        return DenseParams(
            kernel, arrays.take(f"{path}/b", options["num_outputs"]) if use_bias else None
        )
    if factory == "embed":
        return EmbedParams(arrays.take(f"{path}/embeddings", None, options["num_outputs"]))
    scale = arrays.take(f"{path}/scale", None)
    return LayerNormParams(scale, arrays.take(f"{path}/offset", *scale.shape))


def _write(model: Model, params: Any, paths: Paths) -> Iterator[tuple[str, dict[str, Any]]]:
    """The modules of a model with their paths."""
    layers = _layers(model, paths)
    if layers is not None:
        for (layer, path), layer_params in zip(layers, params, strict=True):
            yield from _write(layer, layer_params, path)
        return
    if made_by(model).factory in ("dropout", "lift"):
        return
    factory, options, path = _checked(model, paths)
    if factory == "lstm":
        num_units = options["num_units"]
        rows = jnp.concatenate([params.kernel, params.recurrent_kernel])
        bias = jnp.asarray(params.bias).at[num_units : 2 * num_units].add(-1)
        w, b = (regrouped(leaf, "ifgo", "igfo") for leaf in (rows, bias))
        yield f"{path}/linear", {"w": w, "b": b}
    elif factory == "gru":
        leaves = [regrouped(leaf, "rzn", "Zrn") for leaf in params[:3]]
        yield path, dict(zip(("w_i", "w_h", "b"), leaves, strict=True))
    elif factory == "elman":
        yield f"{path}/linear", {"w": params.kernel, "b": params.bias}
        zeros = jnp.zeros_like(params.bias)
        yield f"{path}/linear_1", {"w": params.recurrent_kernel, "b": zeros}
    elif factory == "dense":
        yield path, {"w": params.kernel} | ({"b": params.bias} if options["use_bias"] else {})
    elif factory == "embed":
        yield path, {"embeddings": params.table}
    else:
        yield path, {"scale": params.scale, "offset": params.offset}
