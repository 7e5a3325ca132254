"""The derivative rule of `sequential` for cells with a `Split`: weight gradients by many steps."""

from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from jaxrnn.engine import checks
from jaxrnn.engine.evaluators.sequential.blocks import block_size, scan_blocks
from jaxrnn.engine.evaluators.sequential.plain_scan import plain_scan
from jaxrnn.engine.evaluators.sequential.tangents import (
    add,
    instantiated,
    is_inexact,
    merge,
    nonzero,
    push,
    which_are_read,
)
from jaxrnn.engine.masking import Restart, held, restarted, taken
from jaxrnn.engine.precision import in_compute_dtype, project
from jaxrnn.engine.sharding import varying_like
from jaxrnn.types import Array, Carry, Cell, Params, Split, Steps

# Runs again, for a gradient, what it wraps, and stores nothing of it. The barriers of `prevent_cse`
# would only cost time: what runs again is in a loop of its own, which no compiler merges with the
# first run.
_recomputed = partial(jax.checkpoint, prevent_cse=False)


def derivative_rule(
    cell: Cell, scan_unroll: int, params: Params, initial: Carry, carry: Carry, steps: Steps
) -> tuple[Carry, Any]:
    """`plain_scan` with its own derivative where `advance` is a `Split`.

        u̇ₜ = (∂mix/∂h) ḣₜ₋₁ + vₜ,   ḣₜ = (∂update/∂h) ḣₜ₋₁ + (∂update/∂u) u̇ₜ
        vₜ = (∂mix/∂params) ṗ + (∂mix/∂x) ẋₜ

    A dot is a tangent. vₜ needs no tangent of the carry, so it is computed for a block of steps at
    once. JAX transposes this map, pass by pass, and that is the reverse mode:

        δₜ = (∂update/∂u)ᵀ λₜ,   λₜ₋₁ = (∂update/∂h)ᵀ λₜ + (∂mix/∂h)ᵀ δₜ
        ∂L/∂params = Σₜ (∂mix/∂params)ᵀ δₜ

    λₜ is the cotangent of the carry hₜ and δₜ that of uₜ. Autodiff of a scan adds a matrix of the
    size of the weights at every step. Here the backward scan computes only λ and δ, and the sum
    over a block of steps is one product for each matrix. The rule stores u and the carries, once:
    outputs that are carries are the same arrays. Carries that hold ints, symbolic shapes, and
    cells that close over traced arrays or contain a `jax.custom_vjp` are left to autodiff.

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
    # Without a derivative the plain scan runs, which stores nothing.
    run = jax.custom_jvp(partial(plain_scan, cell, scan_unroll))
    run.defjvp(partial(_with_tangents, cell, scan_unroll), symbolic_zeros=True)
    # Under shard_map a cotangent must vary over the same mesh axes as its argument. Parameters that
    # all devices share have cotangents that differ between devices, so every argument is made to
    # vary here, outside of the rule; the transpose of that sums over the devices.
    return run(*varying_like(given, given))


class _Given(NamedTuple):
    """The differentiable arguments of the rule, or their tangents.

    `initial` is what a reset returns to.
    """

    params: Params
    initial: Carry
    carry: Carry
    steps: Any


class _Shared(NamedTuple):
    """What all blocks read: params, what a reset returns to, and the tangents of both."""

    params: Params
    initial: Carry
    params_dot: list[Array | None]
    initial_dot: Carry


class _Block(NamedTuple):
    """A block of steps, time first: the carry after each, its u, and the tangents of xs."""

    steps: Steps
    carries: Carry
    u: Any
    xs_dot: list[Array | None]


def _has_rule(cell, given):
    """Whether the rule applies; otherwise autodiff of the plain scan is right as well."""
    if not isinstance(cell.advance, Split):
        return False
    # The scan of the tangents carries one for every leaf, and an int has none.
    if not all(map(is_inexact, jax.tree.leaves(given.carry))):
        return False
    # A symbolic shape of `jax.export` cannot be cut into blocks.
    sizes = {size for leaf in jax.tree.leaves((given.carry, given.steps)) for size in leaf.shape}
    if any(map(checks.is_symbolic, sizes)):
        return False

    def step(params, carry, x):
        return cell.emit(params, cell.advance(params, carry, project(cell, params, x)), x)

    # An array that the cell closes over is a constant of its program. If it is traced, it may be
    # one that the caller differentiates, and a custom rule has no argument to give it a gradient.
    x = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), given.steps.xs)
    program = jax.make_jaxpr(step)(given.params, given.carry, x)
    if any(isinstance(const, Tracer) for const in program.consts):
        return False
    # A custom_vjp inside of the cell has no tangents for this rule to compute with.
    return not any(name.startswith("custom_vjp_call") for name in _primitives(program.jaxpr))


def _primitives(jaxpr):
    """The names of the primitives of a program and of the programs in it."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for leaf in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(leaf, "jaxpr", leaf)
            if hasattr(inner, "eqns"):
                yield from _primitives(inner)


