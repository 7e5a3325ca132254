"""The mask and the resets of outputs, which differ from those of the inputs if a layer says so."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine.masking import select
from jaxrnn.types import Flags, Layer, Rollout, Steps


def outputs_as_steps(layer: Layer, rollout: Rollout, steps: Steps) -> Steps:
    """The outputs of a layer as the steps that the next one reads, with their flags.

    Args:
        layer: the layer that ran.
        rollout: what it returned.
        steps: what it read.

    Returns:
        The outputs, with the flags of the rollout, or with those of `steps` if it has none.

    Raises:
        ValueError: The flags do not fit the outputs, or the layer returned none although there are
            some and it changed the number of steps.
    """
    num_steps = _num_steps(rollout.outputs)
    if rollout.flags is None:
        came, is_flagged = _num_steps(steps.xs), steps[1:] != (None, None)
        if is_flagged and num_steps not in (None, came):
            raise ValueError(
                f"layer {layer!r} gave {num_steps} outputs for {came} steps: "
                "to run with a mask or resets it must return their Flags with its outputs."
            )
        return steps._replace(xs=rollout.outputs)
    _check_flags(layer, rollout, num_steps)
    return Steps(rollout.outputs, *rollout.flags)


def check_keeps_steps(layer: Layer, rollout: Rollout, num_steps: int, use: str) -> None:
    """Raises ValueError unless every output belongs to the input of its step.

    Args:
        layer: the layer that ran.
        rollout: what it returned.
        num_steps: T, how many steps it read.
        use: what it must keep its steps for, for the error.
    """
    made = _num_steps(rollout.outputs)
    if rollout.flags is not None or made not in (None, num_steps):
        raise ValueError(
            f"layer must keep the steps of its inputs {use}, got {layer!r}, which makes {made} "
            f"steps of {num_steps}{'' if rollout.flags is None else ', with flags of their own'}."
        )


def side_by_side(
    layers: Sequence[Layer], rollouts: Sequence[Rollout], steps: Steps
) -> tuple[Flags | None, list[Any]]:
    """The flags that layers share which read the same steps, and the outputs of each.

    Whether two masks are equal is not known while they are traced: where they differ outputs are
    NaN.

    Args:
        layers: the layers.
        rollouts: what they returned.
        steps: what they read.

    Returns:
        `(flags, outputs)`: the flags of the first layer, and the outputs of all.

    Raises:
        ValueError: The layers make different numbers of steps, or only some of them return flags.
    """
    outputs = [
        outputs_as_steps(layer, rollout, steps).xs
        for layer, rollout in zip(layers, rollouts, strict=True)
    ]
    flags = [rollout.flags for rollout in rollouts]
    made = _num_steps(outputs[0]), jax.tree.structure(flags[0])
    for layer, ys, own in zip(layers, outputs, flags, strict=True):
        if (_num_steps(ys), jax.tree.structure(own)) != made:
            raise ValueError(
                "layers side by side must make the same steps, got "
                f"{_num_steps(outputs[0])} of {layers[0]!r} ({_kind(flags[0])}) and "
                f"{_num_steps(ys)} of {layer!r} ({_kind(own)})."
            )
    masks = [own.mask for own in flags if own is not None and own.mask is not None]
    if not masks:
        return flags[0], outputs
    differ = jnp.stack([mask != masks[0] for mask in masks]).any(0)
    return flags[0], [select(differ, jax.tree.map(_nan_like, ys), ys) for ys in outputs]


def _num_steps(tree: Any) -> int | None:
    """T, the first axis of outputs; None without an array."""
    leaves = jax.tree.leaves(tree)
    return leaves[0].shape[0] if leaves else None


def _check_flags(layer, rollout, num_steps):
    if not isinstance(rollout.flags, Flags):
        raise TypeError(f"layer {layer!r} must return Flags or None, got {rollout.flags!r}.")
    for name, flag in rollout.flags._asdict().items():
        if flag is not None and (flag.dtype != bool or flag.shape[:1] != (num_steps,)):
            raise ValueError(
                f"layer {layer!r} must return the {name} of its {num_steps} outputs as bools "
                f"[T, *batch], got {flag.dtype} of the shape {flag.shape}."
            )


def _kind(flags):
    if flags is None:
        return "the flags of the inputs"
    own = [name for name, flag in flags._asdict().items() if flag is not None]
    return f"{' and '.join(own) or 'no flags'} of their own"


def _nan_like(leaf):
    return jnp.full_like(leaf, jnp.nan)
