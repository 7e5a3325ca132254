"""The reverse rule of `sequential` for cells with a `Split`: weight gradients from many steps."""

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
    add_fresh,
    add_some,
    floats,
    is_inexact,
    merge,
    split_by,
    which_are_read,
    with_floats,
)
from jaxrnn.engine.evaluators.sequential.plain_scan import plain_scan
from jaxrnn.engine.masking import held, restarted
from jaxrnn.engine.precision import in_compute_dtype, project
from jaxrnn.engine.sharding import varying_like
from jaxrnn.types import Array, Carry, Cell, Params, Split, Steps


def reverse_rule(
    cell: Cell, scan_unroll: int, params: Params, initial: Carry, carry: Carry, steps: Steps
) -> tuple[Carry, Any]:
    """`plain_scan` with its own reverse rule where `advance` is a `Split`.

        δₜ = (∂update/∂u)ᵀ λₜ,   λₜ₋₁ = (∂update/∂h)ᵀ λₜ + (∂mix/∂h)ᵀ δₜ
        ∂L/∂params = Σₜ (∂mix/∂params)ᵀ δₜ

    λₜ is the cotangent of the carry hₜ and δₜ that of uₜ. Autodiff of a scan adds a matrix of the
    size of the weights at every step. Here the backward scan computes only λ and δ, and the sum
    over a block of steps is one product for each matrix. The rule stores u and the carries, once:
    outputs that are carries are the same arrays. Carries that hold ints, symbolic shapes, and
    cells that close over traced arrays are left to autodiff.

    Args:
        cell: the cell.
        scan_unroll: number of steps that both scans unroll.
        params: its parameters.
        initial: what a reset returns to, as in `entered`.
        carry: the carry before the first step.
        steps: the inputs and their flags, time first.

    Returns:
        `(carry, outputs)`.
    """
    # Parameters in half precision are widened outside of the rule, so that their cotangents are
    # summed over blocks in float32 and rounded once, by the transpose of this cast.
    given = _Given(in_compute_dtype(params, params), initial, carry, steps)
    if not _has_rule(cell, given):
        return plain_scan(cell, scan_unroll, params, initial, carry, steps)
    # Without a gradient the plain scan runs, which stores nothing.
    run = jax.custom_vjp(partial(plain_scan, cell, scan_unroll))
    run.defvjp(partial(_forward, cell, scan_unroll), partial(_backward, cell, scan_unroll))
    # Under shard_map a cotangent must vary over the same mesh axes as its argument. Parameters that
    # all devices share have cotangents that differ between devices, so every argument is made to
    # vary here, outside of the rule; the transpose of that sums over the devices.
    return run(*varying_like(given, given))


class _Given(NamedTuple):
    """The differentiable arguments of the rule; `initial` is what a reset returns to."""

    params: Params
    initial: Carry
    carry: Carry
    steps: Steps


class _Block(NamedTuple):
    """A block of steps, time first: the carry after each, its u, and the outputs' cotangents."""

    steps: Steps
    carries: Carry
    u: Any
    of_outputs: Any


class _Cotangents(NamedTuple):
    """The cotangents of the carry, of `initial`, and of the floating leaves of params."""

    carry: Carry
    initial: Carry
    params: list[Array]


def _has_rule(cell, given):
    """Whether the reverse rule applies; otherwise autodiff of the plain scan is right as well."""
    if not isinstance(cell.advance, Split):
        return False
    # The backward scan carries a cotangent for every leaf, and an int has none.
    if not all(map(is_inexact, jax.tree.leaves(given.carry))):
        return False
    # A symbolic shape of `jax.export` cannot be cut into blocks.
    sizes = {size for leaf in jax.tree.leaves((given.carry, given.steps)) for size in leaf.shape}
    if not all(isinstance(size, int) for size in sizes):
        return False

    def step(params, carry, x):
        return cell.emit(params, cell.advance(params, carry, project(cell, params, x)), x)

    # An array that the cell closes over is a constant of its program. If it is traced, it may be
    # one that the caller differentiates, and a custom rule has no argument to give it a gradient.
    x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), given.steps.xs)
    closed_over = jax.make_jaxpr(step)(given.params, given.carry, x).consts
    return not any(isinstance(const, Tracer) for const in closed_over)


def _mix(cell, params, before, x):
    return cell.advance.mix(params, before, project(cell, params, x))


def _forward(cell, scan_unroll, *args):
    """`((carry, outputs), stored)`: the plain scan, which also stores every carry and its u.

    u is stored because it holds the products with the recurrent kernel, the expensive part of a
    step. `update` is pointwise, so the backward scan computes it again from the carry and u.
    """
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
    # After the scan and not inside: where `emit` returns the carry, the outputs are the stored
    # carries themselves and not a copy.
    return (carry, cell.emit(given.params, carries, given.steps.xs)), (given, carries, u)


def _block_size(cell, given):
    num_batch_axes = _num_batch_axes(cell, given)
    num_steps = jax.tree.leaves(given.steps.xs)[0].shape[0]
    return block_size(num_steps, jax.tree.leaves(given.carry)[0].shape[:num_batch_axes])


def _num_batch_axes(cell, given):
    # Only the cell knows how many axes of a carry are features: a matrix memory has two.
    one = jax.eval_shape(cell.initial_carry, given.params)
    return jax.tree.leaves(given.carry)[0].ndim - jax.tree.leaves(one)[0].ndim


