"""Layers one after another."""

import jax

from jaxrnn.engine.flags import outputs_as_steps
from jaxrnn.engine.inside import look_inside, rollout_of
from jaxrnn.engine.keys import split_key
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.engine.starts import parts_of
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Inside, Layer, Rollout


@model_factory
def serial(*layers: Cell | Layer) -> Layer:
    """Runs layers one after another, each over the whole sequence.

        y⁰ = x,  yⁱ = layerᵢ(yⁱ⁻¹),  y = yⁿ

    Every layer gets the mask and the resets, or those that the layer before it returned with its
    outputs, and a key of its own. Masked outputs are not set to zero between layers, since no
    layer reads them.

    Args:
        *layers: at least one cell or layer; the first one reads x.

    Returns:
        The layer. Its params, carry and info are tuples with one entry for each layer; it is
        causal when all of them are.

    Raises:
        TypeError: One of them is neither a Cell nor a Layer.
        ValueError: No layer is given.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.serial(jr.embed(8), jr.lstm(16), jr.dropout(0.1), jr.dense(4))
        >>> params = layer.init(jax.random.key(0), 100)
        >>> jr.unroll(layer, params, jnp.array([[3, 14, 15], [92, 65, 35]])).outputs.shape
        (2, 3, 4)
    """
    if not layers:
        raise ValueError("layers must hold at least one cell or layer, got none.")
    stack = [as_layer(layer, f"layers[{index}]") for index, layer in enumerate(layers)]

    def with_params(params):
        if len(params) != len(stack):
            raise ValueError(
                f"params must have one entry for each of the {len(stack)} layers, "
                f"got {len(params)}."
            )
        return zip(stack, params, strict=True)

    def init(key, num_inputs):
        params = []
        for layer, layer_key in zip(stack, jax.random.split(key, len(stack)), strict=True):
            params.append(layer.init(layer_key, num_inputs))
            num_inputs = layer.num_outputs(num_inputs)
        return tuple(params)

    def initial_carry(params, batch_shape=()):
        return tuple(
            layer.initial_carry(layer_params, batch_shape)
            for layer, layer_params in with_params(params)
        )

    def inside(params, carry, steps, key):
        runs, flags = [], None
        keys = split_key(key, len(stack))
        for (layer, layer_params), layer_carry, layer_key in zip(
            with_params(params), parts_of(carry), keys, strict=True
        ):
            runs.append(look_inside(layer, layer_params, layer_carry, steps, layer_key))
            rollout = runs[-1].rollout
            flags = flags if rollout.flags is None else rollout.flags
            steps = outputs_as_steps(layer, rollout, steps)
        carries, _, infos, _ = zip(*(run.rollout for run in runs), strict=True)
        rollout = Rollout(carries, steps.xs, infos, flags)
        return Inside(rollout, lambda: tuple(run.carries() for run in runs), lambda: tuple(runs))

    def num_outputs(num_inputs):
        for layer in stack:
            num_inputs = layer.num_outputs(num_inputs)
        return num_inputs

    return Layer(
        init=init,
        initial_carry=initial_carry,
        unroll=rollout_of(inside),
        num_outputs=num_outputs,
        causal=all(layer.causal for layer in stack),
        num_feature_axes=stack[0].num_feature_axes,
        roles=tuple(layer.roles for layer in stack),
        inside=inside,
    )
