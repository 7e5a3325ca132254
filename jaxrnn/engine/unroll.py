"""The engine's door: every argument is checked, padded and turned here, once."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import Call, jit_by_record, naming_params
from jaxrnn.engine.keys import checked_key, fold_in
from jaxrnn.engine.masking import as_mask, zero_masked
from jaxrnn.engine.recurrent import recurrent
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.time import in_reverse
from jaxrnn.types import Cell, Evaluator, Layer, Rollout


def unroll(
    cell_or_layer: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    reverse: bool = False,
    time_major: bool = False,
    evaluator: Evaluator | None = None,
    key: Any = None,
) -> Rollout:
    """Runs a cell or a layer over sequences.

        h' = rₜ ? initial_carry : hₜ₋₁,  hₜ = mₜ ? advance(h', zₜ) : h',  yₜ = mₜ ? emit(hₜ, xₜ) : 0

    Masked inputs are replaced by zero before anything reads them, so NaN in padding reaches no
    value and no gradient.

    Args:
        cell_or_layer: What to run.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`, any number of leading axes.
        carry: The carry to start from, leaves `[..., H]`; None is the initial carry.
        mask: `[..., T]`, True = real (bool, or 0 and 1). None: all steps are real.
        reset: `[..., T]`, True = x_t starts a new sequence. None: no step does.
        reverse: Read the sequence from its end; outputs keep the order of `xs`.
        time_major: xs, mask, reset and outputs are `[T, ..., D]` and `[T, ...]`.
        evaluator: How a cell is evaluated; None is `auto()`. A layer has its own. For forward mode
            (`jax.jvp`, `jax.jacfwd`) give `sequential(derivative="autodiff")`.
        key: Randomness; None is the deterministic model.

    Returns:
        Rollout with the carry after the last step `[..., H]`, the outputs `[..., T, H]` in the
        dtype of `xs` where that is real and floating (zero on masked steps), and `info` of the
        path that ran.

    Raises:
        TypeError: Something is of another kind, class of tree or dtype than expected.
        ValueError: Shapes disagree, flags are not 0 or 1, a layer is given an evaluator, or a
            layer that is not causal is given a carry.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.lstm(8)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> mask = jr.mask_from_lengths(jnp.array([5, 2]), 5)
        >>> rollout = jr.unroll(cell, params, jnp.ones((2, 5, 3)), mask=mask)
        >>> rollout.outputs.shape, rollout.carry.h.shape
        ((2, 5, 8), (2, 8))
    """
    call = Call.checked(cell_or_layer, xs, mask, reset, time_major)
    if carry is not None and not getattr(cell_or_layer, "causal", True):
        raise ValueError("carry must be None for a layer that is not causal; it cannot stream.")
    if evaluator is not None:
        if isinstance(cell_or_layer, Layer):
            raise ValueError("evaluator must be None for a layer: give it to recurrent(cell, ...).")
        checks.evaluator(evaluator, "evaluator")
    reverse, key = checks.boolean(reverse, "reverse"), checked_key(key)
    options = evaluator, reverse, call.time_axis
    with naming_params(cell_or_layer, params, call.arrays[0]):
        return _run(cell_or_layer, *options, params, carry, *call.arrays, key)


def step(
    cell_or_layer: Cell | Layer,
    params: Any,
    carry: Any,
    x: Any,
    *,
    mask: Any = None,
    reset: Any = None,
    key: Any = None,
) -> tuple[Any, Any]:
    """Runs one step: `unroll` with T = 1.

    Args:
        cell_or_layer: What to run; a layer must be causal.
        params: Its parameters.
        carry: The carry before the step, leaves `[..., H]`; None is the initial carry.
        x: A tree of arrays `[..., D]`.
        mask: `[...]`; False keeps the carry and gives zeros.
        reset: `[...]`; True starts a new sequence before x is read.
        key: Randomness; None is the deterministic model.

    Returns:
        `(carry, y)`, y `[..., H]`.

    Raises:
        ValueError: The layer is not causal, or shapes disagree.
        TypeError: Something is of another kind, class of tree or dtype than expected.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.gru(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> carry, y = jr.step(cell, params, cell.initial_carry(params, (2,)), jnp.ones((2, 3)))
        >>> y.shape
        (2, 4)
    """
    if not getattr(cell_or_layer, "causal", True):
        raise ValueError("cell_or_layer must be causal to stream; this layer sees the future.")
    x = checks.arrays(x, "x")
    leading = checks.leading_shape(x, cell_or_layer.num_feature_axes, "x", has_time=False)
    rollout = unroll(
        cell_or_layer,
        params,
        jax.tree.map(lambda leaf: leaf[None], x),
        carry=carry,
        mask=None if mask is None else as_mask(mask, leading)[None],
        reset=None if reset is None else as_mask(reset, leading, "reset")[None],
        time_major=True,
        key=key,
    )
    return rollout.carry, jax.tree.map(lambda leaf: leaf[0], rollout.outputs)


def carries(
    cell_or_layer: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
    key: Any = None,
) -> Any:
    """The carry after every step, for diagnostics.

    Args:
        cell_or_layer: What to run; a layer must be causal.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`; a masked step repeats the carry before it.
        reset: `[..., T]`.
        time_major: xs, mask, reset and the result are `[T, ...]`.
        key: Randomness. A cell's noise is that of `unroll`; a layer is run step by step with a
            key for each, so what it draws for a whole sequence is drawn for every step.

    Returns:
        A tree like the carry, leaves `[..., T, H]`.

    Raises:
        ValueError: The layer is not causal, or shapes disagree.
        TypeError: Something is of another kind, class of tree or dtype than expected.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.lstm(4)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.carries(cell, params, jnp.ones((2, 5, 3))).c.shape
        (2, 5, 4)
    """
    if not getattr(cell_or_layer, "causal", True):
        raise ValueError("cell_or_layer must be causal; this layer has no carry between steps.")
    call = Call.checked(cell_or_layer, xs, mask, reset, time_major)
    key = checked_key(key)
    with naming_params(cell_or_layer, params, call.arrays[0]):
        return _run_carries(cell_or_layer, call.time_axis, params, carry, *call.arrays, key)


@jit_by_record(3)
def _run(record, evaluator, reverse, time_axis, params, carry, xs, mask, reset, key):
    layer = recurrent(record, evaluator) if isinstance(record, Cell) else record
    xs, mask, reset = _time_first((xs, mask, reset), time_axis)
    dtype = _real_dtype(xs)
    rollout = _roll(layer, params, carry, xs, mask, reset, reverse, key)
    outputs = jax.tree.map(lambda leaf: _cast_real(leaf, dtype), rollout.outputs)
    return rollout._replace(outputs=_time_back(zero_masked(mask, outputs), time_axis))


@jit_by_record(1)
def _run_carries(record, time_axis, params, carry, xs, mask, reset, key):
    if isinstance(record, Cell):
        layer = recurrent(record._replace(emit=_emit_carry))
    else:
        layer = _emitting_carry(record)
    xs, mask, reset = _time_first((xs, mask, reset), time_axis)
    rollout = _roll(layer, params, carry, xs, mask, reset, False, key)
    return _time_back(rollout.outputs, time_axis)


def _roll(layer, params, carry, xs, mask, reset, reverse, key):
    """Runs a layer time first, from the initial carry when there is none."""
    batch_shape = checks.leading_shape(xs, layer.num_feature_axes)[1:]
    if carry is None:
        carry = layer.initial_carry(params, batch_shape)
    else:
        expected = jax.eval_shape(lambda params: layer.initial_carry(params, batch_shape), params)
        checks.same_tree(carry, expected, "carry")
    carry = varying_like(carry, (params, xs, mask, reset, key))
    xs = zero_masked(mask, xs)

    def run(xs, mask, reset):
        return layer.unroll(params, carry, xs, mask, reset, key)

    return in_reverse(run, xs, mask, reset) if reverse else run(xs, mask, reset)


def _emit_carry(params, carry, x):
    del params, x
    return carry


def _emitting_carry(layer: Layer) -> Layer:
    """The layer run step by step, with the carry after each step as its output."""

    def unroll(params, carry, xs, mask, reset, key):
        def step(carry, inputs):
            index, *arrays = inputs
            step_key = fold_in(key, index)
            x, one_mask, one_reset = jax.tree.map(lambda leaf: leaf[None], arrays)
            rollout = layer.unroll(params, carry, x, one_mask, one_reset, step_key)
            return rollout.carry, rollout.carry

        num_steps = jax.tree.leaves(xs)[0].shape[0]
        carry, outputs = lax.scan(step, carry, (jnp.arange(num_steps), xs, mask, reset))
        return Rollout(carry, outputs)

    return layer._replace(unroll=unroll)


def _time_first(tree, time_axis):
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, time_axis, 0), tree)


def _time_back(tree, time_axis):
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, time_axis), tree)


def _real_dtype(xs):
    """The dtype outputs come back in: that of the real floating leaves of xs, if there are any."""
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(xs)]
    dtypes = [dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)]
    return functools.reduce(jnp.promote_types, dtypes) if dtypes else None


def _cast_real(leaf, dtype):
    if dtype is None or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return leaf.astype(dtype)