def _mix(cell, params, before, x):
    return cell.advance.mix(params, before, project(cell, params, x))


def _with_tangents(cell, scan_unroll, primals, tangents):
    """`((carry, outputs), their tangents)`, by a map of the tangents that JAX can transpose."""
    given = _Given(*primals)
    results, carries, u = _stored_scan(cell, scan_unroll, given)
    num_batch_axes = _num_batch_axes(cell, given)
    num_steps = jax.tree.leaves(given.steps.xs)[0].shape[0]
    size = block_size(num_steps, jax.tree.leaves(given.carry)[0].shape[:num_batch_axes])
    # A block reads the carry before its first step, which is the last carry of the block before.
    # The end of the last block starts nothing, hence -1.
    ends = jax.tree.map(lambda leaf: leaf[size - 1 : -1 : size], carries)
    starts = jax.tree.map(_prepended, given.carry, ends)
    # All steps as one block would need z and δ of the whole sequence at once; single steps would
    # add a matrix each, as autodiff does. What a block computes is not stored for the reverse mode.
    through = _recomputed(partial(_through_block, cell, scan_unroll, num_batch_axes))

    def linear(dots):
        carry_dot = varying_like(instantiated(dots.carry, given.carry), given)
        initial_dot = instantiated(dots.initial, given.initial)
        shared = _Shared(given.params, given.initial, dots.params, initial_dot)
        blocks = _Block(given.steps, carries, u, dots.steps)
        return scan_blocks(partial(through, shared), carry_dot, blocks, starts, size)

    dots = _Given(*map(nonzero, tangents))
    # Flags come after xs and have no tangents.
    dots = dots._replace(steps=dots.steps[: len(jax.tree.leaves(given.steps.xs))])
    # The derivative of a linear map is the map itself. It is taken all the same, because jax 0.8
    # transposes only a scan that it has differentiated.
    zeros = varying_like(jax.tree.map(jnp.zeros_like, dots), dots)
    carry_dot, outputs_dot = jax.jvp(linear, (zeros,), (dots,))[1]
    return results, (carry_dot, instantiated(outputs_dot, results[1]))


def _stored_scan(cell, scan_unroll, given):
    """`((carry, outputs), carries, u)`: the plain scan, which also stores every carry and its u.

    u is stored because it holds the products with the recurrent kernel, the expensive part of a
    step. `update` is pointwise, so the backward scan computes it again from the carry and u.
    """

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
    return (carry, cell.emit(given.params, carries, given.steps.xs)), carries, u


def _num_batch_axes(cell, given):
    # Only the cell knows how many axes of a carry are features: a matrix memory has two.
    one = jax.eval_shape(cell.initial_carry, given.params)
    return jax.tree.leaves(given.carry)[0].ndim - jax.tree.leaves(one)[0].ndim


