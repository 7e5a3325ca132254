"""Keeps NaN and Inf where they belong under evaluators that compute with all steps at once."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine.masking import select, zero_masked
from jaxrnn.types import Cell, Evaluator, Rollout, Steps


def nan_shielded(inner: Evaluator, cell: Cell, params: Any, carry: Any, steps: Steps) -> Rollout:
    """Gives `inner` finite numbers, and puts NaN where a step that is not finite reaches.

        reachedₜ = (reachedₜ₋₁ and not rₜ) or xₜ is not finite,   yₜ = reachedₜ ? NaN : yₜ

    A product of matrices or a Fourier transform lets every step touch every other one, and
    0 · NaN is NaN: one bad step would spoil earlier steps and other sequences of its row. So bad
    inputs and carries become zero, and NaN is put back where a loop over the steps has it, into
    all features of a step. The derivative is cut there: it is that of the other steps.

    Args:
        inner: the evaluator to protect.
        cell: a cell whose x is one array with one feature axis.
        params: its parameters.
        carry: the carry before the first step.
        steps: what is read, time first, at least one step.

    Returns:
        The rollout of `inner` with NaN put back.
    """
    xs, mask, reset = steps
    finite = jnp.isfinite(xs).all(axis=-1)
    bad = ~finite if mask is None else ~finite & mask
    bad_carry = _not_finite(carry, bad.ndim - 1)
    # At masked steps too: the layer before this one may hand on NaN there.
    steps = steps._replace(xs=zero_masked(finite, xs))
    rollout = inner(cell, params, zero_masked(~bad_carry, carry), steps)
    reached = _reached(bad, bad_carry, reset)
    return rollout._replace(
        carry=_nan_where(reached[-1], rollout.carry),
        outputs=_nan_where(reached, rollout.outputs),
    )


def _not_finite(carry: Any, num_batch_axes: int) -> Any:
    """bool `[*batch]`, whether a row of the carry holds NaN or Inf."""
    rows = [
        ~jnp.isfinite(leaf).all(axis=tuple(range(num_batch_axes, leaf.ndim)))
        for leaf in jax.tree.leaves(carry)
    ]
    return jnp.stack(rows).any(axis=0)


def _reached(bad: Any, bad_carry: Any, reset: Any) -> Any:
    """bool `[T, *batch]`: a bad step of the same sequence, or a bad carry, came before."""
    steps = jnp.arange(1, len(bad) + 1).reshape(-1, *[1] * (bad.ndim - 1))
    last_bad = lax.cummax(jnp.where(bad, steps, jnp.where(bad_carry, 0, -1)))
    start = 0 if reset is None else lax.cummax(jnp.where(reset, steps, 0))
    return last_bad >= start


def _nan_where(flag: Any, tree: Any) -> Any:
    nan = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), tree)
    return select(flag, nan, tree)
