"""`unroll`, `step` and `carries`.

Arguments are checked, masked inputs zeroed and time moved to axis 0 here, once.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import Call, check_model, compiled
from jaxrnn.engine.flags import check_keeps_steps, outputs_as_steps
from jaxrnn.engine.inside import look_inside
from jaxrnn.engine.keys import checked_key
from jaxrnn.engine.masking import as_mask, zero_masked
from jaxrnn.engine.parameters import check_params, width_of
from jaxrnn.engine.recurrent import as_layer, recurrent
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.started_run import check_starts_suffice, unroll_started
from jaxrnn.engine.time import backwards, time_back, time_first
from jaxrnn.types import (
    Carry,
    Cell,
    Evaluator,
    Key,
    Layer,
    Mask,
    Model,
    Params,
    Reset,
    Rollout,
    Steps,
)


def unroll(
    model: Model,
    params: Params,
    xs: Any,
    *,
    carry: Carry = None,
    starts: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    reverse: bool = False,
    time_major: bool = False,
    evaluator: Evaluator | None = None,
    key: Key = None,
) -> Rollout:
    """Runs a cell or a layer over sequences.

        h' = rₜ ? initial_carry : hₜ₋₁,  hₜ = mₜ ? advance(h', zₜ) : h',  yₜ = mₜ ? emit(hₜ, xₜ) : 0

    Masked inputs are replaced by zero before anything reads them, so NaN in padding reaches no
    value and no gradient.

    Args:
        model: the cell or layer to run.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]` with any number of leading axes.
        carry: the carry before the first step that is read, leaves `[..., H]`; None is the initial
            carry. A layer that reads from both ends has one for each, such as
            `Directions(forward, backward)`, whose `backward` comes before the last step.
        starts: a carry for each sequence of a row, leaves `[..., S, H]`: the sequence that the k-th
            reset begins starts from entry k instead of the initial carry, from whichever end it is
            read. Entries that no reset takes are not read. `carry` is what the row begins with: the
            steps before the first reset, or read backwards those after the last one; None is the
            start of their sequence, and the initial carry before the first reset.
        mask: `[..., T]`, True = real (bool, or 0 and 1). None: all steps are real.
        reset: `[..., T]`, True = x_t starts a new sequence. None: no step does.
        reverse: whether the sequence is read from its end; outputs keep the order of `xs`.
        time_major: whether xs, mask, reset and outputs are `[T, ..., D]` and `[T, ...]`.
        evaluator: how a cell is evaluated; None is `auto()`. A layer has its own.
        key: randomness; None is the deterministic model.

    Returns:
        Rollout with the carry after the last step `[..., H]`, the outputs `[..., T, H]` in the
        dtype of `xs` where that is real and floating (zero on masked steps), `info`, which
        says how the model was evaluated, and `flags`: None, or the mask and the resets of the
        outputs where a layer such as `subsample` changes the steps.

    Raises:
        TypeError: An argument has the wrong type, tree structure or dtype.
        ValueError: Shapes disagree, flags are not 0 or 1, a layer is given an evaluator, starts
            are given without a reset or to a model that cannot take them (one without memory, or
            with a source in its carry), a row has more resets than starts, or there are flags and
            a layer changes the number of steps and returns none. Under `jit`, which cannot raise
            for missing starts, sequences without one and the carry of their row are NaN.

    Stored carries of reinforcement learning, and windows of packed streams that are cut for
    truncated backpropagation, are starts: each sequence of a row goes on from its own carry.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.lstm(8)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> mask = jr.mask_from_lengths(jnp.array([5, 2]), 5)
        >>> rollout = jr.unroll(cell, params, jnp.ones((2, 5, 3)), mask=mask)
        >>> rollout.outputs.shape, rollout.carry.h.shape
        ((2, 5, 8), (2, 8))

        Three episodes in a row, each from the carry that was stored when it was collected:

        >>> stored = jax.tree.map(jnp.ones_like, cell.initial_carry(params, (3,)))
        >>> reset = jnp.array([True, False, True, True, False])
        >>> jr.unroll(cell, params, jnp.ones((5, 3)), starts=stored, reset=reset).outputs.shape
        (5, 8)
    """
    call = Call.checked(model, xs, mask, reset, time_major)
    checks.array_leaves(carry, "carry")
    if starts is not None:
        checks.array_leaves(starts, "starts")
        check_starts_suffice(starts, call.steps.reset, call.time_axis)
    if evaluator is not None:
        if isinstance(model, Layer):
            raise ValueError(
                "evaluator must be None for a layer, which has its own: give it to the factory, "
                f"such as recurrent(cell, evaluator=...); got {evaluator!r}."
            )
        checks.evaluator(evaluator, "evaluator")
    reverse, key = checks.boolean(reverse, "reverse"), checked_key(key)
    check_params(model, params, width_of(model, call.steps.xs))
    arrays = params, carry, starts, call.steps, key
    return compiled(_run, (model, evaluator, reverse, call.time_axis), arrays)(*arrays)


def step(
    model: Model,
    params: Params,
    carry: Carry,
    x: Any,
    *,
    mask: Mask = None,
    reset: Reset = None,
    key: Key = None,
) -> tuple[Carry, Any]:
    """Runs one step: `unroll` with T = 1.

    Args:
        model: the cell or layer to run; a layer must be causal.
        params: its parameters.
        carry: the carry before the step, leaves `[..., H]`; None is the initial carry.
        x: the input, a tree of arrays `[..., D]`.
        mask: `[...]`; False keeps the carry and gives zeros.
        reset: `[...]`; True starts a new sequence before x is read.
        key: randomness; None is the deterministic model.

    Returns:
        `(carry, y)`, y `[..., H]`.

    Raises:
        ValueError: The layer is not causal or changes the steps, or shapes disagree.
        TypeError: An argument has the wrong type, tree structure or dtype.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> carry, y = jr.step(cell, params, cell.initial_carry(params, (2,)), jnp.ones((2, 3)))
        >>> y.shape
        (2, 4)
    """
    check_model(model)
    if not getattr(model, "causal", True):
        raise ValueError(
            f"model must be causal to stream, got {model!r}, whose outputs depend on later steps."
        )
    x = checks.arrays(x, "x")
    leading = checks.leading_shape(x, model.num_feature_axes, "x", has_time=False)
    rollout = unroll(
        model,
        params,
        jax.tree.map(lambda leaf: leaf[None], x),
        carry=carry,
        mask=None if mask is None else as_mask(mask, leading)[None],
        reset=None if reset is None else as_mask(reset, leading, "reset")[None],
        time_major=True,
        key=key,
    )
    if isinstance(model, Layer):
        check_keeps_steps(model, rollout, 1, "to be run by step")
    return rollout.carry, jax.tree.map(lambda leaf: leaf[0], rollout.outputs)


def carries(
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
) -> Carry:
    """The carry after every step, for diagnostics.

    A layer that reads from both ends has two, each as its direction reads: in that of the backward
    one the entry of step t has seen the steps from the end of the sequence down to t.

    Args:
        model: the cell or layer to run; causal, or made of such layers by `bidirectional`, `serial`
            and the like.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`.
        carry: the carry before the first step that is read; None is the initial carry.
        mask: `[..., T]`; a masked step repeats the carry before it.
        reset: `[..., T]`.
        reverse: whether the sequence is read from its end; the result keeps the order of `xs`.
        time_major: whether xs, mask, reset and the result are `[T, ...]`.
        key: randomness, drawn as in `unroll`. A layer that is neither made of a cell nor of other
            layers is run step by step with a key for each.

    Returns:
        A tree like the carry, leaves `[..., T, H]`, in the order of `xs`.

    Raises:
        ValueError: The layer is not causal and has no `inside`, or shapes disagree.
        TypeError: An argument has the wrong type, tree structure or dtype.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.lstm(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.carries(cell, params, jnp.ones((2, 5, 3))).c.shape
        (2, 5, 4)
    """
    call = Call.checked(model, xs, mask, reset, time_major)
    reverse, key = checks.boolean(reverse, "reverse"), checked_key(key)
    check_params(model, params, width_of(model, call.steps.xs))
    checks.array_leaves(carry, "carry")
    arrays = params, carry, call.steps, key
    return compiled(_run_carries, (model, reverse, call.time_axis), arrays)(*arrays)


def _run(model, evaluator, reverse, time_axis, params, carry, starts, steps, key):
    layer = recurrent(model, evaluator) if isinstance(model, Cell) else model
    layer = backwards(layer) if reverse else layer
    steps = _without_padding(time_first(steps, time_axis))
    if starts is None:
        rollout = layer.unroll(params, _start(layer, params, carry, steps, key), steps, key)
    else:
        rollout = unroll_started(layer, params, carry, starts, steps, key)
    outputs = time_back(finished_outputs(layer, rollout, steps).xs, time_axis)
    return rollout._replace(outputs=outputs, flags=time_back(rollout.flags, time_axis))


def finished_outputs(layer: Layer, rollout: Rollout, steps: Steps) -> Steps:
    """The outputs of a run with their flags, in the dtype of xs and zero on masked steps.

    Only at its end: between the layers of a stack activations keep the width of the recurrence.
    """
    made = outputs_as_steps(layer, rollout, steps)
    return made._replace(xs=finished(made.xs, made.mask, steps.xs))


def finished(outputs: Any, mask: Mask, xs: Any) -> Any:
    """Outputs in the dtype of the inputs `xs` of a run, and zero where `mask` is False."""
    dtype = _real_dtype(xs)
    return zero_masked(mask, jax.tree.map(lambda leaf: _cast_real(leaf, dtype), outputs))


def _run_carries(model, reverse, time_axis, params, carry, steps, key):
    layer = backwards(as_layer(model)) if reverse else as_layer(model)
    steps = _without_padding(time_first(steps, time_axis))
    carry = _start(layer, params, carry, steps, key)
    return time_back(look_inside(layer, params, carry, steps, key).carries(), time_axis)


def _start(layer, params, carry, steps, key):
    """The carry before the first step: the given one, checked, or the initial one."""
    batch_shape = checks.leading_shape(steps.xs, layer.num_feature_axes)[1:]
    if carry is None:
        carry = layer.initial_carry(params, batch_shape)
    else:
        # Its shapes alone: what a learned initial carry costs is not paid where it is not used.
        expected = jax.eval_shape(lambda params: layer.initial_carry(params, batch_shape), params)
        checks.same_tree(carry, expected, "carry")
    return varying_like(carry, (params, steps, key))


def _without_padding(steps):
    return steps._replace(xs=zero_masked(steps.mask, steps.xs))


def _real_dtype(xs):
    """The dtype of the outputs: that of the real floating leaves of xs, or None without any."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(xs)]
    dtypes = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
    return functools.reduce(jnp.promote_types, dtypes) if dtypes else None


def _cast_real(leaf, dtype):
    if dtype is None or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return leaf.astype(dtype)
