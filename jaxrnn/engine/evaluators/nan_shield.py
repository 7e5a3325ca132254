"""Confines NaN and Inf to the steps they reach, for evaluators that compute all steps at once."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxrnn.engine.masking import reached, select, zero_masked
from jaxrnn.types import Array, Carry, Cell, Evaluator, Params, Rollout, Steps


def nan_shielded(
    inner: Evaluator, cell: Cell, params: Params, carry: Carry, steps: Steps
) -> Rollout:
    """Gives `inner` finite numbers, and puts NaN back where a loop over the steps would have it.

        reachedₜ = (reachedₜ₋₁ and not rₜ) or xₜ is not finite,   yₜ = reachedₜ ? NaN : yₜ

    In a matrix product or a Fourier transform every step touches every other one, and 0 · NaN is
    NaN: one bad step would spoil earlier steps and other sequences of its row. So inputs and
    carries that are not finite become zero, and NaN is put back afterwards, into all features of
    the steps that it reaches. Those steps have no derivative; that of the others is right.

    Args:
        inner: the evaluator to protect.
        cell: a cell whose x is one array with one feature axis.
        params: its parameters.
        carry: the carry before the first step.
        steps: the inputs and their flags, time first, with at least one step.

    Returns:
        The rollout of `inner` with NaN put back.
    """
    xs, mask, reset = steps
    finite = jnp.isfinite(xs).all(axis=-1)
    # A masked step is not read, so what it holds is not bad.
    bad = ~finite if mask is None else ~finite & mask
    bad_carry = _not_finite(carry, bad.ndim - 1)
    # At masked steps too: after a bad step the layer before this one may have NaN there.
    steps = steps._replace(xs=zero_masked(finite, xs))
    rollout = inner(cell, params, zero_masked(~bad_carry, carry), steps)
    is_lost = reached(bad, bad_carry, reset)
    return rollout._replace(
        carry=_nan_where(is_lost[-1], rollout.carry),
        outputs=_nan_where(is_lost, rollout.outputs),
    )


def _not_finite(carry: Carry, num_batch_axes: int) -> Array:
    """bool `[*batch]`, whether a row of the carry holds NaN or Inf."""
    rows = [
        ~jnp.isfinite(leaf).all(axis=tuple(range(num_batch_axes, leaf.ndim)))
        for leaf in jax.tree.leaves(carry)
    ]
    return jnp.stack(rows).any(axis=0)


def _nan_where(flag: Array, tree: Any) -> Any:
    nan = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), tree)
    return select(flag, nan, tree)
