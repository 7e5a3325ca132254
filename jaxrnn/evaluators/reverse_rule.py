"""A reverse rule for cells with a split: weight gradients as one product after the scan."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn import checks
from jaxrnn.boundary import project, select, varying_like
from jaxrnn.evaluators.scan import scan
from jaxrnn.types import Evaluator, Path, Rollout


def reverse_rule(scan_unroll: int) -> Evaluator:
    """The plain scan with its own reverse rule where the cell has a `split`.

        δₜ = (∂update/∂u)ᵀ λₜ,   λₜ₋₁ = (∂update/∂h)ᵀ λₜ + (∂mix/∂h)ᵀ δₜ
        ∂L/∂params = Σₜ (∂mix/∂params)ᵀ δₜ

    Autodiff of a scan adds a matrix of the size of the weights at every step. Here the backward
    scan makes λ and δ alone, and the sum over all steps becomes one product for each matrix.
    Stored are the carries, once (outputs that are carries are the same arrays), and u. Autodiff is
    left to carries that hold ints and to cells that close over traced arrays, to which a rule can
    give no gradient.
    """
    plain = scan(scan_unroll)

    def evaluate(cell, params, carry, xs, mask, reset):
        initial = None if reset is None else cell.initial_carry(params, reset.shape[1:])
        given = _Given(params, carry, initial, xs, mask, reset)
        if not _has_rule(cell, given):
            return plain(cell, params, carry, xs, mask, reset)

        @jax.custom_vjp
        def run(given):
            return plain(cell, given.params, given.carry, given.xs, given.mask, given.reset)[:2]

        run.defvjp(partial(_forward, cell, scan_unroll), partial(_backward, cell, scan_unroll))
        # Under shard_map what all devices share varies from here on; the transpose of that sums.
        carry, outputs = run(varying_like(given, given))
        return Rollout(carry, outputs, Path("sequential"))

    return evaluate


class _Given(NamedTuple):
    """The arguments of the rule, time first; `initial` is what a reset returns to."""

    params: Any
    carry: Any
    initial: Any
    xs: Any
    mask: Any
    reset: Any


def _has_rule(cell, given):
    if cell.split is None or not all(map(_is_inexact, jax.tree.leaves(given.carry))):
        return False

    def step(params, carry, x):
        u = _mix(cell, params, carry, x)
        return cell.emit(params, cell.split.update(carry, u), x)

    x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), given.xs)
    traced = jax.make_jaxpr(step)(given.params, given.carry, x)
    return not any(isinstance(constant, jax.core.Tracer) for constant in traced.consts)


def _mix(cell, params, before, x):
    return cell.split.mix(params, before, project(cell, params, x))


def _forward(cell, scan_unroll, given):
    """`((carry, outputs), stored)`."""

    def step(carry, inputs):
        x, mask, reset = inputs
        before = carry if reset is None else select(reset, given.initial, carry)
        u = _mix(cell, given.params, before, x)
        after = cell.split.update(before, u)
        checks.same_tree(after, carry, "update(carry, u)")
        carry = after if mask is None else select(mask, after, before)
        return carry, (carry, u)

    inputs = (given.xs, given.mask, given.reset)
    carry, (carries, u) = lax.scan(step, given.carry, inputs, unroll=scan_unroll)
    return (carry, cell.emit(given.params, carries, given.xs)), (given, carries, u)


def _backward(cell, scan_unroll, stored, slopes):
    """The cotangents of `_Given`, from those of the last carry and the outputs."""
    given, carries, u = stored
    carry_slope, output_slopes = slopes
    befores = _befores(given, carries)
    carry_slopes, of_emit = _through_emit(cell, given, carries, output_slopes)

    def step(state, inputs):
        slope, initial_slope = state
        before, u, x, more, mask, reset = inputs
        slope = _add_where_read(slope, more)
        of_new, of_kept = (slope, None) if mask is None else _parts(mask, slope)
        _, pull = jax.vjp(cell.split.update, before, u)
        slope, delta = pull(of_new)
        delta = _floats(delta)
        _, pull = jax.vjp(lambda before: _floats(_mix(cell, given.params, before, x)), before)
        slope = _sum(slope, *pull(delta), of_kept)
        if reset is not None:
            of_initial, slope = _parts(reset, slope)
            initial_slope = _sum(initial_slope, of_initial)
        return (slope, initial_slope), delta

    nothing = None if given.reset is None else jax.tree.map(jnp.zeros_like, carry_slope)
    inputs = (befores, u, given.xs, carry_slopes, given.mask, given.reset)
    (carry_slope, initial_slope), deltas = lax.scan(
        step, (carry_slope, nothing), inputs, reverse=True, unroll=scan_unroll
    )
    of_mix = _through_mix(cell, given, befores, deltas)
    params_slope, xs_slopes = _sum(of_emit, of_mix)
    return (_Given(params_slope, carry_slope, initial_slope, xs_slopes, None, None),)


def _befores(given, carries):
    """What each step started from, `[T, ...]`."""
    shifted = jax.tree.map(
        lambda first, leaf: jnp.concatenate([first[None], leaf])[:-1], given.carry, carries
    )
    if given.reset is None:
        return shifted
    initial = jax.tree.map(lambda leaf: leaf[None], given.initial)
    return select(given.reset, initial, shifted)


def _through_emit(cell, given, carries, output_slopes):
    """What the outputs give to the carries, None for leaves they do not read; to params and xs."""
    leaves, tree = jax.tree.flatten(carries)

    def emit(params, leaves, xs):
        return cell.emit(params, tree.unflatten(leaves), xs)

    is_read = _is_read(lambda leaves: emit(given.params, leaves, given.xs), leaves)
    read = [leaf for leaf, flag in zip(leaves, is_read, strict=True) if flag]

    def emit_of_read(params, read, xs):
        rest = iter(read)
        mixed = [next(rest) if flag else leaf for leaf, flag in zip(leaves, is_read, strict=True)]
        return emit(params, mixed, xs)

    _, pull = jax.vjp(emit_of_read, given.params, read, given.xs)
    params_slope, read_slopes, xs_slopes = pull(output_slopes)
    slopes = iter(read_slopes)
    return [next(slopes) if flag else None for flag in is_read], (params_slope, xs_slopes)


def _is_read(function, leaves):
    """Which of its arguments a function reads: zeros for the others would cost an array each."""
    jaxpr = jax.make_jaxpr(function)(leaves).jaxpr
    read = {id(var) for equation in jaxpr.eqns for var in equation.invars}
    read |= set(map(id, jaxpr.outvars))
    return [id(var) in read for var in jaxpr.invars]


def _through_mix(cell, given, befores, deltas):
    """The gradients of params and xs from all steps at once."""

    def mix(params, xs):
        return _floats(jax.vmap(partial(_mix, cell, params))(befores, xs))

    return jax.vjp(mix, given.params, given.xs)[1](deltas)


def _parts(flag, slope):
    """A cotangent where the flag is True, and where it is not."""
    zeros = jax.tree.map(jnp.zeros_like, slope)
    return select(flag, slope, zeros), select(flag, zeros, slope)


def _sum(*trees):
    """The sum of trees, leaf by leaf, without those that are None."""
    some = [tree for tree in trees if tree is not None]
    # Cotangents of ints have the dtype float0, which cannot be added.
    return jax.tree.map(lambda leaf, *more: sum(more, leaf) if _is_inexact(leaf) else leaf, *some)


def _add_where_read(slope, more):
    leaves, tree = jax.tree.flatten(slope)
    return tree.unflatten(map(_sum, leaves, more))


def _floats(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if _is_inexact(leaf)]


def _is_inexact(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.inexact)
