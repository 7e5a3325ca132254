"""Models as models of keras."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.factories import comparable, word
from jaxrnn.interop._gates import regrouped
from jaxrnn.interop._keras_layer import ACTIVATIONS, identity
from jaxrnn.interop._keras_recurrent import MERGES
from jaxrnn.interop._models import check_options, check_written, flat, made_by
from jaxrnn.types import Model, Params

CELLS = {"elman": "SimpleRNN", "lstm": "LSTM", "gru": "GRU"}


def to_keras(model: Model, params: Params) -> Any:
    """Writes a model as a Sequential model of keras.

        to_keras(model, params)(xs) = jr.unroll(model, params, xs).outputs

    Args:
        model: `serial` of, or one of: `elman`, `lstm`, `gru`, `bidirectional` of those, `dense`,
            `embed`, `layer_norm`, `batch_norm(running=True)`, `dropout`, and `lift` of a function
            that keras knows by name.
        params: its parameters.

    Returns:
        The model, which reads `[batch, T, D]`, or tokens `[batch, T]`. Arrays are those of the
        parameters, but for the gates of a GRU, which have another order.

    Raises:
        TypeError: The parameters are those of another model.
        ValueError: A layer or an option has no counterpart in keras, no factory made the model, or
            the parameters have other shapes.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.serial(jr.bidirectional(jr.gru(4)), jr.dense(2, jax.nn.softmax))
        >>> net = jr.interop.to_keras(model, model.init(jax.random.key(0), 3))
        >>> net(jnp.ones((2, 5, 3))).shape
        (2, 5, 2)
    """
    import keras

    check_written(model, params)
    parts = list(flat(model, params))
    dtype = next((str(leaf.dtype) for leaf in jax.tree.leaves(params)), None)
    layers = [_layer(part, part_params, dtype) for part, part_params, _ in parts]
    net = keras.Sequential([layer for layer, _ in layers])
    first, arrays = made_by(parts[0][0]).factory, layers[0][1]
    if first == "embed":
        net.build((None, None))
    else:
        width = next((len(array) for _, arrays in layers for array in arrays), None)
        net.build((None, None, width))
    for layer, arrays in layers:
        layer.set_weights(arrays)
    return net


def _layer(model: Model, params: Any, dtype: str | None) -> tuple[Any, list[Any]]:
    """A layer of keras, and its arrays."""
    from keras import layers

    factory, options = made_by(model)
    if factory in CELLS:
        return _recurrent(model, dtype), weights_of(params)
    if factory == "bidirectional":
        names = {merge: name for name, merge in MERGES.items()}
        if options["merge"] not in names:
            merge = word(options["merge"])
            raise ValueError(f"keras has no bidirectional with merge={merge}, got {model}")
        forward, backward = options["forward"], options["backward"] or options["forward"]
        layer = layers.Bidirectional(
            _recurrent(forward, dtype),
            names[options["merge"]],
            backward_layer=_recurrent(backward, dtype, go_backwards=True),
        )
        return layer, [array for one in params for array in weights_of(one)]
    if factory == "dense":
        layer = layers.Dense(
            options["num_outputs"],
            _name(options["activation"], model),
            use_bias=options["use_bias"],
            dtype=dtype,
        )
        return layer, [params.kernel] + [params.bias] * options["use_bias"]
    if factory == "embed":
        return layers.Embedding(*params.table.shape, dtype=dtype), [params.table]
    if factory == "layer_norm":
        layer = layers.LayerNormalization(epsilon=options["epsilon"], dtype=dtype)
        return layer, [params.scale, params.offset]
    if factory == "batch_norm" and options["running"]:
        return layers.BatchNormalization(epsilon=options["epsilon"], dtype=dtype), list(params)
    if factory == "dropout":
        kind = layers.SpatialDropout1D if options["variational"] else layers.Dropout
        return kind(options["rate"]), []
    if factory == "lift":
        return layers.Activation(_name(options["function"], model)), []
    raise ValueError(f"keras has no layer for {model}")


def _recurrent(cell: Model, dtype: str | None, **more: Any) -> Any:
    from keras import layers

    factory, options = made_by(cell)
    if factory not in CELLS:
        raise ValueError(f"keras reads in both directions with elman, lstm and gru, got {cell}")
    represented = {"num_units", "activation", "gate_activation", "reset_after"}
    check_options(cell, represented, "keras")
    if factory != "elman":
        more["recurrent_activation"] = _name(options["gate_activation"], cell)
    if factory == "gru":
        more["reset_after"] = options["reset_after"]
    if dtype in ("bfloat16", "float16"):
        # An orthogonal matrix, which keras would begin with, cannot be made in these.
        more["recurrent_initializer"] = "zeros"
    return getattr(layers, CELLS[factory])(
        options["num_units"],
        activation=_name(options["activation"], cell),
        return_sequences=True,
        dtype=dtype,
        **more,
    )


def _name(function: Any, model: Model) -> str:
    if function is None or function is identity:
        return "linear"
    for name, known in ACTIVATIONS.items():
        if comparable(known) == comparable(function):
            return name
    raise ValueError(
        f"keras has no name for an activation of {model}; it has {', '.join(ACTIVATIONS)}"
    )


def weights_of(params: Any) -> list[Any]:
    """The arrays of a cell in the order of keras; they may be traced."""
    leaves = [params.kernel, params.recurrent_kernel, params.bias]
    if not hasattr(params, "recurrent_bias"):
        return leaves
    leaves = [regrouped(leaf, "rzn", "zrn") for leaf in leaves]
    if params.recurrent_bias is not None:
        others = jnp.zeros(2 * len(params.recurrent_bias), leaves[2].dtype)
        leaves[2] = jnp.stack([leaves[2], jnp.concatenate([others, params.recurrent_bias])])
    return leaves
