"""How strongly outputs depend on inputs: the reach of a recurrence, measured directly."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.diagnostics._norms import flat_features, norm
from jaxrnn.diagnostics._observe import Run, observe
from jaxrnn.engine import checks
from jaxrnn.engine.flags import check_keeps_steps
from jaxrnn.engine.masking import zero_masked
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.types import Carry, Key, Mask, Model, Params, Reset


def input_sensitivity(
    model: Model,
    params: Params,
    xs: Any,
    *,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    time_major: bool = False,
    key: Key = None,
) -> jax.Array:
    """How strongly every output depends on every input.

        Sₜₖ = ‖∂yₜ / ∂xₖ‖  (Frobenius)

    A row shows what the output of step t has kept, a column how long input k has an effect. Masked
    steps have zero rows and columns, and nothing crosses a reset. For a layer that is not causal
    the upper triangle is not zero. The rows of a batch must not depend on each other. Costs T · H
    backward passes, H of them at a time; for long sequences use `last_output_sensitivity`.

    Args:
        model: the cell or layer to run.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`; those in floating leaves count. For tokens, run
            the layers after the embedding on its outputs.
        carry, mask, reset, time_major, key: as in `unroll`; the result is `[T, T, ...]` with
            time_major.

    Returns:
        `[..., T, T]`; a row is an output, a column an input.

    Raises:
        ValueError: Shapes disagree, or a layer that is not causal is given a carry.
        TypeError: No leaf of `xs` is floating, or an argument has the wrong type, tree structure or
            dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> input_sensitivity(cell, params, jnp.ones((3, 1)))
        Array([[0.5  , 0.   , 0.   ],
               [0.25 , 0.5  , 0.   ],
               [0.125, 0.25 , 0.5  ]], dtype=float32)
    """
    rows = observe(_every_row, (), model, params, xs, carry, mask, reset, time_major, key)
    return rows if time_major else jnp.moveaxis(rows, (0, 1), (-2, -1))


def last_output_sensitivity(
    model: Model,
    params: Params,
    xs: Any,
    *,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    time_major: bool = False,
    key: Key = None,
) -> jax.Array:
    """How strongly the last real output depends on every input: one row of `input_sensitivity`.

        Sₖ = ‖∂y_last / ∂xₖ‖  (Frobenius)

    Its entry at the first real step is the dependence across the whole sequence. Costs H backward
    passes at once.

    Args:
        model: the cell or layer to run.
        params: its parameters.
        xs: inputs, as in `input_sensitivity`.
        carry, mask, reset, time_major, key: as in `unroll`; the result is `[T, ...]` with
            time_major.

    Returns:
        `[..., T]`; zeros for a row without a real step.

    Raises:
        ValueError: Shapes disagree, or a layer that is not causal is given a carry.
        TypeError: No leaf of `xs` is floating, or an argument has the wrong type, tree structure or
            dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> last_output_sensitivity(cell, params, jnp.ones((4, 1)), mask=jnp.array([1, 1, 1, 0]))
        Array([0.125, 0.25 , 0.5  , 0.   ], dtype=float32)
    """
    row = observe(_last_row, (), model, params, xs, carry, mask, reset, time_major, key)
    return row if time_major else jnp.moveaxis(row, 0, -1)


def memory_horizon(
    model: Model,
    params: Params,
    xs: Any,
    *,
    threshold: float = 1 / math.e,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    time_major: bool = False,
    key: Key = None,
) -> jax.Array:
    """How many steps back the last real output depends on its inputs.

        max { m : S₋ₘ >= threshold · maxₖ Sₖ },  S₋ₘ the sensitivity to the input m steps before

    With the threshold 1 / e, an exponential average with decay exp(-1 / τ) has the horizon τ,
    rounded down. Only real steps are counted. A horizon cannot exceed the sequence it is measured
    on: a value near T - 1 means that T is too short.

    Args:
        model: the cell or layer to run.
        params: its parameters.
        xs: inputs, as in `input_sensitivity`.
        threshold: share of the largest sensitivity that still counts, in (0, 1].
        carry, mask, reset, time_major, key: as in `unroll`.

    Returns:
        `[...]`, floating; NaN for a row whose last output depends on no input, or where a
        sensitivity is NaN.

    Raises:
        ValueError: `threshold` is not in (0, 1], shapes disagree, or a layer that is not causal is
            given a carry.
        TypeError: No leaf of `xs` is floating, or an argument has the wrong type, tree structure or
            dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.9)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> memory_horizon(cell, params, jnp.ones((50, 1)))  # -1 / log(0.9) = 9.49
        Array(9., dtype=float32)
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold}.")
    options = (threshold,)
    return observe(_horizon, options, model, params, xs, carry, mask, reset, time_major, key)


def _horizon(run, threshold):
    row, left = _last_row(run), _steps_left(run)
    counts = (row >= threshold * row.max(0, initial=0)) & (row > 0)
    lags = jnp.where(counts, left - 1, -1).max(0, initial=-1)
    known = (lags >= 0) & ~jnp.isnan(row).any(0)
    return jnp.where(known, lags.astype(row.dtype), jnp.nan)


def _every_row(run):
    norms, real = _pull_back(run), _real(run)
    steps = jnp.arange(len(real))

    def row(step):
        return norms(real & (steps == step).reshape(-1, *[1] * (real.ndim - 1)))

    return lax.map(row, steps)


def _last_row(run):
    return _pull_back(run)(_real(run) & (_steps_left(run) == 1))


def _pull_back(run: Run):
    """`chosen -> [T, *batch]`: the sensitivity of the chosen outputs, at most one in each row."""
    xs = in_compute_dtype(run.params, run.steps.xs)
    num_leading = _real(run).ndim
    leaves, tree = jax.tree.flatten(xs)
    floating = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    if not any(floating):
        raise TypeError(
            "xs must have a floating leaf to be sensitive to, "
            f"got {[str(leaf.dtype) for leaf in leaves]}: run the layers after the embedding."
        )

    def outputs(inputs):
        inputs = iter(inputs)
        used = [next(inputs) if use else leaf for use, leaf in zip(floating, leaves, strict=True)]
        # Zeroed inside the differentiated function, so that masked inputs have zero sensitivity.
        xs = zero_masked(run.steps.mask, tree.unflatten(used))
        steps = run.steps._replace(xs=xs)
        rollout = run.layer.unroll(run.params, run.carry, steps, run.key)
        check_keeps_steps(run.layer, rollout, len(_real(run)), "to be asked for sensitivities")
        return _flat(rollout.outputs, num_leading)

    inputs = [leaf for use, leaf in zip(floating, leaves, strict=True) if use]
    ys, pull = jax.vjp(outputs, inputs)

    def norms(chosen):
        # One pull-back serves all rows of a batch, since they do not depend on each other.
        def slopes_of(unit):
            return _flat(pull(chosen[..., None] * unit)[0], num_leading)

        slopes = jax.vmap(slopes_of, out_axes=-1)(jnp.eye(ys.shape[-1], dtype=ys.dtype))
        return norm(slopes, num_leading)

    return norms


def _real(run):
    """bool `[T, *batch]`: the mask, all True where there is none."""
    if run.steps.mask is not None:
        return run.steps.mask
    return jnp.ones(checks.leading_shape(run.steps.xs, run.layer.num_feature_axes), bool)


def _steps_left(run):
    """int32 `[T, *batch]`: the number of real steps from here on, this one included."""
    return lax.cumsum(_real(run).astype(jnp.int32), reverse=True)


def _flat(tree, num_leading):
    """The leaves of a tree as one array `[T, *batch, M]`."""
    leaves = [flat_features(leaf, num_leading) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate(leaves, axis=-1)
