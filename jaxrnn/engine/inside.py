"""What happens inside a layer: its carry after every step, and the layers that it is made of."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine.flags import check_keeps_steps, outputs_as_steps
from jaxrnn.engine.keys import fold_in
from jaxrnn.types import Carry, Inside, Key, Layer, Params, Rollout, Steps


def look_inside(layer: Layer, params: Params, carry: Carry, steps: Steps, key: Key) -> Inside:
    """Runs a layer once, with a way to see its carries and the layers inside of it."""

    def carries():
        if not jax.tree.leaves(carry):
            return carry
        if not layer.causal:
            raise ValueError(
                f"model must be causal or say what is inside of it, got {layer!r}, which has no "
                "carry between steps."
            )
        return step_by_step(layer, params, carry, steps, key).outputs[1]

    if layer.inside is None:
        inside = Inside(layer.unroll(params, carry, steps, key), carries)
    else:
        inside = layer.inside(params, carry, steps, key)
    return inside._replace(mask=outputs_as_steps(layer, inside.rollout, steps).mask)


def rollout_of(inside: Callable[..., Inside]) -> Callable[..., Rollout]:
    """The `unroll` of a layer that has an `inside`."""
    return lambda params, carry, steps, key: inside(params, carry, steps, key).rollout


def map_runs(function: Callable[[Inside], Any], runs: Any) -> Any:
    """A tree like the `layers` of an `Inside`, with `function(run)` for every run."""
    return jax.tree.map(function, runs, is_leaf=lambda node: isinstance(node, Inside))


def step_by_step(layer: Layer, params: Params, carry: Carry, steps: Steps, key: Key) -> Rollout:
    """Runs a layer on one step after another, with outputs `(y, carry)` of every step.

    Each step has a key of its own, so what a layer draws for a whole sequence is drawn for every
    step.
    """

    def advance(carry, inputs):
        index, one = inputs
        rollout = one_step(layer, params, carry, one, fold_in(key, index))
        return rollout.carry, (rollout.outputs, rollout.carry)

    num_steps = jax.tree.leaves(steps.xs)[0].shape[0]
    return Rollout(*lax.scan(advance, carry, (jnp.arange(num_steps), steps)))


def one_step(layer: Layer, params: Params, carry: Carry, one: Any, key: Key) -> Rollout:
    """Runs a layer on one step, without a time axis in `one` and in the outputs."""
    one = jax.tree.map(lambda leaf: leaf[None], one)
    rollout = layer.unroll(params, carry, one, key)
    check_keeps_steps(layer, rollout, 1, "to be run step by step")
    return rollout._replace(outputs=jax.tree.map(lambda leaf: leaf[0], rollout.outputs))
