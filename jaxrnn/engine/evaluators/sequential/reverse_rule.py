"""A reverse rule for cells with a split: weight gradients from many steps at once."""

import re
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.sequential.blocks import block_size, scan_blocks
from jaxrnn.engine.evaluators.sequential.cotangents import (
    add,
    add_some,
    floats,
    is_inexact,
    merge,
    parts,
    which_are_read,
    with_floats,
)
from jaxrnn.engine.evaluators.sequential.plain_scan import scan
from jaxrnn.engine.masking import select
from jaxrnn.engine.precision import in_compute_dtype, project
from jaxrnn.engine.sharding import varying_like
from jaxrnn.types import Evaluator, Path, Rollout


def reverse_rule(scan_unroll: int) -> Evaluator:
    """The plain scan with its own reverse rule where the cell has a `split`.

        δₜ = (∂update/∂u)ᵀ λₜ,   λₜ₋₁ = (∂update/∂h)ᵀ λₜ + (∂mix/∂h)ᵀ δₜ
        ∂L/∂params = Σₜ (∂mix/∂params)ᵀ δₜ

    Autodiff of a scan adds a matrix of the size of the weights at every step. Here the backward
    scan makes only λ and δ; after a block of steps the sum over the block is one product for each
    matrix. Stored are the carries, once (outputs that are carries are the same arrays), and u.
    Autodiff is left to carries that hold ints, to shapes that are symbols, to cells that close over
    traced arrays, to which a rule can give no gradient, and to cells whose `advance` is not,
    operation for operation, `update` after `mix`: where one of them was replaced, `advance` holds.
    """
    plain = scan(scan_unroll)

    def evaluate(cell, params, carry, xs, mask, reset):
        initial = None if reset is None else cell.initial_carry(params, reset.shape[1:])
        # Widened here, so that the blocks of half-precision gradients are summed in float32.
        given = _Given(in_compute_dtype(params, params), carry, initial, xs, mask, reset)
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


class _Steps(NamedTuple):
    """Some steps, time first: inputs, the carry after each, its u, the cotangents of outputs."""

    xs: Any
    mask: Any
    reset: Any
    carries: Any
    u: Any
    output_slopes: Any


class _Slopes(NamedTuple):
    """Cotangents: of the carry, of `initial`, and of the floating leaves of params."""

    carry: Any
    initial: Any
    params: Any


def _has_rule(cell, given):
    if cell.split is None or not all(map(is_inexact, jax.tree.leaves(given.carry))):
        return False
    # A symbolic shape of `jax.export` cannot be cut into blocks.
    sizes = {size for leaf in jax.tree.leaves((given.carry, given.xs)) for size in leaf.shape}
    if not all(isinstance(size, int) for size in sizes):
        return False

    split = cell.split

    def by_split(params, carry, z, x):
        return cell.emit(params, split.update(carry, split.mix(params, carry, z)), x)

    def by_advance(params, carry, z, x):
        return cell.emit(params, cell.advance(params, carry, z), x)

    x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), given.xs)
    projection = jax.make_jaxpr(partial(project, cell), return_shape=True)
    projected, z = projection(given.params, x)
    programs = [
        jax.make_jaxpr(step)(given.params, given.carry, z, x) for step in (by_split, by_advance)
    ]
    closed_over = projected.consts + programs[0].consts
    return _same_operations(*programs) and not any(isinstance(c, Tracer) for c in closed_over)


def _same_operations(*programs):
    """Whether programs read the same; the addresses of the functions in them may differ."""
    return len({re.sub(r"0x[0-9a-f]+", "", str(program)) for program in programs}) == 1


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


def _block_size(cell, given):
    num_batch_axes = _num_batch_axes(cell, given)
    num_steps = jax.tree.leaves(given.xs)[0].shape[0]
    return block_size(num_steps, jax.tree.leaves(given.carry)[0].shape[:num_batch_axes])


def _num_batch_axes(cell, given):
    one = jax.eval_shape(cell.initial_carry, given.params)
    return jax.tree.leaves(given.carry)[0].ndim - jax.tree.leaves(one)[0].ndim


