"""A language model whose input and output share one table of vectors."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.cells import _initializers as initializers
from jaxrnn.engine import checks
from jaxrnn.engine.inside import look_inside, rollout_of
from jaxrnn.factories import model_factory
from jaxrnn.layers._embed import EmbedParams, embed
from jaxrnn.layers._serial import serial
from jaxrnn.types import Cell, Layer, Steps


class TiedEmbedParams(NamedTuple):
    """`table [V, D]`, `layers`, a tuple with one entry for each layer, and `bias [V]` or None."""

    table: Any
    layers: Any
    bias: Any = None
    roles = {"table": "input", "bias": "readout"}


@model_factory
def tied_embed(
    num_features: int,
    *layers: Cell | Layer,
    use_bias: bool = True,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """Runs layers between a table of vectors for tokens and the same table as the readout.

        y = layers(E[x]) Eᵀ + b

    Press and Wolf 2017 (arXiv:1608.05859). The table starts as N(0, 1/D), so that the logits start
    no larger than the outputs of the layers. A token outside the table gives NaN, as in `embed`. A
    factor of the vectors is a `lift` at the start of the layers, a cap of the logits one after this
    layer: `serial(tied_embed(D, lift(scaled), gru(D)), lift(capped))`. In `encoder_decoder` without
    attention it is a decoder with its readout in one: `decoder=tied_embed(D, gru(D)),
    readout=lift(jnp.asarray)`.

    Args:
        num_features: D, the width of the table.
        *layers: at least one cell or layer; the first reads vectors of width D and the last gives
            them.
        use_bias: whether there is a b.
        param_dtype: dtype of the table and of the bias, which starts at zero.

    Returns:
        The layer, ints `[...] -> [..., V]`, with `TiedEmbedParams` from `init(key, V)`; its carry
        and info are those of `serial(*layers)`, and it is causal when all layers are. It raises
        ValueError in `init` and while tracing when the layers end in another width than D.

    Raises:
        TypeError: A layer is neither a Cell nor a Layer, `num_features` is not an int, or
            `use_bias` is not a bool.
        ValueError: `num_features` is below 1 or no layer is given.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.tied_embed(8, jr.lstm(16), jr.dense(8))
        >>> params = layer.init(jax.random.key(0), 50)
        >>> params.table.shape, jr.unroll(layer, params, jnp.array([[3, 1, 4]])).outputs.shape
        ((50, 8), (1, 3, 50))
    """
    checks.positive(num_features, "num_features")
    checks.boolean(use_bias, "use_bias")
    stack, lookup = serial(*layers), embed(num_features)

    def init(key, vocabulary):
        checks.positive(vocabulary, "vocabulary")
        width = stack.num_outputs(num_features)
        if width != num_features:
            raise ValueError(
                f"layers must end in the width {num_features} of the table, got {width}."
            )
        table_key, key = jax.random.split(key)
        # Of variance 1/D, which is that of a kernel with D inputs.
        table = initializers.input_kernel(table_key, num_features, vocabulary, param_dtype).T
        bias = jnp.zeros(vocabulary, param_dtype) if use_bias else None
        return TiedEmbedParams(table, stack.init(key, num_features), bias)

    def inside(params, carry, steps, key):
        vectors = lookup.unroll(EmbedParams(params.table), (), steps, None).outputs
        run = look_inside(stack, params.layers, carry, Steps(vectors, *steps[1:]), key)
        rollout = run.rollout
        checks.width(rollout.outputs, params.table.T)
        logits = rollout.outputs @ params.table.T
        logits = logits if params.bias is None else logits + params.bias
        return run._replace(rollout=rollout._replace(outputs=logits))

    return Layer(
        init=init,
        initial_carry=lambda params, batch_shape=(): stack.initial_carry(
            params.layers, batch_shape
        ),
        unroll=rollout_of(inside),
        num_outputs=lambda num_inputs: num_inputs,
        causal=stack.causal,
        num_feature_axes=0,
        roles=TiedEmbedParams(None, stack.roles),
        inside=inside,
    )
