"""Layers one behind another."""

import jax

from jaxrnn.engine.keys import split_key
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Layer, Rollout


@model_factory
def serial(*layers: Cell | Layer) -> Layer:
    """Runs layers one behind another, each over the whole sequence.

        y⁰ = x,  yⁱ = layerᵢ(yⁱ⁻¹),  y = yⁿ

    Masks and resets reach every layer, and every layer draws from a key of its own. Masked outputs
    are not set to zero between layers, where no layer reads them.

    Args:
        *layers: Cells and layers, the first one nearest to x; at least one.

    Returns:
        The layer. Its params, carry and info are tuples with one entry for each layer; it is
        causal when all of them are.

    Raises:
        TypeError: One is neither a Cell nor a Layer.
        ValueError: There is none.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.serial(jr.embed(8), jr.lstm(16), jr.dropout(0.1), jr.dense(4))
        >>> params = layer.init(jax.random.key(0), 100)
        >>> jr.unroll(layer, params, jnp.array([[3, 14, 15], [92, 65, 35]])).outputs.shape
        (2, 3, 4)
    """
    if not layers:
        raise ValueError("layers must hold at least one cell or layer, got none.")
    parts = [as_layer(layer, f"layers[{index}]") for index, layer in enumerate(layers)]

    def each(params):
        if len(params) != len(parts):
            raise ValueError(
                f"params must have one entry for each of the {len(parts)} layers, "
                f"got {len(params)}."
            )
        return zip(parts, params, strict=True)

    def init(key, num_inputs):
        params = []
        for layer, layer_key in zip(parts, jax.random.split(key, len(parts)), strict=True):
            params.append(layer.init(layer_key, num_inputs))
            num_inputs = layer.num_outputs(num_inputs)
        return tuple(params)

    def initial_carry(params, batch_shape=()):
        return tuple(layer.initial_carry(own, batch_shape) for layer, own in each(params))

    def unroll(params, carry, steps, key):
        rollouts = []
        keys = split_key(key, len(parts))
        for (layer, own), own_carry, own_key in zip(each(params), carry, keys, strict=True):
            rollouts.append(layer.unroll(own, own_carry, steps, own_key))
            steps = steps._replace(xs=rollouts[-1].outputs)
        carries, _, infos = zip(*rollouts, strict=True)
        return Rollout(carries, steps.xs, infos)

    def num_outputs(num_inputs):
        for layer in parts:
            num_inputs = layer.num_outputs(num_inputs)
        return num_inputs

    return Layer(
        init=init,
        initial_carry=initial_carry,
        unroll=unroll,
        num_outputs=num_outputs,
        causal=all(layer.causal for layer in parts),
        num_feature_axes=parts[0].num_feature_axes,
        roles=tuple(layer.roles for layer in parts),
    )
