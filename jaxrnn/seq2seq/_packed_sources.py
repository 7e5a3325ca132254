"""Rows that hold several sources, and the sequences written from them, one from each."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import Call, compiled
from jaxrnn.engine.inside import one_step, step_by_step
from jaxrnn.engine.keys import fold_in
from jaxrnn.engine.masking import restarted, taken, zero_masked
from jaxrnn.engine.parameters import check_params, width_of
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.starts import refuse_starts
from jaxrnn.engine.time import backwards, time_back, time_first
from jaxrnn.engine.unroll import finished_outputs
from jaxrnn.factories import model_factory
from jaxrnn.seq2seq._cross_attention import attended_in
from jaxrnn.seq2seq._writers import Parts
from jaxrnn.types import Layer, Rollout, Steps


class PackedCarry(NamedTuple):
    """Where a row is among its sources, and what each of its sequences starts from.

    Attributes:
        index: int `[...]`, the number of the sequence that is being written; -1 before the first.
        source_index: int `[..., S]`, the number of the source that each source step belongs to.
        starts: The decoder's first carry after each source, leaves `[..., S+1, ...]`; the last
            entry is that of a sequence without a source.
        memory: The `Memory` of all sources; None without attention.
        carry: The carry of all that writes, with None for the memory.
    """

    index: Any
    source_index: Any
    starts: Any
    memory: Any
    carry: Any


class ReadSources(NamedTuple):
    """What an encoder made of rows of several sources.

    Attributes:
        mask: bool `[..., S]`, of the outputs.
        index: int `[..., S]`, the number of the source that each output belongs to.
        outputs: `[..., S, M]`.
        carries: The carry after each source, leaves `[..., S+1, ...]`; the last entry, and that of
            every number without a source, is the initial carry. None where it was not asked for.
    """

    mask: Any
    index: Any
    outputs: Any
    carries: Any


def sequence_index(mask: Any, reset: Any, before: Any) -> Any:
    """The number of the sequence that each step belongs to.

    A reset begins a sequence, and so does a real step where none has begun, so that it makes no
    difference whether the first sequence of a row is flagged.

    Args:
        mask: bool `[T, *batch]`.
        reset: bool `[T, *batch]`.
        before: int `[*batch]`, the number before the first step; -1 where none has begun.

    Returns:
        int32 `[T, *batch]`.

    Example:
        >>> mask, reset = jnp.array([0, 1, 1, 1], bool), jnp.array([0, 0, 1, 1], bool)
        >>> sequence_index(mask, reset, jnp.array(-1))
        Array([-1,  0,  1,  2], dtype=int32)
    """
    flagged = jnp.cumsum(reset, axis=0, dtype=jnp.int32)
    begun = jnp.cumsum(mask & (flagged == 0), axis=0) > 0
    return (before + flagged + ((before < 0) & begun)).astype(jnp.int32)


def read_sources(
    layer: Layer, params: Any, steps: Steps, reverse: bool, with_carries: bool, key: Any
) -> ReadSources:
    """Runs an encoder over rows of several sources.

    Args:
        layer: The encoder, causal where its carries are wanted.
        params: Its parameters.
        steps: The sources, leaves `[..., S, D]`, mask None or `[..., S]`, reset `[..., S]`.
        reverse: Whether every source is read from its end.
        with_carries: Whether its carry after each source is wanted; it then runs step by step.
        key: Randomness, drawn anew for every step where it runs step by step.

    Returns:
        The ReadSources.
    """
    steps = Call.checked(layer, *steps, time_major=False).steps
    if steps.mask is None:
        steps = steps._replace(mask=jnp.ones_like(steps.reset))
    check_params(layer, params, width_of(layer, steps.xs), name="params.encoder")
    arrays = params, steps, key
    return compiled(_read_sources, (layer, reverse, with_carries), arrays)(*arrays)


def _read_sources(layer, reverse, with_carries, params, steps, key):
    *batch_shape, _ = steps.reset.shape
    axis = len(batch_shape)
    steps = time_first(steps, axis)
    steps = steps._replace(xs=zero_masked(steps.mask, steps.xs))
    before = jnp.full(batch_shape, -1)
    index = sequence_index(steps.mask, steps.reset, before)
    initial = varying_like(layer.initial_carry(params, tuple(batch_shape)), (params, steps, key))
    run = _with_carries(layer) if with_carries else layer
    run = backwards(run) if reverse else run
    rollout, carries = run.unroll(params, initial, steps, key), None
    if with_carries:
        outputs, carries = rollout.outputs
        rollout = rollout._replace(outputs=outputs)
        carries = _after_each(index, carries, initial, reverse)
    made = finished_outputs(layer, rollout, steps)
    index = sequence_index(made.mask, made.reset, before)
    return time_back(ReadSources(made.mask, index, made.xs, carries), axis)


def _with_carries(layer):
    """The layer run step by step, with outputs `(y, carry)`."""
    return layer._replace(unroll=functools.partial(step_by_step, layer))


def _after_each(index, carries, initial, reverse):
    """The carry at the step of each source that was read last; else the initial carry.

    Args:
        index: int `[S, *batch]`.
        carries: Leaves `[S, *batch, ...]`.
        initial: Leaves `[*batch, ...]`.
        reverse: Whether the first step of a source was read last.

    Returns:
        Leaves `[S+1, *batch, ...]`.
    """
    num_steps, *batch_shape = index.shape
    numbers = jnp.arange(num_steps + 1).reshape(-1, 1, *[1] * len(batch_shape))
    steps = jnp.arange(num_steps).reshape(-1, *[1] * len(batch_shape))
    if reverse:
        last = jnp.where(index == numbers, steps, num_steps).min(1, initial=num_steps)
    else:
        last = jnp.where(index == numbers, steps, -1).max(1, initial=-1)
    # S and -1 are both the entry that is put after the last step.
    with_initial = jax.tree.map(
        lambda leaf, last: jnp.concatenate([leaf, last[None]]), carries, initial
    )
    return taken(with_initial, last)


@model_factory
def packed_stack(stack: Layer, parts: Parts, num_source_steps: int) -> Layer:
    """Writes sequence k of a row from source k: a reset moves on to the next source.

    At the start of sequence k all that writes has the carry that a row with source k alone starts
    from, and it sees the memory of that source alone. So it runs step by step.

    Args:
        stack: The layers that write from one source.
        parts: Where the source enters.
        num_source_steps: S.

    Returns:
        The layer, carry `PackedCarry`, info every `Attended` of the stack, as a list.
    """

    def initial_carry(params, batch_shape=()):
        carry = stack.initial_carry(params, batch_shape)
        nothing = jnp.full((*batch_shape, num_source_steps), -1, jnp.int32)
        starts = parts.found(stack.initial_carry(params, (*batch_shape, num_source_steps + 1)))[0]
        index = jnp.full(batch_shape, -1, jnp.int32)
        _, memory = parts.found(carry)
        return PackedCarry(index, nothing, starts, memory, without_memory(carry, parts))

    def unroll(params, carry, steps, key):
        refuse_starts(carry, "a decoder of packed sources")
        shape = num_steps, *batch_shape = checks.leading_shape(steps.xs, stack.num_feature_axes)
        mask = jnp.ones(shape, bool) if steps.mask is None else steps.mask
        reset = jnp.zeros(shape, bool) if steps.reset is None else steps.reset
        index = sequence_index(mask, reset, carry.index)
        before = jnp.concatenate([carry.index[None], index])
        has_source = (index >= 0) & (index < num_source_steps)
        starts = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, len(batch_shape), 0), carry.starts)
        starts = taken(starts, jnp.where(has_source, index, num_source_steps))
        fresh = stack.initial_carry(params, tuple(batch_shape))

        def advance(state, inputs):
            t, one, number, begins, start = inputs
            state = restarted(state, parts.placed(fresh, start, None), begins)
            memory = carry.memory
            if memory is not None:
                own = carry.source_index == number[..., None]
                memory = memory._replace(mask=memory.mask & own)
            state = parts.placed(state, parts.found(state)[0], memory)
            rollout = one_step(stack, params, state, one, fold_in(key, t))
            weights = jax.tree.map(lambda leaf: leaf[0], attended_in(rollout.info))
            return without_memory(rollout.carry, parts), (rollout.outputs, weights)

        steps = steps._replace(reset=None)
        inputs = jnp.arange(num_steps), steps, index, index != before[:-1], starts
        state = varying_like(carry.carry, (params, carry, inputs, key))
        state, (outputs, weights) = lax.scan(advance, state, inputs)
        return Rollout(carry._replace(index=before[-1], carry=state), outputs, weights)

    return stack._replace(initial_carry=initial_carry, unroll=unroll)


def without_memory(carry: Any, parts: Parts) -> Any:
    """The carry of a stack with None for the memory, which no step changes."""
    return parts.placed(carry, parts.found(carry)[0], None)
