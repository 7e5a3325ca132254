"""The run of a layer whose sequences start from carries of their own: `unroll(starts=)`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine import checks
from jaxrnn.engine.flags import outputs_as_steps
from jaxrnn.engine.masking import concrete
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.starts import Started, StartsRefused, first_carry, nan_without_start
from jaxrnn.engine.time import time_first
from jaxrnn.types import Carry, Key, Layer, Params, Reset, Rollout, Steps


def check_starts_suffice(starts: Any, reset: Reset, time_axis: int) -> None:
    """Raises unless there are resets, and where they are concrete a start for each of a row."""
    if reset is None:
        raise ValueError("reset must be given with starts: the k-th reset of a row takes start k.")
    axis, values, leaves = reset.ndim - 1, concrete(reset), jax.tree.leaves(starts)
    if values is None or not leaves or np.ndim(leaves[0]) <= axis:
        return
    num_starts, most = np.shape(leaves[0])[axis], values.sum(time_axis).max(initial=0)
    if most > num_starts:
        raise ValueError(
            f"starts must have an entry for every reset of a row, got {num_starts} entries for "
            f"{most} resets."
        )


def unroll_started(
    layer: Layer, params: Params, carry: Carry, starts: Carry, steps: Steps, key: Key
) -> Rollout:
    """The rollout of a layer with starts.

    Args:
        layer: the layer to run.
        params: its parameters.
        carry: the carry before the first step that is read, or None.
        starts: leaves `[*batch, S, ...]`.
        steps: the steps, time first.
        key: randomness.

    Returns:
        The rollout, NaN where a row has more resets than starts.

    Raises:
        TypeError: The carry or the starts have another structure or dtype than the model's.
        ValueError: They have other shapes, or the model cannot take starts.
    """
    begin = _started(layer, params, carry, starts, steps, key)
    rollout = _blaming_starts(layer, params, begin, steps, key)
    last = jax.tree.leaves(begin.starts)[0].shape[0] - 1
    number = jnp.cumsum(outputs_as_steps(layer, rollout, steps).reset, axis=0)
    # Compiled code cannot raise for a missing start.
    return rollout._replace(
        carry=nan_without_start(rollout.carry, steps.reset.sum(0), last),
        outputs=nan_without_start(rollout.outputs, number, last),
    )


def _started(layer, params, carry, starts, steps, key):
    """What the layer is given in place of its carry, its arguments checked."""
    batch_shape = checks.leading_shape(steps.xs, layer.num_feature_axes)[1:]
    initial = layer.initial_carry(params, batch_shape)
    if carry is not None:
        checks.same_tree(carry, initial, "carry")
    if not jax.tree.leaves(initial):
        raise StartsRefused("starts must be None for a model without memory, whose carry is empty.")
    axis, sizes = len(batch_shape), [leaf.shape for leaf in jax.tree.leaves(starts)]
    num_starts = sizes[0][axis] if sizes and len(sizes[0]) > axis else 1
    expected = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(
            (*batch_shape, num_starts, *leaf.shape[axis:]), leaf.dtype
        ),
        initial,
    )
    checks.same_tree(starts, expected, "starts")
    starts = jax.tree.map(
        lambda first, rest: jnp.concatenate([first[None], rest]), initial, time_first(starts, axis)
    )
    return varying_like(Started(carry, starts), (params, carry, starts, steps, key))


def _blaming_starts(layer, params, begin, steps, key):
    """The rollout; an error is blamed on the starts if the layer runs without them."""
    first = first_carry(begin)
    try:
        rollout = layer.unroll(params, begin, steps, key)
        checks.same_tree(rollout.carry, first, "the returned carry")
    except StartsRefused:
        raise
    # A layer of a user may fail on a `Started` in any way, with an assertion for example.
    except Exception as error:
        jax.eval_shape(lambda *args: layer.unroll(*args, key), params, first, steps)
        raise StartsRefused(
            "starts cannot be given to this model: a layer or an evaluator of it takes the carry "
            f"apart itself, where it has to use jaxrnn.engine.starts ({error!r})"
        ) from error
    return rollout
