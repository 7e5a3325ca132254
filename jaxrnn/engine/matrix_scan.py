"""The recurrence of matrix memories, step by step or by chunks of steps."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask, expand_mask, reached, select, zero_masked
from jaxrnn.engine.matrix_chunk import MatrixSteps, matrix_chunk
from jaxrnn.engine.sharding import varying_like
from jaxrnn.types import Steps


def matrix_scan(
    query: Any,
    key: Any,
    value: Any,
    *,
    log_decay: Any = None,
    erase: Any = None,
    state: Any = None,
    initial: Any = None,
    mask: Any = None,
    reset: Any = None,
    read_before: bool = False,
    chunk_size: int | None = 64,
) -> tuple[Any, Any]:
    """Runs matrix memories that decay, are erased, written and read, time first.

        S' = rₜ ? initial : Sₜ₋₁                       S [K, V]
        S  = exp(gₜ) ⊙ S',  then  S + kⱼ (vⱼ - eⱼᵀ S)ᵀ  for each write j = 1 … n of the step
        Sₜ = mₜ ? S : S',   yₜ = mₜ ? qₜᵀ Sₜ : 0

    The chunks are those of linear attention (Yang et al. 2024, arXiv:2312.06635) and of the WY form
    of erasing writes (Yang et al. 2024, arXiv:2406.06484): products of matrices inside a chunk of C
    steps, one state between two, and each chunk is computed again for its gradient. So it takes
    O(T C) time and O(T / C) memory for states, T C for what a chunk computes. Everything runs in
    promote(inputs, float32).

    NaN and Inf in an input reach the memory of their row, hence all its features, up to the next
    reset, and no other output; a query reaches its own output.

    Args:
        query: `[T, ..., K]`. Axes between time and features may be 1 where rows share a query, as
            in the other arrays.
        key: `[T, ..., K]`, or `[T, ..., n, K]` for n writes in each step.
        value: `[T, ..., V]`, or `[T, ..., n, V]`.
        log_decay: g, `[T, ...]`, or `[T, ..., K]` with one for each key channel; T may be 1. It is
            not positive: above 0 its exponentials may overflow; -inf forgets. None decays nothing.
        erase: `[T, ..., K]`, or `[T, ..., n, K]`: what it finds in the memory is taken off the
            value before it is written. None erases nothing.
        state: the memory before the first step, `[..., K, V]`; None is `initial`.
        initial: the memory that a reset returns to, broadcast against `state`; None is zero.
        mask: bool `[T, ...]` over any of the leading axes; False keeps the memory and gives y = 0.
        reset: bool `[T, ...]`; True starts from `initial` before the step, and stops NaN.
        read_before: whether yₜ = qₜᵀ S', which sees neither the decay nor the writes of its step.
        chunk_size: C, steps of a chunk; 1 is a loop over the steps, as is a symbolic T of
            `jax.export`; None is one chunk for all.

    Returns:
        The outputs `[T, ..., V]`, and the memory `[..., K, V]` after the last step.

    Raises:
        ValueError: Shapes disagree, or `chunk_size` is below 1.
        TypeError: An array is complex, a flag array is not bool, int or float, or an option is not
            of its type.

    Example:
        >>> key, value = jnp.eye(3), jnp.array([[1.0], [2.0], [3.0]])
        >>> outputs, state = matrix_scan(jnp.ones((3, 3)), key, value, log_decay=jnp.log(0.5) * key)
        >>> outputs[:, 0], state[:, 0]
        (Array([1., 3., 6.], dtype=float32), Array([1., 2., 3.], dtype=float32))
    """
    checks.boolean(read_before, "read_before")
    if chunk_size is not None:
        checks.positive(chunk_size, "chunk_size")
    run = functools.partial(_run_and_read_before if read_before else _run, chunk_size)
    arrays = query, key, value, log_decay, erase
    return _evaluated(run, arrays, state, initial, mask, reset)


def matrix_pairs(
    steps: Steps, state: Any, *, query: Any, key: Any, value: Any, log_decay: Any, erase: Any = None
) -> tuple[Any, Any]:
    """`matrix_scan` in one chunk of finite numbers, for `Cell.pairwise`.

    `chunkwise` has cut the steps into chunks and keeps NaN away from the inputs of the cell, so
    nothing is looked for here. The arguments are those of `matrix_scan`, with at least one step.
    """
    arrays = query, key, value, log_decay, erase
    return _evaluated(_one_chunk, arrays, state, None, steps.mask, steps.reset)


def _evaluated(run, arrays, state, initial, mask, reset):
    shared, steps = _steps_of(*arrays)
    mask, reset = (
        None if flags is None else _flags(flags, shared, name)
        for flags, name in ((mask, "mask"), (reset, "reset"))
    )
    # Zeros keep the memory, write nothing and read nothing.
    steps = zero_masked(mask, steps)
    initial = None if initial is None else _memory(initial, shared, steps, "initial")
    if state is None:
        state = 0 if initial is None else initial.reshape(*shared[1:], *initial.shape[-2:])
    state = varying_like(_memory(state, shared, steps, "state"), (steps, reset, initial))
    last, outputs = run(state, initial, steps, reset)
    outputs = zero_masked(mask, outputs).reshape(*shared, outputs.shape[-1])
    return outputs, last.reshape(*shared[1:], *last.shape[-2:])


def _run(chunk_size, state, initial, steps, reset):
    num_steps = steps.query.shape[0]
    if checks.is_symbolic(num_steps) or min(num_steps, chunk_size or num_steps) <= 1:
        return lax.scan(functools.partial(_step, initial), state, (steps, reset))
    chunk = functools.partial(_shielded_chunk, initial)
    if chunk_size is None or num_steps <= chunk_size:
        return chunk(state, (steps, reset))

    def chunks_of(leaf):
        rest = -num_steps % chunk_size
        leaf = jnp.pad(leaf, [(0, rest)] + [(0, 0)] * (leaf.ndim - 1)) if rest else leaf
        return leaf.reshape(-1, chunk_size, *leaf.shape[1:])

    # The barriers of `prevent_cse` only cost time in a scan, as in `chunked`.
    chunk = jax.checkpoint(chunk, prevent_cse=False)
    last, outputs = lax.scan(chunk, state, jax.tree.map(chunks_of, (steps, reset)))
    return last, outputs.reshape(-1, *outputs.shape[2:])[:num_steps]


def _run_and_read_before(chunk_size, state, initial, steps, reset):
    # What a query finds before its step is what it would find after the step before.
    early = jnp.concatenate([steps.query[1:], jnp.zeros_like(steps.query[:1])])
    last, outputs = _run(chunk_size, state, initial, steps._replace(query=early), reset)
    first = _product(steps.query[:1], state)
    outputs = jnp.concatenate([first, outputs])[: len(outputs)]
    if reset is None:
        return last, outputs
    of_fresh = jnp.zeros_like(outputs) if initial is None else _product(steps.query, initial)
    return last, select(reset, of_fresh, outputs)


def _step(initial, state, inputs):
    steps, reset = inputs
    if reset is not None:
        state = jnp.where(expand_mask(reset, state), 0 if initial is None else initial, state)
    state = jnp.exp(steps.log_decay)[..., None] * state
    for write in range(steps.key.shape[-2]):
        value = steps.value[..., write, :]
        if steps.erase is not None:
            value = value - _product(steps.erase[..., write, :], state)
        state = state + steps.key[..., write, :, None] * value[..., None, :]
    return state, _product(steps.query, state)


def _product(vector, matrix):
    return jnp.einsum("...k,...kv->...v", vector, matrix)


def _shielded_chunk(initial, state, inputs):
    """`matrix_chunk` of finite numbers, with NaN put back where a loop over the steps has it.

    In a product of matrices every step touches every other one, and 0 · NaN is NaN.
    """
    steps, reset = inputs
    is_finite = jax.tree.map(jnp.isfinite, steps)._replace(log_decay=steps.log_decay < jnp.inf)
    spoils = jax.tree.map(lambda finite: ~finite.all(axis=range(3, finite.ndim)), is_finite)
    is_bad_state = ~jnp.isfinite(state).all(axis=(-2, -1))
    bad = functools.reduce(jnp.logical_or, jax.tree.leaves(spoils[1:]))
    bad = jnp.broadcast_to(bad, (len(bad), *is_bad_state.shape))
    is_lost = reached(bad, is_bad_state, reset)

    steps = jax.tree.map(lambda finite, leaf: jnp.where(finite, leaf, 0), is_finite, steps)
    state = jnp.where(expand_mask(is_bad_state, state), 0, state)
    last, outputs = _one_chunk(state, initial, steps, reset)
    last = jnp.where(expand_mask(is_lost[-1], last), jnp.nan, last)
    return last, jnp.where(expand_mask(is_lost | spoils.query, outputs), jnp.nan, outputs)


def _one_chunk(state, initial, steps, reset):
    steps, reset = jax.tree.map(_time_after_rows, (steps, reset))
    last, outputs = matrix_chunk(state, initial, steps, reset)
    return last, jnp.moveaxis(outputs, 2, 0)


def _time_after_rows(leaf):
    """`[C, B, H, ...] -> [B, H, C, ...]`, the writes of all steps in one axis."""
    leaf = jnp.moveaxis(leaf, 0, 2)
    return leaf if leaf.ndim < 5 else leaf.reshape(*leaf.shape[:2], -1, leaf.shape[-1])


def _steps_of(query, key, value, log_decay, erase):
    """The axes of time and rows, and the steps `[T, B, H, ...]`; H is the last axis of rows."""
    given = {"query": query, "key": key, "value": value, "log_decay": log_decay, "erase": erase}
    given = {name: checks.array(leaf, name) for name, leaf in given.items() if leaf is not None}
    if given["query"].ndim < 2:
        raise ValueError(f"query must have the shape [T, ..., K], got {given['query'].shape}.")
    dtype = jnp.result_type(jnp.float32, *given.values())
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(f"matrix_scan takes real arrays, got the dtype {dtype}.")

    width, ndim = given["query"].shape[-1], given["query"].ndim - 1
    writes = given["key"].shape[ndim:-1]
    has_decay_of_keys = "log_decay" in given and given["log_decay"].ndim > ndim
    features = {
        "query": (width,),
        "key": (*writes, width),
        "value": (*writes, given["value"].shape[-1]),
        "log_decay": (width,) if has_decay_of_keys else (),
        "erase": (*writes, width),
    }
    sizes = zip(*(given[name].shape[:ndim] for name in ("query", "key", "value")), strict=False)
    shared = tuple(max(size, key=lambda size: size != 1) for size in sizes)
    steps = {
        name: _in_two_axes(_fitted(leaf, shared, features[name], name), shared).astype(dtype)
        for name, leaf in given.items()
    }
    if not writes:
        steps |= {
            name: steps[name][..., None, :] for name in ("key", "value", "erase") if name in steps
        }
    decay = steps.get("log_decay", jnp.zeros((shared[0], 1, 1), dtype))
    steps["log_decay"] = decay if has_decay_of_keys else decay[..., None]
    return shared, MatrixSteps(**{"erase": None} | steps)


def _fitted(leaf, shared, features, name):
    """The leaf, whose axes before the features must broadcast to the shared ones."""
    leading, own = leaf.shape[: len(shared)], leaf.shape[len(shared) :]
    fits = len(leading) == len(shared) and own == features
    if not fits or any(size not in (1, want) for size, want in zip(leading, shared, strict=True)):
        raise ValueError(
            f"{name} must have the shape {(*shared, *features)}, with 1 for axes of time and rows "
            f"that are shared, got {leaf.shape}."
        )
    return leaf


def _in_two_axes(leaf, shared):
    """`[T, *rows, ...]` as `[T, B, H, ...]`, where B and H may be 1 to be shared."""
    num_steps, *lead, heads = (*shared, 1) if len(shared) == 1 else shared
    features = leaf.shape[len(shared) :]
    own = leaf.shape[1 : len(shared)] or (1,)
    lead = lead if any(size != 1 for size in own[:-1]) else [1] * len(lead)
    leaf = jnp.broadcast_to(
        leaf.reshape(leaf.shape[0], *own, *features), (num_steps, *lead, own[-1], *features)
    )
    return leaf.reshape(num_steps, math.prod(lead), own[-1], *features)


def _flags(flags, shared, name):
    ndim = np.ndim(flags)
    if not 1 <= ndim <= len(shared):
        raise ValueError(
            f"{name} must have the shape {shared}, or only its leading axes, got {np.shape(flags)}."
        )
    flags = as_mask(flags, shared[:ndim], name)
    return _in_two_axes(flags.reshape(*flags.shape, *(1,) * (len(shared) - ndim)), shared)


def _memory(matrix, shared, steps, name):
    """The memory `[B, H, K, V]`."""
    shape = (*shared[1:], steps.query.shape[-1], steps.value.shape[-1])
    matrix = checks.array(matrix, name)
    padded = (1,) * (len(shape) - matrix.ndim) + matrix.shape
    if len(padded) != len(shape) or any(
        size not in (1, want) for size, want in zip(padded, shape, strict=True)
    ):
        raise ValueError(f"{name} must broadcast to the shape {shape}, got {matrix.shape}.")
    matrix = jnp.broadcast_to(matrix, shape).astype(steps.value.dtype)
    heads = shape[-3] if len(shape) > 2 else 1
    return matrix.reshape(-1, heads, *shape[-2:])
