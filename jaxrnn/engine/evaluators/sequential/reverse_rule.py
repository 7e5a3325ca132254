"""A reverse rule for cells with a `Split`: weight gradients from many steps at once."""

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
from jaxrnn.engine.evaluators.sequential.plain_scan import plain_scan
from jaxrnn.engine.masking import held, restarted
from jaxrnn.engine.precision import in_compute_dtype, project
from jaxrnn.engine.sharding import varying_like
from jaxrnn.types import Cell, Split, Steps


def reverse_rule(
    cell: Cell, scan_unroll: int, params: Any, initial: Any, carry: Any, steps: Steps
) -> tuple[Any, Any]:
    """`plain_scan` with its own reverse rule where `advance` is a `Split`.

        δₜ = (∂update/∂u)ᵀ λₜ,   λₜ₋₁ = (∂update/∂h)ᵀ λₜ + (∂mix/∂h)ᵀ δₜ
        ∂L/∂params = Σₜ (∂mix/∂params)ᵀ δₜ

    Autodiff of a scan adds a matrix of the size of the weights at every step. Here the backward
    scan makes only λ and δ; after a block of steps the sum over the block is one product for each
    matrix. Stored are the carries, once (outputs that are carries are the same arrays), and u.
    Autodiff is left to carries that hold ints, to symbolic shapes, and to cells that close over
    traced arrays, to which a rule can give no gradient.

    Args:
        cell: the cell.
        scan_unroll: number of steps that both scans unroll.
        params: its parameters.
        initial: what a reset returns to; None where there is no reset.
        carry: the carry before the first step.
        steps: what is read, time first.

    Returns:
        `(carry, outputs)`.
    """
    # Widened here, so that the blocks of half-precision gradients are summed in float32.
    given = _Given(in_compute_dtype(params, params), initial, carry, steps)
    if not _has_rule(cell, given):
        return plain_scan(cell, scan_unroll, params, initial, carry, steps)
    run = jax.custom_vjp(partial(plain_scan, cell, scan_unroll))
    run.defvjp(partial(_forward, cell, scan_unroll), partial(_backward, cell, scan_unroll))
    # Under shard_map what all devices share varies from here on; the transpose of that sums.
    return run(*varying_like(given, given))


class _Given(NamedTuple):
    """The arguments of the rule; `initial` is what a reset returns to."""

    params: Any
    initial: Any
    carry: Any
    steps: Steps


class _Block(NamedTuple):
    """Some steps, time first: what is read, the carry after each, its u, output cotangents."""

    steps: Steps
    carries: Any
    u: Any
    output_slopes: Any


class _Slopes(NamedTuple):
    """Cotangents: of the carry, of `initial`, and of the floating leaves of params."""

    carry: Any
    initial: Any
    params: Any


def _has_rule(cell, given):
    if not isinstance(cell.advance, Split):
        return False
    if not all(map(is_inexact, jax.tree.leaves(given.carry))):
        return False
    # A symbolic shape of `jax.export` cannot be cut into blocks.
    sizes = {size for leaf in jax.tree.leaves((given.carry, given.steps)) for size in leaf.shape}
    if not all(isinstance(size, int) for size in sizes):
        return False

    def step(params, carry, x):
        return cell.emit(params, cell.advance(params, carry, project(cell, params, x)), x)

    x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), given.steps.xs)
    closed_over = jax.make_jaxpr(step)(given.params, given.carry, x).consts
    return not any(isinstance(const, Tracer) for const in closed_over)


def _mix(cell, params, before, x):
    return cell.advance.mix(params, before, project(cell, params, x))


def _forward(cell, scan_unroll, *args):
    """`((carry, outputs), stored)`: the plain scan, which also keeps every carry and its u."""
    given = _Given(*args)

    def step(carry, one):
        x, mask, reset = one
        before = restarted(carry, given.initial, reset)
        u = _mix(cell, given.params, before, x)
        after = cell.advance.update(before, u)
        checks.same_tree(after, carry, "update(carry, u)")
        carry = held(after, before, mask)
        return carry, (carry, u)

    carry, (carries, u) = lax.scan(step, given.carry, given.steps, unroll=scan_unroll)
    return (carry, cell.emit(given.params, carries, given.steps.xs)), (given, carries, u)


