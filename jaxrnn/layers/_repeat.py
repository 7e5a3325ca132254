"""Equal layers one after another, compiled once."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.flags import check_keeps_steps
from jaxrnn.engine.inside import look_inside
from jaxrnn.engine.keys import MissingKey, split_key
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.starts import Started
from jaxrnn.factories import model_factory
from jaxrnn.types import Carry, Cell, Inside, Layer, Rollout


@model_factory
def repeat(layer: Cell | Layer, num_layers: int) -> Layer:
    """Runs equal layers one after another, as a loop over their stacked parameters.

        y⁰ = x,  yⁱ = layer(paramsᵢ, yⁱ⁻¹),  y = yⁿ

    It computes what `serial` of n such layers does, with a program whose size does not depend on
    n. Every layer gets the mask, the resets, and a key of its own.

    Args:
        layer: a cell or a layer that keeps the width and the steps, such as `block`.
        num_layers: n.

    Returns:
        The layer, `[..., D] -> [..., D]`. Leaves of its params and info are stacked `[n, ...]` and
        those of its carry `[..., n, H]`, after the batch axes. It is causal when `layer` is. It
        raises ValueError in `init`, `num_outputs` and while tracing when `layer` changes the width
        or the steps, and TypeError, while tracing, when x is not one array.

    Raises:
        TypeError: `layer` is neither a Cell nor a Layer, or `num_layers` is not an int.
        ValueError: `num_layers` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.repeat(jr.block(jr.gru(8), 4), 12)
        >>> params = layer.init(jax.random.key(0), 4)
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 5, 4)))
        >>> jax.tree.leaves(rollout.carry)[0].shape, rollout.outputs.shape
        ((2, 12, 8), (2, 5, 4))
    """
    inner = as_layer(layer, "layer")
    checks.positive(num_layers, "num_layers")

    def num_outputs(num_inputs):
        width = inner.num_outputs(num_inputs)
        if width != num_inputs:
            raise ValueError(
                "layer must keep the width to be repeated, "
                f"got the width {width} for inputs of width {num_inputs}."
            )
        return width

    def init(key, num_inputs):
        num_outputs(num_inputs)
        return jax.vmap(lambda key: inner.init(key, num_inputs))(jax.random.split(key, num_layers))

    def initial_carry(params, batch_shape=()):
        def of_one(params, number):
            del number  # It gives the number of layers where there are no parameters.
            return inner.initial_carry(params, batch_shape)

        return jax.vmap(of_one, out_axes=len(batch_shape))(params, jnp.arange(num_layers))

    def unroll(params, carry, steps, key):
        checks.one_array(steps.xs, "xs")
        num_batch_axes = len(checks.leading_shape(steps.xs, inner.num_feature_axes)) - 1
        is_drawn = not (key is None or isinstance(key, MissingKey))
        keys = jnp.stack(split_key(key, num_layers)) if is_drawn else None

        def run(xs, inputs):
            params, carry, own_key = inputs
            own_key = own_key if is_drawn else key
            rollout = inner.unroll(params, carry, steps._replace(xs=xs), own_key)
            _check_repeatable(inner, rollout, xs)
            return rollout

        def advance(xs, inputs):
            rollout = run(xs, inputs)
            return rollout.outputs, (rollout.carry, rollout.info)

        carries = _layers_first(carry, num_batch_axes)
        inputs = params, carries, keys
        first = jax.tree.map(lambda leaf: leaf[0], inputs)
        # Outputs may be wider than bfloat16 inputs, and the carry of a scan keeps its dtype.
        dtype = jax.eval_shape(run, steps.xs, first).outputs.dtype
        xs = varying_like(steps.xs.astype(dtype), (params, carry, steps, key))
        ys, (carries, info) = lax.scan(advance, xs, inputs, length=num_layers)
        carry = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, num_batch_axes), carries)
        return Rollout(carry, ys, info)

    # Only who looks inside needs the layers one by one, in a program that grows with their number.
    def inside(params, carry, steps, key):
        rollout = unroll(params, carry, steps, key)
        num_batch_axes = len(checks.leading_shape(steps.xs, inner.num_feature_axes)) - 1
        layers = params, _layers_first(carry, num_batch_axes)

        def runs():
            xs, made = steps.xs.astype(rollout.outputs.dtype), []
            for number, own_key in enumerate(split_key(key, num_layers)):
                own_params, own_carry = jax.tree.map(lambda leaf, i=number: leaf[i], layers)
                own_steps = steps._replace(xs=xs)
                made.append(look_inside(inner, own_params, own_carry, own_steps, own_key))
                xs = made[-1].rollout.outputs
            return tuple(made)

        def carries():
            each = [run.carries() for run in runs()]
            return jax.tree.map(lambda *leaves: jnp.stack(leaves, num_batch_axes + 1), *each)

        return Inside(rollout, carries, runs)

    return inner._replace(
        init=init,
        initial_carry=initial_carry,
        unroll=unroll,
        num_outputs=num_outputs,
        inside=inside,
    )


def _layers_first(carry: Carry, num_batch_axes: int) -> Carry:
    """The carry, and the starts of a `Started`, with the axis of the layers in front."""
    if not isinstance(carry, Started):
        return _to_front(carry, num_batch_axes)
    # Starts have an axis for the sequences of a row before those of the batch.
    return Started(
        _to_front(carry.carry, num_batch_axes), _to_front(carry.starts, num_batch_axes + 1)
    )


def _to_front(tree: Any, axis: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), tree)


def _check_repeatable(layer: Layer, rollout: Rollout, xs: Any) -> None:
    checks.one_array(rollout.outputs, f"outputs of {layer!r}")
    check_keeps_steps(layer, rollout, xs.shape[0], "to be repeated")
    if rollout.outputs.shape != xs.shape:
        raise ValueError(
            "layer must keep the shape to be repeated, "
            f"got outputs {rollout.outputs.shape} for xs {xs.shape}."
        )