def _prepended(first, leaves):
    return jnp.concatenate([first[None], leaves])


def _through_block(cell, scan_unroll, num_batch_axes, shared, carry_dot, inputs):
    """`(the tangents of the carry after the block, those of the leaves of its outputs)`.

    There are three passes: all mixes at once, whose transpose sums over the steps; the recursion
    of u̇ and ḣ step by step, which is all that has to be sequential; and all readouts at once.
    """
    first, block = inputs
    params, initial, _, initial_dot = shared
    xs, mask, reset = block.steps
    # The carry that each step read: that of the step before, or what a reset put in its place.
    befores = jax.tree.map(lambda leaf, leaves: _prepended(leaf, leaves[:-1]), first, block.carries)
    if reset is not None:
        befores = jax.vmap(restarted, (0, None, 0))(befores, initial, reset)
    # Of many starts each step reads one. They are taken for all steps at once, so that the
    # transpose adds to all of them once in a block and not at every step.
    fresh_dot = None
    if isinstance(reset, Restart):
        reset, fresh_dot = reset.flag, taken(initial_dot, reset.number)
    # By vmap every leaf of z has a time axis to scan over, also one that does not depend on x.
    z = jax.vmap(partial(project, cell, params))(xs)
    entering = _through_mix(cell, num_batch_axes, shared, befores, block)
    leaves, tree = jax.tree.flatten(block.carries)

    def emit(params, xs, leaves):
        return cell.emit(params, tree.unflatten(leaves), xs)

    # Some leaves are read by no output, such as the cell c of an LSTM.
    is_read = which_are_read(partial(emit, params, xs), leaves)

    @_recomputed
    def step(carry_dot, inputs):
        before, u, entering, z, mask, reset, fresh_dot = inputs
        start_dot = initial_dot if fresh_dot is None else fresh_dot
        before_dot = restarted(carry_dot, start_dot, reset)
        dots = jax.tree.leaves(before_dot)
        # Where mix is linear in the carry nothing reads its value, and XLA drops that product.
        u_dot = push(lambda carry: cell.advance.mix(params, carry, z), (before,), dots)
        after_dot = push(cell.advance.update, (before, u), [*dots, *add(u_dot, entering)])
        carry_dot = held(tree.unflatten(after_dot), before_dot, mask)
        # Only what is read: the transpose would make an array of zeros for each of the others.
        return carry_dot, list(compress(jax.tree.leaves(carry_dot), is_read))

    inputs = befores, block.u, entering, z, mask, reset, fresh_dot
    carry_dot, read_dot = lax.scan(step, carry_dot, inputs, unroll=scan_unroll)

    def emit_read(params, xs, read):
        return emit(params, xs, merge(is_read, read, leaves))

    primals = params, xs, list(compress(leaves, is_read))
    return carry_dot, push(emit_read, primals, [*shared.params_dot, *block.xs_dot, *read_dot])


def _through_mix(cell, num_batch_axes, shared, befores, block):
    """The tangents that params and xs give to the leaves of u, for a whole block."""

    # Time and batch become one axis: a product that sums over two axes makes XLA copy its operands.
    def flat(leaf):
        return leaf.reshape(-1, *leaf.shape[num_batch_axes + 1 :])

    def mix(params, xs):
        return _mix(cell, params, jax.tree.map(flat, befores), jax.tree.map(flat, xs))

    # A parameter vector that mix hands on to `update` has no axes for time and batch, so its
    # tangent is the same at every step. With one step the sizes agree and both ways are the same.
    def at_all_steps(dot, u):
        if dot is None:
            return None
        return dot.reshape(u.shape) if dot.size == u.size else jnp.broadcast_to(dot, u.shape)

    primals = shared.params, block.steps.xs
    u_dot = push(mix, primals, [*shared.params_dot, *block.xs_dot])
    return list(map(at_all_steps, u_dot, jax.tree.leaves(block.u)))