def _backward(cell, scan_unroll, stored, slopes):
    """The cotangents of `_Given`, from those of the last carry and the outputs."""
    given, carries, u = stored
    of_carry, of_outputs = slopes
    size = _block_size(cell, given)
    ends = jax.tree.map(lambda leaf: leaf[size - 1 : -1 : size], carries)
    starts = jax.tree.map(_prepended, given.carry, ends)
    zeros = partial(jax.tree.map, jnp.zeros_like)
    of_initial = None if given.reset is None else zeros(of_carry)
    state, of_xs = scan_blocks(
        partial(_through_block, cell, scan_unroll, _num_batch_axes(cell, given), given),
        _Slopes(of_carry, of_initial, zeros(floats(given.params))),
        _Steps(given.xs, given.mask, given.reset, carries, u, of_outputs),
        starts,
        size,
    )
    of_params, of_xs = with_floats(given.params, state.params), with_floats(given.xs, of_xs)
    return (_Given(of_params, state.carry, state.initial, of_xs, None, None),)


def _prepended(first, leaves):
    return jnp.concatenate([first[None], leaves])


def _through_block(cell, scan_unroll, num_batch_axes, given, state, block):
    """`(the slopes in front of the block, those of the floating leaves of its xs)`."""
    first, steps = block
    befores = jax.tree.map(lambda leaf, leaves: _prepended(leaf, leaves[:-1]), first, steps.carries)
    if steps.reset is not None:
        initial = jax.tree.map(lambda leaf: leaf[None], given.initial)
        befores = select(steps.reset, initial, befores)
    of_carries, of_emit = _through_emit(cell, given, steps)
    z = jax.vmap(partial(project, cell, given.params))(steps.xs)

    def step(slopes, inputs):
        slope, of_initial = slopes
        before, steps, more, z = inputs
        slope = add_some(slope, more)
        slope, kept = (slope, None) if steps.mask is None else parts(steps.mask, slope)
        _, pull = jax.vjp(cell.split.update, before, steps.u)
        slope, delta = pull(slope)
        delta = floats(delta)
        _, pull = jax.vjp(lambda carry: floats(cell.split.mix(given.params, carry, z)), before)
        slope = add(slope, *pull(delta), kept)
        if steps.reset is not None:
            fresh, slope = parts(steps.reset, slope)
            of_initial = add(of_initial, fresh)
        return (slope, of_initial), delta

    (of_carry, of_initial), deltas = lax.scan(
        step,
        (state.carry, state.initial),
        (befores, steps._replace(xs=None, carries=None, output_slopes=None), of_carries, z),
        reverse=True,
        unroll=scan_unroll,
    )
    of_mix = _through_mix(cell, given, num_batch_axes, befores, steps.xs, deltas)
    of_params, of_xs = add(of_emit, of_mix)
    return _Slopes(of_carry, of_initial, add(state.params, of_params)), of_xs


def _through_mix(cell, given, num_batch_axes, befores, xs, deltas):
    """What u gives to the floating leaves of params and xs, from all steps of a block at once."""

    # One axis for time and batch: XLA makes a product that sums over two of them from a copy.
    def flat(leaf):
        return leaf.reshape(-1, *leaf.shape[num_batch_axes + 1 :])

    def mix(params, xs):
        return floats(_mix(cell, params, jax.tree.map(flat, befores), jax.tree.map(flat, xs)))

    u, pull = jax.vjp(mix, given.params, xs)
    # A parameter that mix hands on has no axes of its own for time and batch.
    deltas = [
        delta.reshape(leaf.shape) if delta.size == leaf.size else delta.sum(0)
        for delta, leaf in zip(deltas, u, strict=True)
    ]
    return tuple(map(floats, pull(deltas)))


def _through_emit(cell, given, steps):
    """What outputs give to the carries (None for leaves they do not read), and to params and xs."""
    leaves, tree = jax.tree.flatten(steps.carries)

    def emit(params, xs, leaves):
        return cell.emit(params, tree.unflatten(leaves), xs)

    is_read = which_are_read(partial(emit, given.params, steps.xs), leaves)

    # Zeros for a leaf that is not read would cost an array.
    def emit_read(params, xs, read):
        return emit(params, xs, merge(is_read, read, leaves))

    _, pull = jax.vjp(emit_read, given.params, steps.xs, list(compress(leaves, is_read)))
    of_params, of_xs, of_read = pull(steps.output_slopes)
    of_carries = merge(is_read, of_read, [None] * len(leaves))
    return of_carries, (floats(of_params), floats(of_xs))
