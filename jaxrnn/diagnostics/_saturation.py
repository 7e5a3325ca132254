"""Units that have stopped passing gradient, for the numbers of a given precision."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.diagnostics._flat_carry import vectors
from jaxrnn.diagnostics._observe import observe, time_back
from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.sequential.sequential import sequential
from jaxrnn.engine.masking import restarted, zero_masked
from jaxrnn.engine.precision import project
from jaxrnn.types import Affine, Cell


def saturation(
    cell: Cell,
    params: Any,
    xs: Any,
    *,
    dtype: Any = jnp.float32,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    time_major: bool = False,
) -> jax.Array:
    """The share of units through which exactly no gradient passes, at every step.

        share of the j for which ∂hₜ[i] / ∂zₜ[j] = 0 for all i,  hₜ = advance(params, hₜ₋₁, zₜ)

    z are the pre-activations, one for each unit of each gate. In float32 tanh is 1 beyond
    arguments of about 8 or 9, its derivative is then 0, and such a unit stops learning. The run
    itself is in the model's own precision, the derivative in `dtype`. A relu below 0 counts, and
    so does a forget gate while the carry it would forget is 0, at the first step say. A linear cell
    has no activation: always 0.

    Args:
        cell: The cell. Of a stack look at each cell with its own inputs.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`.
        dtype: The real floating dtype that is asked about.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`.
        reset: `[..., T]`.
        time_major: xs, mask, reset and the result are `[T, ...]`.

    Returns:
        `[..., T]` in float32, 0 on masked steps.

    Raises:
        ValueError: Shapes disagree.
        TypeError: `cell` is not a Cell, `dtype` not floating, or something is of another kind,
            class of tree or dtype than expected.

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
    shares = observe(
        cell,
        params,
        xs,
        _shares,
        jnp.dtype(dtype),
        carry=carry,
        mask=mask,
        reset=reset,
        time_major=time_major,
    )
    return time_back(shares, 0, time_major)


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
    packing, params = vectors(run), _cast(run.params, dtype)
    _, pull = jax.vjp(lambda z: packing.pack(cell.advance(params, before, z)), _cast(z, dtype))

    def read_by(found, unit):
        slopes = pull(jnp.broadcast_to(unit, (*leading, packing.num)))[0]
        passes = [leaf.reshape(*leading, -1) != 0 for leaf in _floating(slopes)]
        return found | jnp.concatenate(passes, -1), None

    num_units = sum(math.prod(leaf.shape[len(leading) :]) for leaf in _floating(z))
    nothing = jnp.zeros((*leading, num_units), bool)
    passes, _ = lax.scan(read_by, nothing, jnp.eye(packing.num, dtype=packing.dtype))
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
        lambda first, rest: jnp.concatenate([first[None], rest[:-1]]), run.carry, after
    )
    initial = None if reset is None else cell.initial_carry(run.params, reset.shape)
    return restarted(before, initial, reset)


def _floating(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _cast(tree, dtype):
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )
