"""Modules of equinox."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import GRUParams, LSTMParams, gru, lstm
from jaxrnn.engine.parameters import check_params
from jaxrnn.interop._imported import Arrays, Imported, kept_by_jax
from jaxrnn.interop._models import check_options, check_written, made_by
from jaxrnn.layers import (
    DenseParams,
    EmbedParams,
    LayerNormParams,
    dense,
    dropout,
    embed,
    layer_norm,
    lift,
    serial,
)
from jaxrnn.types import Model, Params


def from_equinox(module: Any) -> Imported:
    """Reads a module of equinox.

    Modules are `LSTMCell`, `GRUCell`, `Linear`, `Embedding`, `LayerNorm`, `Dropout`, `Lambda` and
    `Sequential` of those. A cell of equinox is one step; here it is the cell that `unroll` runs
    over a sequence. Without a bias ours is zero and can be trained.

    Args:
        module: the module.

    Returns:
        `Imported(model, params)`.

    Raises:
        TypeError: It is no module of equinox.
        ValueError: The module or an option of it has no counterpart here.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = eqx.nn.GRUCell(3, 4, key=jax.random.key(0))
        >>> model, params, _ = jr.interop.from_equinox(cell)
        >>> jr.unroll(model, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 4)
    """
    import equinox as eqx

    if not isinstance(module, eqx.Module):
        raise TypeError(f"module must be a module of equinox, got {module!r}")
    model, params = _read(module)
    check_params(model, params, None)
    return Imported(model, params)


def _read(module: Any) -> tuple[Model, Params]:
    from equinox import nn

    kind = type(module)
    if kind is nn.Sequential:
        models, params = zip(*(_read(part) for part in module.layers), strict=True)
        return serial(*models), params
    if kind in (nn.LSTMCell, nn.GRUCell):
        return _read_cell(module)
    if kind is nn.Lambda:
        return lift(module.fn), ()
    if kind is nn.Dropout:
        return dropout(module.p), ()
    if kind is nn.Embedding:
        table = kept_by_jax(np.asarray(module.weight), "weight")
        return embed(table.shape[1]), EmbedParams(table)
    arrays = Arrays(
        {
            name: kept_by_jax(np.asarray(getattr(module, name)), name)
            for name in ("weight", "bias")
            if getattr(module, name, None) is not None
        },
        f"the {kind.__name__}",
    )
    if kind is nn.Linear and isinstance(module.out_features, int):
        kernel = arrays.take("weight", module.out_features, module.in_features).T
        bias = arrays.take("bias", module.out_features) if module.use_bias else None
        return dense(module.out_features, use_bias=module.use_bias), DenseParams(kernel, bias)
    if kind is nn.LayerNorm and len(module.shape) == 1 and module.use_weight and module.use_bias:
        scale = arrays.take("weight", *module.shape)
        return layer_norm(module.eps), LayerNormParams(scale, arrays.take("bias", *module.shape))
    raise ValueError(
        f"{kind.__name__} cannot be read: {module}. Readable are LSTMCell, GRUCell, Linear with a "
        "number of outputs, Embedding, LayerNorm over one axis with weight and bias, Dropout, "
        "Lambda and Sequential"
    )


def _read_cell(module: Any) -> tuple[Model, Params]:
    """`weight_ih [G*H, D]` and `weight_hh [G*H, H]`, with the gates in our order."""
    num_units = module.hidden_size
    kernel, recurrent_kernel = (
        kept_by_jax(np.asarray(leaf), name).T
        for name, leaf in (("weight_ih", module.weight_ih), ("weight_hh", module.weight_hh))
    )
    bias = np.zeros(kernel.shape[1], kernel.dtype)
    if module.use_bias:
        bias = np.asarray(module.bias)
    if type(module).__name__ == "LSTMCell":
        return lstm(num_units), LSTMParams(kernel, recurrent_kernel, bias)
    recurrent_bias = np.zeros(num_units, kernel.dtype)
    if module.use_bias:
        recurrent_bias = np.asarray(module.bias_n)
    return gru(num_units), GRUParams(kernel, recurrent_kernel, bias, recurrent_bias)


def to_equinox(model: Model, params: Params) -> Any:
    """Writes a model as a module of equinox.

    Args:
        model: `lstm`, `gru`, `dense`, `embed`, `layer_norm`, `dropout`, `lift`, or `serial` of
            those.
        params: its parameters.

    Returns:
        The module: a cell, which is one step without a batch, or a layer, or a `Sequential`.
        Any function of the parameters can be traced through this one.

    Raises:
        TypeError: The parameters are those of another model.
        ValueError: The model or an option of it has no counterpart in equinox, or the parameters
            have other shapes.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> module = jr.interop.to_equinox(cell, cell.init(jax.random.key(0), 3))
        >>> module(jnp.ones(3), jnp.zeros(4)).shape
        (4,)
    """
    check_written(model, params)
    return _write(model, params)


def _write(model: Model, params: Params) -> Any:
    from equinox import nn

    factory, options = made_by(model)
    arrays: Any = params
    key = jax.random.key(0)
    if factory == "serial":
        layers = zip(options["layers"], params, strict=True)
        return nn.Sequential([_write(*one) for one in layers])
    if factory in ("lstm", "gru"):
        check_options(model, {"num_units"}, "equinox")
        kind = nn.LSTMCell if factory == "lstm" else nn.GRUCell
        module = kind(arrays.kernel.shape[0], options["num_units"], key=key)
        leaves = {
            "weight_ih": jnp.asarray(arrays.kernel).T,
            "weight_hh": jnp.asarray(arrays.recurrent_kernel).T,
            "bias": arrays.bias,
        }
        return _with(
            module, leaves | ({"bias_n": arrays.recurrent_bias} if factory == "gru" else {})
        )
    if factory == "dense" and options["activation"] is None:
        module = nn.Linear(*arrays.kernel.shape, use_bias=options["use_bias"], key=key)
        bias = {"bias": arrays.bias} if options["use_bias"] else {}
        return _with(module, {"weight": jnp.asarray(arrays.kernel).T} | bias)
    if factory == "embed":
        return nn.Embedding(weight=jnp.asarray(arrays.table))
    if factory == "layer_norm":
        module = nn.LayerNorm(arrays.scale.shape, eps=options["epsilon"])
        return _with(module, {"weight": arrays.scale, "bias": arrays.offset})
    if factory == "dropout" and not options["variational"]:
        return nn.Dropout(options["rate"])
    if factory == "lift":
        return nn.Lambda(options["function"])
    raise ValueError(
        f"equinox has no module for {model}; it has lstm, gru, dense without an activation, embed, "
        "layer_norm, dropout, lift and serial of those"
    )


def _with(module: Any, leaves: dict[str, Any]) -> Any:
    """The module with these arrays."""
    import equinox as eqx

    def where(module):
        return [getattr(module, name) for name in leaves]

    return eqx.tree_at(where, module, [jnp.asarray(leaf) for leaf in leaves.values()])
