"""Writes models as modules of flax, linen or nnx."""

from typing import Any, NamedTuple

import jax.nn as jnn
import jax.numpy as jnp
import numpy as np

from jaxrnn.interop import _flax_layouts as layouts
from jaxrnn.interop._gates import regrouped
from jaxrnn.interop._models import check_options, check_written, made_by
from jaxrnn.types import Model, Params


class LinenModel(NamedTuple):
    """A module of flax linen and its variables: `module.apply(variables, xs)`.

    Attributes:
        module: linen module.
        variables: `{"params": ...}`.
    """

    module: Any
    variables: dict[str, Any]


class _Written(NamedTuple):
    """A module and its arrays by their names, which begin at the module."""

    module: Any
    arrays: dict[str, Any]


def to_flax(model: Model, params: Params) -> LinenModel:
    """Writes a model as a module of flax linen.

        module.apply(variables, xs) = jr.unroll(model, params, xs).outputs

    `elman`, `lstm` and `gru` become an `RNN` of the cell, `conv_lstm` one of a `ConvLSTMCell`;
    `bidirectional` becomes `Bidirectional`, `serial` a `Sequential`, and `dense`, `embed`,
    `layer_norm`, `rms_norm`, `dropout` and `lift` the layers of that name or their function. The
    second bias of a `ConvLSTMCell` is zero, and -1 for f, to which its step adds 1. The function
    can be traced, so gradients pass through it.

    Args:
        model: model of these factories.
        params: its parameters.

    Returns:
        `LinenModel(module, variables)`. A mask is given to the module as `seq_lengths`.

    Raises:
        TypeError: The parameters are those of another model.
        ValueError: The model, or an option of it, has no counterpart in linen, or no factory made
            it; the error names the option. Or the parameters have other shapes.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.bidirectional(jr.lstm(4))
        >>> params = model.init(jax.random.key(0), 3)
        >>> module, variables = jr.interop.to_flax(model, params)
        >>> module.apply(variables, jnp.ones((2, 5, 3))).shape
        (2, 5, 8)
    """
    from flax import linen, traverse_util

    check_written(model, params)

    def make(name, num_inputs, *sizes, **options):
        del num_inputs
        return getattr(linen, name)(*sizes, **options)

    def sequential(parts):
        return linen.Sequential(parts)

    writer = _Writer(layouts.LINEN, make, sequential, "Dense", "layers_{}")
    written = writer.whole(model, params)
    return LinenModel(
        written.module, {"params": traverse_util.unflatten_dict(written.arrays, sep="/")}
    )


def to_nnx(model: Model, params: Params) -> Any:
    """Writes a model as a module of flax nnx.

        module(xs) = jr.unroll(model, params, xs).outputs

    The models are those of `to_flax` but for `conv_lstm`, which nnx has no cell for. The `GRUCell`
    of nnx has no bias in the recurrent product, so the `recurrent_bias` of a `gru` must be zero.

    Args:
        model: model of the factories that `to_flax` names.
        params: its parameters.

    Returns:
        The module, which holds the parameters.

    Raises:
        TypeError: The parameters are those of another model.
        ValueError: As `to_flax` raises, or a `recurrent_bias` is not zero.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.serial(jr.lstm(4), jr.dense(2))
        >>> module = jr.interop.to_nnx(model, model.init(jax.random.key(0), 3))
        >>> module(jnp.ones((2, 5, 3))).shape
        (2, 5, 2)
    """
    from flax import nnx

    check_written(model, params)
    rngs = nnx.Rngs(0)

    def make(name, num_inputs, *sizes, **options):
        if name in ("RNN", "Bidirectional"):
            return getattr(nnx, name)(*sizes, **options)
        first = () if num_inputs is None else (num_inputs,)
        return getattr(nnx, name)(*first, *sizes, rngs=rngs, **options)

    def sequential(parts):
        return nnx.Sequential(*parts)

    writer = _Writer(layouts.NNX, make, sequential, "Linear", "layers/{}")
    written = writer.whole(model, params)
    for path, array in written.arrays.items():
        part = written.module
        for name in path.split("/"):
            part = part[int(name)] if name.isdigit() else getattr(part, name)
        part.set_value(jnp.asarray(array))
    return written.module


