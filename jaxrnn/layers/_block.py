"""A residual block round any mixer of time, and the stacks made of it."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.factories import model_factory
from jaxrnn.layers._dense import dense
from jaxrnn.layers._dropout import dropout
from jaxrnn.layers._embed import embed
from jaxrnn.layers._gated_mlp import gated_mlp
from jaxrnn.layers._layer_norm import layer_norm
from jaxrnn.layers._residual import residual
from jaxrnn.layers._serial import serial
from jaxrnn.types import Cell, Layer


@model_factory
def block(
    mixer: Cell | Layer,
    num_features: int,
    *,
    expansion: int = 2,
    rate: float = 0.0,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """Norm, mixer and skip, then norm, gated perceptron and skip.

        x' = x + dropout(mixer(LN(x)) W),  y = x' + dropout(mlp(LN(x')))

    The same frame round every model, so that mixers are compared with everything else equal.
    Pre-normalisation as in Xiong et al. 2020 (arXiv:2002.04745); W brings the mixer's width to D.

    Args:
        mixer: A cell or a layer of any output width.
        num_features: D, the width of x and y.
        expansion: The perceptron is `expansion * D` wide.
        rate: Of dropout on both branches.
        param_dtype: Of the block's own parameters.

    Returns:
        The layer, `[..., D] -> [..., D]`.

    Raises:
        TypeError: `mixer` is neither a Cell nor a Layer, or a size is no int.
        ValueError: A size is below 1, or `rate` is not in [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.block(jr.gru(16), 8)
        >>> params = layer.init(jax.random.key(0), 8)
        >>> jr.unroll(layer, params, jnp.ones((2, 5, 8))).outputs.shape
        (2, 5, 8)
    """
    checks.positive(num_features, "num_features")
    checks.positive(expansion, "expansion")
    noise = [dropout(rate)] if rate else []
    norm = layer_norm(param_dtype=param_dtype)
    project = dense(num_features, use_bias=False, param_dtype=param_dtype)
    perceptron = gated_mlp(expansion * num_features, param_dtype=param_dtype)
    return serial(
        residual(serial(norm, mixer, project, *noise)),
        residual(serial(norm, perceptron, *noise)),
    )


@model_factory
def classifier(
    mixers: Sequence[Cell | Layer],
    num_features: int,
    num_classes: int,
    *,
    rate: float = 0.0,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """A stack of blocks between a linear map in and one out, with logits at every step.

        y = LN(block_n(… block_1(x W_in))) W_out

    Pool what it gives with `mean_valid` or `last_valid` for one label a sequence.

    Args:
        mixers: One cell or layer for each block.
        num_features: D of the blocks.
        num_classes: C.
        rate: Of dropout in the blocks.
        param_dtype: Of the parameters that are not the mixers'.

    Returns:
        The layer, `[..., T, D'] -> [..., T, C]`.

    Raises:
        TypeError: A mixer is neither a Cell nor a Layer, or a size is no int.
        ValueError: A size is below 1, or `rate` is not in [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.classifier([jr.lstm(16), jr.lstm(16)], num_features=8, num_classes=9)
        >>> params = layer.init(jax.random.key(0), 12)
        >>> logits = jr.mean_valid(jr.unroll(layer, params, jnp.ones((2, 29, 12))).outputs)
        >>> logits.shape
        (2, 9)
    """
    first = dense(num_features, param_dtype=param_dtype)
    return _stack(first, mixers, num_features, num_classes, rate, param_dtype)


@model_factory
def language_model(
    mixers: Sequence[Cell | Layer],
    num_features: int,
    num_tokens: int,
    *,
    rate: float = 0.0,
    param_dtype: Any = jnp.float32,
) -> Layer:
    """A stack of blocks from tokens to the logits of the next token.

        y = LN(block_n(… block_1(embed(x)))) W_out

    Args:
        mixers: One cell or layer for each block; all must be causal for it to stream.
        num_features: D of the blocks.
        num_tokens: V, of inputs and outputs; `init(key, num_tokens)` makes the table.
        rate: Of dropout in the blocks.
        param_dtype: Of the parameters that are not the mixers'.

    Returns:
        The layer, ints `[..., T] -> [..., T, V]`.

    Raises:
        TypeError: A mixer is neither a Cell nor a Layer, or a size is no int.
        ValueError: A size is below 1, or `rate` is not in [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.language_model([jr.gru(16)], num_features=8, num_tokens=50)
        >>> params = layer.init(jax.random.key(0), 50)
        >>> jr.unroll(layer, params, jnp.array([[3, 1, 4]])).outputs.shape
        (1, 3, 50)
    """
    first = embed(num_features, param_dtype=param_dtype)
    return _stack(first, mixers, num_features, num_tokens, rate, param_dtype)


def _stack(first, mixers, num_features, num_outputs, rate, param_dtype):
    blocks = [block(mixer, num_features, rate=rate, param_dtype=param_dtype) for mixer in mixers]
    norm = layer_norm(param_dtype=param_dtype)
    return serial(first, *blocks, norm, dense(num_outputs, param_dtype=param_dtype))
