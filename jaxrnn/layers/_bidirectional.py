"""A sequence read from both ends."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine.flags import side_by_side
from jaxrnn.engine.inside import look_inside, rollout_of
from jaxrnn.engine.keys import split_key
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.engine.starts import parts_of
from jaxrnn.engine.time import backwards
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Inside, Layer, Rollout

Merge = Callable[[Any, Any], Any]


class Directions(NamedTuple):
    """Params, carry or info of both directions."""

    forward: Any
    backward: Any


@model_factory
def bidirectional(
    forward: Cell | Layer, backward: Cell | Layer | None = None, merge: str | Merge = "concat"
) -> Layer:
    """Reads the sequence from its start and from its end, and merges step by step.

        y = merge(forward(x), flip(backward(flip(x))))

    Schuster and Paliwal 1997. Reading backwards starts at the last real step of each sequence,
    wherever padding and resets are, so a row gives what its sequences give alone. The carry that
    `backward` is given comes before that step, and the one that it returns after the first step;
    `carry` and `starts` of `unroll` are `Directions`.

    Args:
        forward: a cell or a causal layer.
        backward: a cell or a causal layer, given in its forward form: `bidirectional` reverses
            it. None is the architecture of `forward` with parameters of its own.
        merge: "concat" (along the features), "sum", "mean", or a function of both outputs
            `(y_forward [..., H], y_backward [..., H']) -> y [..., C]`.

    Returns:
        The layer, not causal, `[..., D] -> [..., C]`; its params, carry and info are
        `Directions(forward, backward)`. With "sum" and "mean" it raises ValueError, in `init`,
        `num_outputs` and while tracing, when the widths differ. Where both directions change the
        steps they must return the same mask; outputs are NaN where it differs.

    Raises:
        TypeError: `forward` or `backward` is neither a Cell nor a Layer.
        ValueError: One is not causal, the two take different inputs, or `merge` is not one of the
            above.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.bidirectional(jr.lstm(4))
        >>> params = layer.init(jax.random.key(0), 3)
        >>> jr.unroll(layer, params, jnp.ones((2, 5, 3))).outputs.shape
        (2, 5, 8)
    """
    layers = Directions(
        _direction(forward, "forward"),
        _direction(forward if backward is None else backward, "backward"),
    )
    feature_axes = [layer.num_feature_axes for layer in layers]
    if feature_axes[0] != feature_axes[1]:
        raise ValueError(
            "backward must take the same inputs as forward, "
            f"got num_feature_axes {feature_axes[1]} for {feature_axes[0]}."
        )
    if not callable(merge) and merge not in tuple(_MERGES):
        raise ValueError(f"merge must be one of {tuple(_MERGES)} or a function, got {merge!r}.")
    reversed_backward = backwards(layers.backward)
    merge_fn = merge if callable(merge) else _MERGES[merge]

    def num_outputs(num_inputs):
        widths = (layer.num_outputs(num_inputs) for layer in layers)
        steps = (jax.ShapeDtypeStruct((1, width), jnp.float32) for width in widths)
        return jax.eval_shape(lambda *ys: _merged(merge_fn, *ys), *steps).shape[-1]

    def init(key, num_inputs):
        num_outputs(num_inputs)
        keys = jax.random.split(key)
        return Directions(
            layers.forward.init(keys[0], num_inputs), layers.backward.init(keys[1], num_inputs)
        )

    def initial_carry(params, batch_shape=()):
        return Directions(
            layers.forward.initial_carry(params.forward, batch_shape),
            layers.backward.initial_carry(params.backward, batch_shape),
        )

    def inside(params, carry, steps, key):
        keys = split_key(key, 2)
        forward_carry, backward_carry = parts_of(carry)
        runs = Directions(
            look_inside(layers.forward, params.forward, forward_carry, steps, keys[0]),
            look_inside(reversed_backward, params.backward, backward_carry, steps, keys[1]),
        )
        forward, backward = runs.forward.rollout, runs.backward.rollout
        flags, outputs = side_by_side(layers, (forward, backward), steps)
        rollout = Rollout(
            Directions(forward.carry, backward.carry),
            _merged(merge_fn, *outputs),
            Directions(forward.info, backward.info),
            flags,
        )
        return Inside(rollout, lambda: Directions(*(run.carries() for run in runs)), lambda: runs)

    return Layer(
        init=init,
        initial_carry=initial_carry,
        unroll=rollout_of(inside),
        num_outputs=num_outputs,
        causal=False,
        num_feature_axes=layers.forward.num_feature_axes,
        roles=Directions(layers.forward.roles, layers.backward.roles),
        inside=inside,
    )


def _direction(model, name):
    layer = as_layer(model, name)
    if not layer.causal:
        raise ValueError(f"{name} must be causal: bidirectional itself reverses the sequence.")
    return layer


def _merged(merge, forward, backward):
    ys = merge(forward, backward)
    leading = forward.shape[:-1]
    if getattr(ys, "shape", ())[:-1] != leading:
        raise ValueError(f"merge must return one array {leading} + (width,), got {ys}.")
    return ys


def _concat(forward, backward):
    return jnp.concatenate([forward, backward], axis=-1)


def _sum(forward, backward):
    if forward.shape != backward.shape:
        raise ValueError(
            'backward must have the width of forward for merge "sum" and "mean", '
            f"got {backward.shape[-1]} and {forward.shape[-1]}."
        )
    return forward + backward


def _mean(forward, backward):
    return _sum(forward, backward) / 2


_MERGES: dict[str, Merge] = {"concat": _concat, "sum": _sum, "mean": _mean}
