"""The outputs of the layers that a layer is made of."""

from typing import Any, NamedTuple

from jaxrnn.diagnostics._observe import observe
from jaxrnn.engine import checks
from jaxrnn.engine.inside import look_inside, map_runs
from jaxrnn.engine.time import backwards, time_back
from jaxrnn.engine.unroll import finished
from jaxrnn.types import Carry, Key, Mask, Model, Params, Reset


class LayerOutputs(NamedTuple):
    """`outputs [..., T, H]` of a layer, and `layers`, a `LayerOutputs` for each layer inside of it.

    `layers` is a tuple for `serial`, `residual`, `concatenate` and `repeat`, `Directions` for
    `bidirectional`, and `()` for a cell and for a layer that is made of no others.
    """

    outputs: Any
    layers: Any = ()


def layer_outputs(
    model: Model,
    params: Params,
    xs: Any,
    *,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    reverse: bool = False,
    time_major: bool = False,
    key: Key = None,
) -> LayerOutputs:
    """The outputs of a model and of every layer that it is made of, from one run.

        y⁰ = x,  yⁱ = layerᵢ(yⁱ⁻¹): all yⁱ, and those of the layers in layerᵢ

    The run is that of `unroll`: the same noise, outputs in the dtype of xs, zero on masked steps.

    Args:
        model: the cell or layer to run; it need not be causal.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`.
        carry, mask, reset, reverse, time_major, key: as in `unroll`.

    Returns:
        `LayerOutputs(outputs, layers)`, all outputs in the order of xs.

    Raises:
        ValueError: Shapes disagree.
        TypeError: An argument has the wrong type, tree structure or dtype.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.serial(jr.bidirectional(jr.gru(4)), jr.dense(2))
        >>> params = model.init(jax.random.key(0), 3)
        >>> run = jr.layer_outputs(model, params, jnp.ones((5, 3)))
        >>> run.outputs.shape, run.layers[0].outputs.shape
        ((5, 2), (5, 8))
        >>> run.layers[0].layers.forward.outputs.shape
        (5, 4)
    """
    reverse = checks.boolean(reverse, "reverse")
    made = observe(_outputs, (reverse,), model, params, xs, carry, mask, reset, time_major, key)
    if time_major:
        return made
    num_leading = len(checks.leading_shape(checks.arrays(xs, "xs"), model.num_feature_axes))
    return time_back(made, num_leading - 1)


def _outputs(run, reverse):
    layer = backwards(run.layer) if reverse else run.layer

    def outputs_of(inside):
        outputs = finished(inside.rollout.outputs, inside.mask, run.steps.xs)
        return LayerOutputs(outputs, map_runs(outputs_of, inside.layers()))

    return outputs_of(look_inside(layer, run.params, run.carry, run.steps, run.key))