def _block_size(cell, given):
    num_batch_axes = _num_batch_axes(cell, given)
    num_steps = jax.tree.leaves(given.steps.xs)[0].shape[0]
    return block_size(num_steps, jax.tree.leaves(given.carry)[0].shape[:num_batch_axes])


def _num_batch_axes(cell, given):
    one = jax.eval_shape(cell.initial_carry, given.params)
    return jax.tree.leaves(given.carry)[0].ndim - jax.tree.leaves(one)[0].ndim


def _backward(cell, scan_unroll, stored, slopes):
    """The cotangents of `_Given`, from those of the last carry and the outputs.

    Blocks of steps are run from the last to the first. What a block needs of the past is the carry
    before it, which is the last carry of the block before; all else was stored.
    """
    given, carries, u = stored
    of_carry, of_outputs = slopes
    size = _block_size(cell, given)
    ends = jax.tree.map(lambda leaf: leaf[size - 1 : -1 : size], carries)
    starts = jax.tree.map(_prepended, given.carry, ends)
    zeros = partial(jax.tree.map, jnp.zeros_like)
    of_initial = None if given.steps.reset is None else zeros(of_carry)
    state, of_xs = scan_blocks(
        partial(_through_block, cell, scan_unroll, _num_batch_axes(cell, given), given),
        _Slopes(of_carry, of_initial, zeros(floats(given.params))),
        _Block(given.steps, carries, u, of_outputs),
        starts,
        size,
    )
    of_params, of_xs = with_floats(given.params, state.params), with_floats(given.steps.xs, of_xs)
    return tuple(_Given(of_params, state.initial, state.carry, Steps(of_xs)))


def _prepended(first, leaves):
    return jnp.concatenate([first[None], leaves])


def _through_block(cell, scan_unroll, num_batch_axes, given, state, block):
    """`(the slopes before the block, those of the floating leaves of its xs)`.

    Three passes: all readouts at once, then the recursion of λ and δ step by step, which is all
    that has to be sequential, then all mixes at once, whose products sum over the steps.
    """
    first, block = block
    steps = block.steps
    befores = jax.tree.map(lambda leaf, leaves: _prepended(leaf, leaves[:-1]), first, block.carries)
    if steps.reset is not None:
        initial = jax.tree.map(lambda leaf: leaf[None], given.initial)
        befores = restarted(befores, initial, steps.reset)
    of_carries, of_emit = _through_emit(cell, given, block)
    z = jax.vmap(partial(project, cell, given.params))(steps.xs)

    def step(slopes, inputs):
        slope, of_initial = slopes
        before, u, more, z, mask, reset = inputs
        slope = add_some(slope, more)
        # The transposes of `held` and of `restarted`: a cotangent goes one way or the other.
        slope, kept = (slope, None) if mask is None else parts(mask, slope)
        _, pull = jax.vjp(cell.advance.update, before, u)
        slope, delta = pull(slope)
        delta = floats(delta)
        _, pull = jax.vjp(lambda carry: floats(cell.advance.mix(given.params, carry, z)), before)
        slope = add(slope, *pull(delta), kept)
        if reset is not None:
            fresh, slope = parts(reset, slope)
            of_initial = add(of_initial, fresh)
        return (slope, of_initial), delta

    (of_carry, of_initial), deltas = lax.scan(
        step,
        (state.carry, state.initial),
        (befores, block.u, of_carries, z, steps.mask, steps.reset),
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


def _through_emit(cell, given, block):
    """What outputs give to the carries (None for leaves they do not read), and to params and xs."""
    leaves, tree = jax.tree.flatten(block.carries)
    xs = block.steps.xs

    def emit(params, xs, leaves):
        return cell.emit(params, tree.unflatten(leaves), xs)

    is_read = which_are_read(partial(emit, given.params, xs), leaves)

    # Zeros for a leaf that is not read would cost an array.
    def emit_read(params, xs, read):
        return emit(params, xs, merge(is_read, read, leaves))

    _, pull = jax.vjp(emit_read, given.params, xs, list(compress(leaves, is_read)))
    of_params, of_xs, of_read = pull(block.output_slopes)
    of_carries = merge(is_read, of_read, [None] * len(leaves))
    return of_carries, (floats(of_params), floats(of_xs))
