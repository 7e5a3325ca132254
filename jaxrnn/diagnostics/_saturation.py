"""Units that have stopped passing gradient, in the numbers of a given precision."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.diagnostics._jacobians import flat_carry
from jaxrnn.diagnostics._norms import flat_features
from jaxrnn.diagnostics._observe import observe
from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.sequential.sequential import sequential
from jaxrnn.engine.masking import restarted, zero_masked
from jaxrnn.engine.precision import project
from jaxrnn.types import Affine, Carry, Cell, Mask, Params, Reset


def saturation(
    cell: Cell,
    params: Params,
    xs: Any,
    *,
    dtype: Any = jnp.float32,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    time_major: bool = False,
) -> jax.Array:
    """The share of units through which exactly no gradient passes, at every step.

        share of the j for which ∂hₜ[i] / ∂zₜ[j] = 0 for all i,  hₜ = advance(params, hₜ₋₁, zₜ)

    z are the pre-activations, one for each unit of each gate. In float32 tanh is 1 beyond
    arguments of about 8 or 9, its derivative is then 0, and such a unit stops learning. The run
    itself uses the model's own precision, the derivative `dtype`. A relu below 0 counts, and so
    does a forget gate while the carry it would forget is 0, as at the first step. A linear cell has
    no activation, so its share is always 0.

    Args:
        cell: the cell to run; in a stack, measure each cell on its own inputs.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`.
        dtype: the real floating dtype in which a derivative counts as 0.
        carry, mask, reset, time_major: as in `unroll`; the result is `[T, ...]` with time_major.

    Returns:
        `[..., T]` in float32, 0 on masked steps.

    Raises:
        ValueError: Shapes disagree.
        TypeError: `cell` is not a Cell, `dtype` is not floating, or an argument has the wrong type,
            tree structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.elman(2)
        >>> params = jr.cells.ElmanParams(jnp.array([[1.0, 10.0]]), jnp.zeros((2, 2)), jnp.zeros(2))
        >>> saturation(cell, params, jnp.array([[0.5], [3.0], [-20.0]]))
        Array([0. , 0.5, 1. ], dtype=float32)
    """
    checks.is_cell(cell)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype must be a real floating dtype, got {dtype!r}.")
    options = (jnp.dtype(dtype),)
    shares = observe(_shares, options, cell, params, xs, carry, mask, reset, time_major)
    return shares if time_major else jnp.moveaxis(shares, 0, -1)


def _shares(run, dtype):
    cell, steps = run.model, run.steps
    if cell.prepare is not None:
        xs = cell.prepare(run.params, run.key, steps.xs, steps.reset)
        run = run._replace(steps=steps._replace(xs=xs))
    z = project(cell, run.params, run.steps.xs)
    leading = checks.leading_shape(run.steps.xs, cell.num_feature_axes)
    if isinstance(z, Affine):
        return jnp.zeros(leading)
    before = _cast(_carries_before(run, cell), dtype)
    flat, params = flat_carry(run), _cast(run.params, dtype)
    _, pull = jax.vjp(lambda z: flat.pack(cell.advance(params, before, z)), _cast(z, dtype))

    # One coordinate of the carry after another, so that memory holds one slope per unit, not N.
    def add_coordinate(passes, coordinate):
        slopes = pull(jnp.broadcast_to(coordinate, (*leading, flat.size)))[0]
        is_read = [flat_features(leaf, len(leading)) != 0 for leaf in _floating(slopes)]
        return passes | jnp.concatenate(is_read, -1), None

    num_units = sum(math.prod(leaf.shape[len(leading) :]) for leaf in _floating(z))
    no_unit = jnp.zeros((*leading, num_units), bool)
    passes, _ = lax.scan(add_coordinate, no_unit, jnp.eye(flat.size, dtype=flat.dtype))
    return zero_masked(run.steps.mask, (~passes).mean(-1, dtype=jnp.float32))


def _carries_before(run, cell):
    """The carry that each step reads: that of the step before, or the initial one at a reset."""

    def emit(params, carry, x):
        del params, x
        return carry

    evaluate = sequential(derivative="autodiff")
    reset = run.steps.reset
    after = evaluate(cell._replace(emit=emit), run.params, run.carry, run.steps).outputs
    before = jax.tree.map(
        lambda first, rest: jnp.concatenate([first[None], rest])[:-1], run.carry, after
    )
    initial = None if reset is None else cell.initial_carry(run.params, reset.shape)
    return restarted(before, initial, reset)


def _floating(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _cast(tree, dtype):
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )
