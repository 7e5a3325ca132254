"""Reads the modules of flax, linen and nnx."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.cells import (
    ConvLSTMParams,
    ElmanParams,
    GRUParams,
    LSTMParams,
    conv_lstm,
    elman,
    gru,
    lstm,
)
from jaxrnn.engine.parameters import check_params
from jaxrnn.engine.recurrent import recurrent
from jaxrnn.interop import _flax_layouts as layouts
from jaxrnn.interop._flax_options import check_read, place, unsupported
from jaxrnn.interop._gates import regrouped
from jaxrnn.interop._imported import Imported
from jaxrnn.interop._models import made_by
from jaxrnn.layers import (
    DenseParams,
    Directions,
    EmbedParams,
    LayerNormParams,
    RMSNormParams,
    bidirectional,
    dense,
    dropout,
    embed,
    layer_norm,
    lift,
    rms_norm,
    serial,
)
from jaxrnn.types import Cell, Model


def from_flax(
    module: Any, variables: Mapping[str, Any] | None = None, *, shape: tuple[int, ...] | None = None
) -> Imported:
    """Reads a module of flax, linen or nnx, with its parameters.

        jr.unroll(model, params, xs, mask=mask).outputs = mask ⊙ module(xs, seq_lengths)

    It reads `SimpleCell`, `LSTMCell`, `OptimizedLSTMCell`, `GRUCell` and linen's `ConvLSTMCell`,
    alone, in an `RNN` or in a `Bidirectional`; `Dense` or `Linear`, `Embed`, `LayerNorm`,
    `RMSNorm` and `Dropout`; and a `Sequential` of those and of functions that act on each step. A
    module of your own is read part by part, each with its variables.

    The carry of an LSTM is `(c, h)` in flax and `LSTMCarry(h, c)` here; that of the other cells is
    h in flax. Masked outputs are zero here, where flax leaves what it computed from the padding. A
    convolution without a bias, and a norm without a scale or an offset, get zeros and ones, which
    training changes.

    Args:
        module: linen module, or nnx module with its parameters.
        variables: `{"params": ...}` of a linen module; None for nnx.
        shape: spatial axes of what a `ConvLSTMCell` reads, such as (28, 28).

    Returns:
        `Imported(model, params)`, the parameters as numpy arrays of the dtype that they have in
        flax. `reverse=True` becomes `recurrent(cell, reverse=True)`.

    Raises:
        TypeError: `module` is not one of flax, `variables` are missing, or given for nnx.
        ValueError: A module or an option of it has no counterpart here (`MGUCell`, another `dtype`
            than that of the parameters, `reverse` without `keep_order`, a `carry_init`), an array
            is missing, left over or has another shape, or `shape` is missing or not needed.

    Example:
        >>> import flax.linen as nn, jax, jax.numpy as jnp, jaxrnn as jr
        >>> module, xs = nn.RNN(nn.GRUCell(4)), jnp.ones((2, 5, 3))
        >>> variables = module.init(jax.random.key(0), xs)
        >>> model, params, _ = jr.interop.from_flax(module, variables)
        >>> model
        gru(4)
        >>> ys = jr.unroll(model, params, xs).outputs
        >>> bool(jnp.allclose(ys, module.apply(variables, xs), atol=1e-6))
        True
    """
    from flax import linen, nnx

    if isinstance(module, linen.Module):
        reader = _Reader(layouts.linen_arrays(variables), layouts.LINEN, linen.Module, shape)
    elif isinstance(module, nnx.Module):
        if variables is not None:
            raise TypeError("variables must be None for an nnx module, which holds its parameters")
        reader = _Reader(layouts.nnx_arrays(module), layouts.NNX, nnx.Module, shape)
    else:
        raise TypeError(
            f"module must be a module of flax.linen or flax.nnx, got {type(module).__name__}"
        )
    model, params = reader.read(module, "")
    reader.finish()
    check_params(model, params, None)
    return Imported(model, params)


class _Reader:
    """Reads a module and its parts, each from the arrays below its path."""

    def __init__(self, arrays, cell_layouts, module_class, shape):
        self._arrays = arrays
        self._layouts = cell_layouts
        self._module_class = module_class
        self._shape = shape
        self._shape_was_read = False
        self._readers: dict[str, Callable[[Any, str], tuple[Model, Any]]] = {
            "SimpleCell": self._elman,
            "LSTMCell": self._lstm,
            "OptimizedLSTMCell": self._lstm,
            "GRUCell": self._gru,
            "ConvLSTMCell": self._conv_lstm,
            "RNN": self._rnn,
            "Bidirectional": self._bidirectional,
            "Dense": self._dense,
            "Linear": self._dense,
            "Embed": self._embed,
            "LayerNorm": self._layer_norm,
            "RMSNorm": self._rms_norm,
            "Dropout": self._dropout,
            "Sequential": self._sequential,
        }

    def read(self, module, path):
        """The model and the parameters of a module whose arrays have names that begin with path."""
        kind = type(module).__name__
        if not type(module).__module__.startswith("flax.") or kind not in self._readers:
            raise ValueError(
                f"{place(path)} must be one of {', '.join(self._readers)} of flax, got {kind}; "
                "read the parts of a module of your own one by one, each with its variables"
            )
        return self._readers[kind](module, path)

    def finish(self):
        self._arrays.finish()
        if self._shape is not None and not self._shape_was_read:
            raise ValueError(f"shape must be None without a ConvLSTMCell, got {self._shape}")

    def _cell(self, module, path, num_gates):
        layout = self._layouts[type(module).__name__]
        num_units = _num_units(module)
        return layouts.read_cell(self._arrays, path, layout, num_units, num_gates)

    def _elman(self, module, path):
        check_read(module, path, "activation_fn", "residual")
        params = ElmanParams(*self._cell(module, path, 1))
        if module.residual:
            shortcut = np.eye(_num_units(module), dtype=params.bias.dtype)
            params = params._replace(recurrent_kernel=params.recurrent_kernel + shortcut)
        return elman(_num_units(module), module.activation_fn, **_dtype(params)), params

    def _lstm(self, module, path):
        check_read(module, path, "activation_fn", "gate_fn")
        params = LSTMParams(*self._cell(module, path, 4))
        return lstm(_num_units(module), **_activations(module), **_dtype(params)), params

    def _gru(self, module, path):
        check_read(module, path, "activation_fn", "gate_fn")
        leaves = self._cell(module, path, 3)
        num_units = _num_units(module)
        if self._layouts is layouts.LINEN:
            name = path + layouts.LINEN_GRU_RECURRENT_BIAS
            recurrent_bias = self._arrays.take(name, num_units)
        else:
            recurrent_bias = np.zeros(num_units, leaves[0].dtype)
        params = GRUParams(*leaves, recurrent_bias)
        return gru(num_units, **_activations(module), **_dtype(params)), params

    def _conv_lstm(self, module, path):
        check_read(module, path, "kernel_size", "use_bias")
        if self._shape is None:
            raise ValueError(
                f"shape must be given, the spatial axes of what {place(path)} reads, because a "
                "ConvLSTMCell does not know them"
            )
        self._shape_was_read = True
        num_units, axes = module.features, (None,) * len(module.kernel_size)
        kernel = self._arrays.take(f"{path}ih/kernel", *axes, None, 4 * num_units)
        recurrent_kernel = self._arrays.take(f"{path}hh/kernel", *axes, num_units, 4 * num_units)
        # The step adds 1 to the forget gate, the third block here.
        bias = np.repeat(np.array([0, 0, 1, 0], kernel.dtype), num_units)
        if module.use_bias:
            names = f"{path}ih/bias", f"{path}hh/bias"
            input_bias, recurrent_bias = (self._arrays.take(name, 4 * num_units) for name in names)
            bias = input_bias + (recurrent_bias + bias)
        leaves = (regrouped(leaf, "igfo", "ifgo") for leaf in (kernel, recurrent_kernel, bias))
        params = ConvLSTMParams(*leaves)
        model = conv_lstm(
            num_units, tuple(self._shape), tuple(module.kernel_size), **_dtype(params)
        )
        return model, params

    def _rnn(self, module, path):
        check_read(module, path, "reverse", "keep_order", "return_carry")
        if module.reverse and not module.keep_order:
            raise unsupported(path, module, "keep_order", True)
        cell, params = self._cell_of(module, path)
        return recurrent(cell, reverse=True) if module.reverse else cell, params

    def _cell_of(self, rnn, path):
        below = f"{path}cell/"
        model, params = self.read(rnn.cell, below)
        if not isinstance(model, Cell):
            raise ValueError(f"{place(below)} must be a cell, got {type(rnn.cell).__name__}")
        return model, params

    def _bidirectional(self, module, path):
        check_read(module, path, "merge_fn", "return_carry")
        models, params = {}, {}
        for name in ("forward", "backward"):
            rnn = getattr(module, f"{name}_rnn")
            if type(rnn).__name__ != "RNN":
                raise ValueError(f"{name}_rnn of {place(path)} must be an RNN, got {rnn}")
            # What it says of order and time is not used: its caller says it again.
            check_read(rnn, path, "reverse", "keep_order", "return_carry", "time_major")
            below = f"{path}{name}_rnn/"
            models[name], params[name] = self._cell_of(rnn, below)
        default = inspect.signature(type(module).__init__).parameters["merge_fn"].default
        names = {function: name for name, function in layouts.MERGES.items()}
        merge: Any = (names | {default: "concat"}).get(module.merge_fn, module.merge_fn)
        if models["forward"] == models["backward"]:
            del models["backward"]
        return bidirectional(**models, merge=merge), Directions(**params)

    def _dense(self, module, path):
        check_read(module, path, "use_bias")
        kernel = self._arrays.take(f"{path}kernel", None, None)
        num_outputs = kernel.shape[1]
        bias = self._arrays.take(f"{path}bias", num_outputs) if module.use_bias else None
        params = DenseParams(kernel, bias)
        return dense(num_outputs, use_bias=module.use_bias, **_dtype(params)), params

    def _embed(self, module, path):
        check_read(module, path)
        params = EmbedParams(self._arrays.take(f"{path}embedding", None, module.features))
        return embed(module.features, **_dtype(params)), params

    def _layer_norm(self, module, path):
        check_read(module, path, "epsilon", "use_scale", "use_bias")
        used = {"scale": module.use_scale, "bias": module.use_bias}
        leaves = {name: self._arrays.take(path + name, None) for name in used if used[name]}
        if not leaves:
            raise unsupported(path, module, "use_scale", True)
        width, dtype = next((leaf.size, leaf.dtype) for leaf in leaves.values())
        params = LayerNormParams(
            leaves.get("scale", np.ones(width, dtype)), leaves.get("bias", np.zeros(width, dtype))
        )
        return layer_norm(module.epsilon, **_dtype(params)), params

    def _rms_norm(self, module, path):
        check_read(module, path, "epsilon")
        params = RMSNormParams(self._arrays.take(f"{path}scale", None))
        return rms_norm(module.epsilon, **_dtype(params)), params

    def _dropout(self, module, path):
        check_read(module, path, "rate")
        return dropout(float(module.rate)), ()

    def _sequential(self, module, path):
        check_read(module, path)
        models, params = [], []
        for index, part in enumerate(module.layers):
            is_function = not isinstance(part, self._module_class) and callable(part)
            if is_function and models and _takes_activation(models[-1], part):
                options = {**made_by(models[-1]).options, "activation": part}
                models[-1] = dense(**options)
                continue
            if is_function:
                model, leaves = lift(part), ()
            else:
                model, leaves = self._part(part, f"{path}{self._part_name(index)}/")
            models.append(model)
            params.append(leaves)
        return serial(*models), tuple(params)

    def _part(self, part, path):
        kind = type(part).__name__
        if kind.endswith("Cell"):
            raise ValueError(f"{place(path)} must be an RNN of a cell in a Sequential, got {kind}")
        if getattr(part, "return_carry", False):
            raise unsupported(path, part, "return_carry", False)
        return self.read(part, path)

    def _part_name(self, index):
        return f"layers_{index}" if self._layouts is layouts.LINEN else f"layers/{index}"


def _takes_activation(model, function):
    """Whether it is a dense layer without one, and the function keeps the number of outputs."""
    factory, options = made_by(model)
    if factory != "dense" or options["activation"] is not None:
        return False
    outputs = jax.ShapeDtypeStruct((options["num_outputs"],), options["param_dtype"])
    try:
        return jax.eval_shape(function, outputs).shape == outputs.shape
    except Exception:  # Of one that reads more axes than a step has, which `lift` says.
        return False


def _num_units(module):
    return getattr(module, "features", None) or module.hidden_features


def _activations(module):
    return {"activation": module.activation_fn, "gate_activation": module.gate_fn}


def _dtype(params):
    """The option `param_dtype`, if it is not the usual one."""
    dtype = jax.tree.leaves(params)[0].dtype
    return {} if dtype == np.float32 else {"param_dtype": getattr(jnp, dtype.name)}
