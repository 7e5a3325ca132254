"""A cell that looks at a source before every step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.masking import guarded, restarted, select, zero_masked
from jaxrnn.engine.precision import in_compute_dtype, project
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.starts import refuse_starts
from jaxrnn.factories import model_factory
from jaxrnn.seq2seq._cross_attention import Attended, Memory, cross_attention, look
from jaxrnn.seq2seq._scores import Score
from jaxrnn.types import Cell, Layer, Rollout


class AttentionCellParams(NamedTuple):
    """`cell` and `score`."""

    cell: Any
    score: Any


class AttentionCellCarry(NamedTuple):
    """`cell`, the cell's carry, and `memory`, the source as `source_memory` makes it."""

    cell: Any
    memory: Memory


@model_factory
def attention_cell(cell: Cell, score: Score, num_source_steps: int, num_memory: int) -> Layer:
    """Looks at a source with the last state, and steps with what it found.

        qₜ = emit(hₜ₋₁),  αₜⱼ = softmaxⱼ(sₜⱼ) over the real source steps,  cₜ = Σⱼ αₜⱼ mⱼ
        hₜ = advance(hₜ₋₁, [xₜ, cₜ]),  yₜ = [emit(hₜ), cₜ]

    Bahdanau et al. 2015 (arXiv:1409.0473), for any cell: the context enters the recurrence, so
    a step can see where the steps before it have looked. The query is what the cell emits of its
    carry, and of x = 0 where it emits of x too; in the paper the readout also sees the token
    before, and the candidate of the GRU has another order of gate and product. `cross_attention`
    looks with the output of the same step, outside of the recurrence, and computes all steps at
    once. As there, no step changes the source, a reset drops it, and without a real source step
    c = 0. Training holds the scores of all pairs of steps: memory O(T · S).

    Args:
        cell: What steps; without noise of its own.
        score: `dot_score(A)` or `additive_score(A)`.
        num_source_steps: S; 0 is a source without a step.
        num_memory: M, the width of the source.

    Returns:
        The layer, `[..., D] -> [..., H+M]`, carry `AttentionCellCarry`, info `Attended(weights)`.
        It runs in promote(params, float32).

    Raises:
        TypeError: `cell` is not a Cell, `score` not a Score or a size not an int.
        ValueError: `num_source_steps` is below 0 or `num_memory` below 1; or the cell draws noise,
            or reads or (while tracing) emits anything but one vector a step.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> score = jr.additive_score(4)
        >>> layer = jr.attention_cell(jr.gru(8), score, num_source_steps=6, num_memory=5)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> carry = layer.initial_carry(params, (2,))
        >>> memory = jr.source_memory(score, params.score, jnp.ones((2, 6, 5)))
        >>> carry = carry._replace(memory=memory)
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 7, 3)), carry=carry)
        >>> rollout.outputs.shape, jr.attention_weights(rollout).shape
        ((2, 7, 13), (2, 7, 6))
    """
    checks.is_cell(cell)
    check_can_attend(cell, "cell")
    looking = cross_attention(score, num_source_steps, num_memory)

    def init(key, num_inputs):
        cell_key, score_key = jax.random.split(key)
        return AttentionCellParams(
            cell.init(cell_key, num_inputs + num_memory),
            score.init(score_key, cell.num_outputs(num_inputs + num_memory), num_memory),
        )

    def initial_carry(params, batch_shape=()):
        return AttentionCellCarry(
            cell.initial_carry(params.cell, batch_shape),
            looking.initial_carry(params.score, batch_shape),
        )

    def unroll(params, carry, steps, key):
        del key
        refuse_starts(carry, "attention_cell")
        mask, reset = steps.mask, steps.reset
        xs = zero_masked(mask, in_compute_dtype(params, checks.one_array(steps.xs, "xs")))
        fresh = initial_carry(params, xs.shape[1:-1])
        nothing = jnp.zeros((*xs.shape[1:-1], xs.shape[-1] + num_memory), xs.dtype)

        def advance(at, one):
            h, dropped = at
            x, mask, reset = one
            h = restarted(h, fresh.cell, reset)
            dropped = dropped if reset is None else dropped | reset
            query = _one_vector(cell, cell.emit(params.cell, h, nothing), nothing.shape)
            context, weights = look(score, params.score, carry.memory, query[None], dropped[None])
            read = jnp.concatenate([x, context[0]], axis=-1)
            z = project(cell, params.cell, read)
            h = guarded(cell, params.cell, None, h, z, mask, None)
            y = jnp.concatenate([cell.emit(params.cell, h, read), context[0]], axis=-1)
            return (h, dropped), (y, weights[0])

        start = carry.cell, jnp.zeros(xs.shape[1:-1], bool)
        start = varying_like(start, (params, carry, steps))
        (h, dropped), (ys, weights) = lax.scan(advance, start, steps._replace(xs=xs))
        memory = carry.memory if reset is None else select(dropped, fresh.memory, carry.memory)
        return Rollout(AttentionCellCarry(h, memory), ys, Attended(zero_masked(mask, weights)))

    return Layer(
        init=init,
        initial_carry=initial_carry,
        unroll=unroll,
        num_outputs=lambda num_inputs: cell.num_outputs(num_inputs + num_memory) + num_memory,
        roles=AttentionCellParams(cell.roles, score.roles),
    )


def check_can_attend(model: Cell | Layer, name: str) -> None:
    """Raises ValueError unless the model reads one vector a step and is not a cell with noise."""
    if isinstance(model, Cell) and model.prepare is not None:
        raise ValueError(f"{name} must draw no noise, to attend with.")
    if model.num_feature_axes != 1:
        raise ValueError(
            f"{name} must read one vector a step, to attend with, "
            f"got num_feature_axes {model.num_feature_axes}."
        )


def _one_vector(cell, y, shape_read):
    *batch_shape, num_inputs = shape_read
    came, wanted = jax.tree.map(np.shape, y), (*batch_shape, cell.num_outputs(num_inputs))
    if came != wanted:
        raise ValueError(f"cell must emit one vector a step {wanted}, to attend with, got {came}.")
    return y
