"""How strongly outputs depend on inputs: the reach of a recurrence, measured directly."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.diagnostics._norms import norm
from jaxrnn.diagnostics._observe import Run, observe, time_back
from jaxrnn.engine import checks
from jaxrnn.engine.masking import zero_masked
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.types import Cell, Layer


def input_sensitivity(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
    key: Any = None,
) -> jax.Array:
    """How strongly every output depends on every input.

        Sₜₖ = ‖∂yₜ / ∂xₖ‖  (Frobenius)

    A row shows what the output of step t has kept, a column for how long input k is heard. A masked
    step neither speaks nor is heard, and nothing passes a reset. Of a layer that is not causal the
    upper triangle is not zero. Rows of a batch must not see each other. Costs T · H backward
    passes, H of them at a time; for long sequences take `last_output_sensitivity`.

    Args:
        model: What to run.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`; its floating leaves are the inputs that count. For
            tokens run what follows the embedding on what that returns.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`.
        reset: `[..., T]`.
        time_major: xs, mask and reset are `[T, ...]`, the result is `[T, T, ...]`.
        key: Randomness; None is the deterministic model.

    Returns:
        `[..., T, T]`: of an output (row) to an input (column).

    Raises:
        ValueError: Shapes disagree, or a layer that is not causal is given a carry.
        TypeError: No leaf of `xs` is floating, or something is of another kind, class of tree or
            dtype than expected.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> input_sensitivity(cell, params, jnp.ones((3, 1)))
        Array([[0.5  , 0.   , 0.   ],
               [0.25 , 0.5  , 0.   ],
               [0.125, 0.25 , 0.5  ]], dtype=float32)
    """
    rows = observe(
        model,
        params,
        xs,
        _every_row,
        carry=carry,
        mask=mask,
        reset=reset,
        time_major=time_major,
        key=key,
    )
    return rows if time_major else jnp.moveaxis(rows, (0, 1), (-2, -1))


def last_output_sensitivity(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
    key: Any = None,
) -> jax.Array:
    """How strongly the last real output depends on every input: one row of `input_sensitivity`.

        Sₖ = ‖∂y_last / ∂xₖ‖  (Frobenius)

    At the first real step, first to last, it is the reach over the whole sequence. Costs H backward
    passes at once.

    Args:
        model: What to run.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`; its floating leaves are the inputs that count. For
            tokens run what follows the embedding on what that returns.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`.
        reset: `[..., T]`.
        time_major: xs, mask, reset and the result are `[T, ...]`.
        key: Randomness; None is the deterministic model.

    Returns:
        `[..., T]`; zeros for a row without a real step.

    Raises:
        ValueError: Shapes disagree, or a layer that is not causal is given a carry.
        TypeError: No leaf of `xs` is floating, or something is of another kind, class of tree or
            dtype than expected.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.5)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> last_output_sensitivity(cell, params, jnp.ones((4, 1)), mask=jnp.array([1, 1, 1, 0]))
        Array([0.125, 0.25 , 0.5  , 0.   ], dtype=float32)
    """
    row = observe(
        model,
        params,
        xs,
        _last_row,
        carry=carry,
        mask=mask,
        reset=reset,
        time_major=time_major,
        key=key,
    )
    return time_back(row, 0, time_major)


def memory_horizon(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    threshold: float = 1 / math.e,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
    key: Any = None,
) -> jax.Array:
    """How many steps back the last real output hears its inputs.

        max { m : S₋ₘ >= threshold · maxₖ Sₖ },  S₋ₘ the sensitivity to the input m steps before

    With the threshold 1 / e an exponential average with decay exp(-1 / τ) has the horizon τ,
    rounded down. Steps are real ones: padding does not age. No horizon is longer than the sequence
    it was measured on, so one near T - 1 means T is too short to see it.

    Args:
        model: What to run.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`; its floating leaves are the inputs that count. For
            tokens run what follows the embedding on what that returns.
        threshold: The share of the largest sensitivity that still counts, in (0, 1].
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`.
        reset: `[..., T]`.
        time_major: xs, mask and reset are `[T, ...]`.
        key: Randomness; None is the deterministic model.

    Returns:
        `[...]`, floating; NaN for a row whose last output depends on no input, or on one as NaN.

    Raises:
        ValueError: `threshold` is not in (0, 1], shapes disagree, or a layer that is not causal is
            given a carry.
        TypeError: No leaf of `xs` is floating, or something is of another kind, class of tree or
            dtype than expected.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.ema(0.9)
        >>> params = cell.init(jax.random.key(0), 1)
        >>> memory_horizon(cell, params, jnp.ones((50, 1)))  # -1 / log(0.9) = 9.49
        Array(9., dtype=float32)
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold}.")
    return observe(
        model,
        params,
        xs,
        _horizon,
        threshold,
        carry=carry,
        mask=mask,
        reset=reset,
        time_major=time_major,
        key=key,
    )


def _horizon(run, threshold):
    row, left = _last_row(run), _steps_left(run)
    heard = (row >= threshold * row.max(0)) & (row > 0)
    lags = jnp.where(heard, left - 1, -1).max(0, initial=-1)
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
    """`speaking -> [T, *batch]`, the sensitivity of those outputs, one at most in each row."""
    xs = in_compute_dtype(run.params, run.steps.xs)
    num_leading = _real(run).ndim
    leaves, tree = jax.tree.flatten(xs)
    floating = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    if not any(floating):
        raise TypeError(
            "xs must have a floating leaf to be sensitive to, "
            f"got {[str(leaf.dtype) for leaf in leaves]}: run what follows the embedding."
        )

    def outputs(inputs):
        inputs = iter(inputs)
        own = [next(inputs) if use else leaf for use, leaf in zip(floating, leaves, strict=True)]
        xs = zero_masked(run.steps.mask, tree.unflatten(own))
        steps = run.steps._replace(xs=xs)
        ys = run.layer.unroll(run.params, run.carry, steps, run.key).outputs
        return _flat(ys, num_leading)

    inputs = [leaf for use, leaf in zip(floating, leaves, strict=True) if use]
    ys, pull = jax.vjp(outputs, inputs)

    def norms(speaking):
        def of_unit(unit):
            return _flat(pull(speaking[..., None] * unit)[0], num_leading)

        slopes = jax.vmap(of_unit, out_axes=-1)(jnp.eye(ys.shape[-1], dtype=ys.dtype))
        return norm(slopes, num_leading)

    return norms


def _real(run):
    """bool `[T, *batch]`: the mask, all True where there is none."""
    if run.steps.mask is not None:
        return run.steps.mask
    return jnp.ones(checks.leading_shape(run.steps.xs, run.layer.num_feature_axes), bool)


def _steps_left(run):
    """int32 `[T, *batch]`: how many real steps there are from here on."""
    return lax.cumsum(_real(run).astype(jnp.int32), reverse=True)


def _flat(tree, num_leading):
    """The leaves of a tree side by side, `[T, *batch, M]`."""
    leaves = [leaf.reshape(*leaf.shape[:num_leading], -1) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate(leaves, axis=-1)