def _backward(cell, scan_unroll, stored, cotangents):
    """The cotangents of `_Given`, from those of the last carry and the outputs.

    Blocks of steps are run from the last to the first. All steps as one block would need z and δ
    of the whole sequence at once; single steps would add a matrix each, as autodiff does.
    """
    given, carries, u = stored
    of_carry, of_outputs = cotangents
    size = _block_size(cell, given)
    # A block reads the carry before its first step, which is the last carry of the block before.
    # The end of the last block starts nothing, hence -1.
    ends = jax.tree.map(lambda leaf: leaf[size - 1 : -1 : size], carries)
    starts = jax.tree.map(_prepended, given.carry, ends)
    zeros = partial(jax.tree.map, jnp.zeros_like)
    of_initial = None if given.steps.reset is None else zeros(given.initial)
    state, of_xs = scan_blocks(
        partial(_through_block, cell, scan_unroll, _num_batch_axes(cell, given), given),
        _Cotangents(of_carry, of_initial, zeros(floats(given.params))),
        _Block(given.steps, carries, u, of_outputs),
        starts,
        size,
    )
    of_params, of_xs = with_floats(given.params, state.params), with_floats(given.steps.xs, of_xs)
    # Flags have no derivative: mask and reset are None here, which is a cotangent of zero.
    return tuple(_Given(of_params, state.initial, state.carry, Steps(of_xs)))


def _prepended(first, leaves):
    return jnp.concatenate([first[None], leaves])


def _through_block(cell, scan_unroll, num_batch_axes, given, state, block):
    """`(the cotangents before the block, those of the floating leaves of its xs)`.

    There are three passes: all readouts at once; the recursion of λ and δ step by step, which is
    all that has to be sequential; and all mixes at once, whose products sum over the steps.
    """
    first, block = block
    steps = block.steps
    # The carry that each step read: that of the step before, or what a reset put in its place.
    befores = jax.tree.map(lambda leaf, leaves: _prepended(leaf, leaves[:-1]), first, block.carries)
    if steps.reset is not None:
        befores = jax.vmap(restarted, (0, None, 0))(befores, given.initial, steps.reset)
    of_carries, of_emit = _through_emit(cell, given, block)
    # By vmap every leaf of z has a time axis to scan over, also one that does not depend on x.
    z = jax.vmap(partial(project, cell, given.params))(steps.xs)

    # The transpose of a step, its parts in reverse order: held, update, mix, restarted.
    def step(cotangents, inputs):
        of_carry, of_initial = cotangents
        before, u, of_output, z, mask, reset = inputs
        # λₜ: what later steps give to this carry and what its own output gives.
        of_carry = add_some(of_carry, of_output)
        # `held` takes the carry from the step or from before it, so its transpose sends the
        # cotangent one way or the other: at a masked step it passes by unchanged.
        of_carry, passed_by = (of_carry, None) if mask is None else split_by(mask, of_carry)
        _, pull = jax.vjp(cell.advance.update, before, u)
        of_carry, delta = pull(of_carry)
        delta = floats(delta)
        # With respect to the carry alone: params and x follow for all steps in `_through_mix`.
        # Where mix is linear in the carry nothing reads its value, and XLA drops that product.
        _, pull = jax.vjp(lambda carry: floats(cell.advance.mix(given.params, carry, z)), before)
        of_carry = add(of_carry, *pull(delta), passed_by)
        if reset is not None:
            # A step that was reset read `initial`, and its cotangent ends there.
            of_initial, of_carry = add_fresh(of_initial, of_carry, reset)
        return (of_carry, of_initial), delta

    (of_carry, of_initial), deltas = lax.scan(
        step,
        (state.carry, state.initial),
        (befores, block.u, of_carries, z, steps.mask, steps.reset),
        reverse=True,
        unroll=scan_unroll,
    )
    of_mix = _through_mix(cell, given, num_batch_axes, befores, steps.xs, deltas)
    of_params, of_xs = add(of_emit, of_mix)
    return _Cotangents(of_carry, of_initial, add(state.params, of_params)), of_xs


def _through_mix(cell, given, num_batch_axes, befores, xs, deltas):
    """The cotangents that δ gives to the floating leaves of params and xs, for a whole block."""

    # Time and batch become one axis: a product that sums over two axes makes XLA copy its operands.
    def flat(leaf):
        return leaf.reshape(-1, *leaf.shape[num_batch_axes + 1 :])

    def mix(params, xs):
        return floats(_mix(cell, params, jax.tree.map(flat, befores), jax.tree.map(flat, xs)))

    u, pull = jax.vjp(mix, given.params, xs)
    # A parameter vector that mix hands on to `update` has no axes for time and batch, so its δ,
    # one for each step, is summed. With one step the sizes agree and both ways are the same.
    deltas = [
        delta.reshape(leaf.shape) if delta.size == leaf.size else delta.sum(0)
        for delta, leaf in zip(deltas, u, strict=True)
    ]
    return tuple(map(floats, pull(deltas)))


def _through_emit(cell, given, block):
    """The cotangents that outputs give to the carries and to the floats of params and xs.

    That of a leaf of the carry is None where no output reads it, such as the cell c of an LSTM.
    """
    leaves, tree = jax.tree.flatten(block.carries)
    xs = block.steps.xs

    def emit(params, xs, leaves):
        return cell.emit(params, tree.unflatten(leaves), xs)

    is_read = which_are_read(partial(emit, given.params, xs), leaves)

    # Differentiated with respect to the leaves that are read: for the others `vjp` would make an
    # array of zeros for all steps, which the scan would then read.
    def emit_read(params, xs, read):
        return emit(params, xs, merge(is_read, read, leaves))

    _, pull = jax.vjp(emit_read, given.params, xs, list(compress(leaves, is_read)))
    of_params, of_xs, of_read = pull(block.of_outputs)
    of_carries = merge(is_read, of_read, [None] * len(leaves))
    return of_carries, (floats(of_params), floats(of_xs))