class _Writer:
    """Writes models with the names and the classes of linen or of nnx."""

    def __init__(self, cell_layouts, make, sequential, dense, part):
        self._layouts = cell_layouts
        self._make = make
        self._sequential = sequential
        self._dense_class = dense
        self._part = part
        # What writes a model, and the options that it reads.
        self._cells = {
            "elman": (self._elman, {"num_units", "activation"}),
            "lstm": (self._lstm, {"num_units", "activation", "gate_activation"}),
            "gru": (self._gru, {"num_units", "activation", "gate_activation"}),
        }
        if cell_layouts is layouts.LINEN:
            self._cells["conv_lstm"] = self._conv_lstm, {"num_units", "shape", "kernel_size"}
        self._layers = {
            "recurrent": (self._recurrent, {"cell", "evaluator", "reverse"}),
            "bidirectional": (self._bidirectional, {"forward", "backward", "merge"}),
            "serial": (self._serial, {"layers"}),
            "dense": (self._dense, {"num_outputs", "activation", "use_bias"}),
            "embed": (self._embed, {"num_outputs"}),
            "layer_norm": (self._layer_norm, {"epsilon"}),
            "rms_norm": (self._rms_norm, {"epsilon"}),
            "dropout": (self._dropout, {"rate"}),
            "lift": (self._lift, {"function", "num_outputs"}),
        }

    def whole(self, model, params):
        """The model as one module."""
        written = self.parts(model, params)
        is_module = len(written) == 1 and made_by(model).factory != "lift"
        return written[0] if is_module else self._in_sequence(written)

    def parts(self, model, params):
        """The modules, one after another, that a model becomes: an activation is one of its own."""
        if made_by(model).factory in self._cells:
            return [self._rnn(model, params)]
        return self._written(model, params, self._layers)

    def _written(self, model, params, writers):
        factory, options = made_by(model)
        if factory not in writers:
            known = ", ".join({**self._cells, **self._layers})
            raise ValueError(f"model must be made by {known} to be written for flax, got {model}")
        write, read = writers[factory]
        check_options(model, read, "flax")
        return write(options, params)

    def _rnn(self, model, params, **options):
        cell, arrays = self._written(model, params, self._cells)
        return _Written(self._make("RNN", None, cell, **options), _below("cell", arrays))

    def _cell(self, name, num_units, params, **options):
        num_inputs = params.kernel.shape[0]
        # None is the dtype of the parameters; nnx's SimpleCell would compute in float32.
        dtypes = {"param_dtype": params.kernel.dtype, "dtype": None}
        if self._layouts is layouts.NNX:
            # It makes arrays at once, and orthogonal ones cannot be made in half precision.
            options["recurrent_kernel_init"] = jnn.initializers.zeros
        cell = self._make(name, num_inputs, num_units, **dtypes, **options)
        return _Written(cell, dict(layouts.write_cell(params, self._layouts[name])))

    def _elman(self, options, params):
        activation = options["activation"]
        return self._cell("SimpleCell", options["num_units"], params, activation_fn=activation)

    def _lstm(self, options, params):
        functions = _activations(options)
        return self._cell("OptimizedLSTMCell", options["num_units"], params, **functions)

    def _gru(self, options, params):
        written = self._cell("GRUCell", options["num_units"], params, **_activations(options))
        if self._layouts is layouts.LINEN:
            written.arrays[layouts.LINEN_GRU_RECURRENT_BIAS] = params.recurrent_bias
        elif np.any(np.asarray(params.recurrent_bias)):
            raise ValueError(
                "recurrent_bias must be zero to be written for nnx, whose GRUCell has none, got "
                f"values up to {abs(np.asarray(params.recurrent_bias)).max()}; linen's has one"
            )
        return written

    def _conv_lstm(self, options, params):
        num_units = options["num_units"]
        kernel_size = params.kernel.shape[:-2]
        cell = self._make(
            "ConvLSTMCell", None, num_units, kernel_size, param_dtype=params.kernel.dtype
        )
        # The step adds 1 to the forget gate, the third block there.
        recurrent_bias = -jnp.repeat(jnp.array([0, 0, 1, 0], params.bias.dtype), num_units)
        kernel, recurrent_kernel, bias = (regrouped(leaf, "ifgo", "igfo") for leaf in params)
        arrays = {
            **{"ih/kernel": kernel, "ih/bias": bias},
            **{"hh/kernel": recurrent_kernel, "hh/bias": recurrent_bias},
        }
        return _Written(cell, arrays)

    def _recurrent(self, options, params):
        order = {"reverse": True, "keep_order": True} if options["reverse"] else {}
        return [self._rnn(options["cell"], params, **order)]

    def _bidirectional(self, options, params):
        backward = options["backward"] or options["forward"]
        directions = {"forward_rnn": options["forward"], "backward_rnn": backward}
        written = {
            name: self._direction(model, leaves)
            for (name, model), leaves in zip(directions.items(), params, strict=True)
        }
        arrays = {}
        for name, direction in written.items():
            arrays |= _below(name, direction.arrays)
        merge = options["merge"]
        merged = {} if merge == "concat" else {"merge_fn": layouts.MERGES.get(merge, merge)}
        rnns = (direction.module for direction in written.values())
        return [_Written(self._make("Bidirectional", None, *rnns, **merged), arrays)]

    def _direction(self, model, params):
        written = self.whole(model, params)
        if type(written.module).__name__ != "RNN":
            raise ValueError(f"a direction must be a cell to be written for flax, got {model}")
        return written

    def _serial(self, options, params):
        parts = []
        for layer, leaves in zip(options["layers"], params, strict=True):
            parts += self.parts(layer, leaves)
        return [self._in_sequence(parts)]

    def _in_sequence(self, parts):
        arrays = {}
        for index, part in enumerate(parts):
            arrays |= _below(self._part.format(index), part.arrays)
        return _Written(self._sequential([part.module for part in parts]), arrays)

    def _dense(self, options, params):
        num_inputs, num_outputs = params.kernel.shape
        use_bias, dtype = options["use_bias"], params.kernel.dtype
        module = self._make(
            self._dense_class, num_inputs, num_outputs, use_bias=use_bias, param_dtype=dtype
        )
        arrays = {"kernel": params.kernel, **({"bias": params.bias} if use_bias else {})}
        activation = options["activation"]
        return [_Written(module, arrays)] + ([_Written(activation, {})] if activation else [])

    def _embed(self, options, params):
        module = self._make("Embed", None, *params.table.shape, param_dtype=params.table.dtype)
        return [_Written(module, {"embedding": params.table})]

    def _layer_norm(self, options, params):
        # The variance in two passes, as here: in one it cancels.
        module = self._norm("LayerNorm", options, params, use_fast_variance=False)
        return [_Written(module, {"scale": params.scale, "bias": params.offset})]

    def _rms_norm(self, options, params):
        return [_Written(self._norm("RMSNorm", options, params), {"scale": params.scale})]

    def _norm(self, name, options, params, **others):
        scale, epsilon = params.scale, options["epsilon"]
        return self._make(name, scale.size, epsilon=epsilon, param_dtype=scale.dtype, **others)

    def _dropout(self, options, params):
        return [_Written(self._make("Dropout", None, options["rate"], deterministic=True), {})]

    def _lift(self, options, params):
        return [_Written(options["function"], {})]


def _below(name, arrays):
    return {f"{name}/{path}": array for path, array in arrays.items()}


def _activations(options):
    return {"activation_fn": options["activation"], "gate_fn": options["gate_activation"]}
