"""Layers side by side."""

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.flags import side_by_side
from jaxrnn.engine.inside import look_inside, rollout_of
from jaxrnn.engine.keys import split_key
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.engine.starts import parts_of
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Inside, Layer, Rollout


@model_factory
def concatenate(*layers: Cell | Layer) -> Layer:
    """Runs layers side by side on the same inputs and joins their features.

        y = [layer₁(x), …, layerₙ(x)]

    Every layer gets the mask, the resets, and a key of its own.

    Args:
        *layers: at least one cell or layer, all of which take the same inputs.

    Returns:
        The layer, `[..., D] -> [..., C₁ + … + Cₙ]`. Its params, carry and info are tuples with one
        entry for each layer; it is causal when all of them are. Where they change the steps they
        must all return the same mask; outputs are NaN where it differs.

    Raises:
        TypeError: One of them is neither a Cell nor a Layer.
        ValueError: No layer is given, or they take different inputs.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.concatenate(jr.ema(0.5), jr.ema(0.9), jr.dense(3))
        >>> params = layer.init(jax.random.key(0), 2)
        >>> jr.unroll(layer, params, jnp.ones((4, 5, 2))).outputs.shape
        (4, 5, 7)
    """
    if not layers:
        raise ValueError("layers must hold at least one cell or layer, got none.")
    branches = [as_layer(layer, f"layers[{index}]") for index, layer in enumerate(layers)]
    for index, branch in enumerate(branches):
        if branch.num_feature_axes != branches[0].num_feature_axes:
            raise ValueError(
                f"layers[{index}] must take the same inputs as layers[0], got num_feature_axes "
                f"{branch.num_feature_axes} for {branches[0].num_feature_axes}."
            )

    def init(key, num_inputs):
        keys = jax.random.split(key, len(branches))
        pairs = zip(branches, keys, strict=True)
        return tuple(branch.init(branch_key, num_inputs) for branch, branch_key in pairs)

    def initial_carry(params, batch_shape=()):
        pairs = zip(branches, params, strict=True)
        return tuple(branch.initial_carry(own, batch_shape) for branch, own in pairs)

    def inside(params, carry, steps, key):
        keys = split_key(key, len(branches))
        runs = [
            look_inside(branch, branch_params, branch_carry, steps, branch_key)
            for branch, branch_params, branch_carry, branch_key in zip(
                branches, params, parts_of(carry), keys, strict=True
            )
        ]
        rollouts = [run.rollout for run in runs]
        flags, outputs = side_by_side(branches, rollouts, steps)
        for branch, ys in zip(branches, outputs, strict=True):
            checks.one_array(ys, f"outputs of {branch!r}")
        carries, _, infos, _ = zip(*rollouts, strict=True)
        rollout = Rollout(carries, jnp.concatenate(outputs, axis=-1), infos, flags)
        return Inside(rollout, lambda: tuple(run.carries() for run in runs), lambda: tuple(runs))

    return Layer(
        init=init,
        initial_carry=initial_carry,
        unroll=rollout_of(inside),
        num_outputs=lambda num_inputs: sum(branch.num_outputs(num_inputs) for branch in branches),
        causal=all(branch.causal for branch in branches),
        num_feature_axes=branches[0].num_feature_axes,
        roles=tuple(branch.roles for branch in branches),
        inside=inside,
    )
