"""Attention after every step whose result is an input of the next step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.cells import _initializers as initializers
from jaxrnn.engine import checks
from jaxrnn.engine.inside import one_step
from jaxrnn.engine.keys import fold_in
from jaxrnn.engine.masking import held, restarted, select, zero_masked
from jaxrnn.engine.precision import compute_dtype, in_compute_dtype
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.starts import refuse_starts
from jaxrnn.factories import model_factory
from jaxrnn.seq2seq._attention_cell import check_can_attend
from jaxrnn.seq2seq._cross_attention import Attended, Memory, cross_attention, look
from jaxrnn.seq2seq._scores import Score
from jaxrnn.types import Cell, Layer, Rollout, Steps


class InputFeedingParams(NamedTuple):
    """`cell`, `score`, and `kernel [M+H, H]`, which mixes the context and the output."""

    cell: Any
    score: Any
    kernel: Any
    roles = {"kernel": "recurrent"}


class InputFeedingCarry(NamedTuple):
    """`cell`, the cell's carry; `memory`, the source; and `attended [..., H]`, the last h̃."""

    cell: Any
    memory: Memory
    attended: Any


@model_factory
def input_feeding(
    cell: Cell | Layer, score: Score, num_source_steps: int, num_memory: int
) -> Layer:
    """Attends after every step, and feeds what it made of the context to the next step.

        dₜ = cell(dₜ₋₁, [xₜ, h̃ₜ₋₁]),  αₜⱼ = softmaxⱼ(sₜⱼ),  cₜ = Σⱼ αₜⱼ mⱼ,  h̃ₜ = tanh([cₜ, dₜ] W)

    Luong et al. 2015 (arXiv:1508.04025), section 3.3; h̃₀ = 0. So a step knows where the steps
    before it have looked, which it does not with `cross_attention`. The query is the output of
    the same step, where `attention_cell` looks with the state before. As there, steps run one after
    another, no step changes the source, a reset drops it, and without a real source step c = 0.

    Args:
        cell: what steps: a cell without noise, or a causal layer in place of one, such as
            `serial(lstm(H), lstm(H))`. A layer draws its noise for every step anew.
        score: `dot_score(A)` or `additive_score(A)`.
        num_source_steps: S; 0 is a source without a step.
        num_memory: M, the width of the source.

    Returns:
        The layer, `[..., D] -> [..., H]`, carry `InputFeedingCarry`, info `Attended(weights)`. It
        runs in promote(params, float32); `kernel` has the dtype of the score's parameters.

    Raises:
        TypeError: `cell` is neither a Cell nor a Layer, `score` is not a Score or a size not an
            int.
        ValueError: `cell` is not causal, is a cell that draws noise, reads anything but one
            vector a step, or (in `init`) has a width that depends on what it reads;
            `num_source_steps` is below 0 or `num_memory` below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> score = jr.dot_score(4)
        >>> layer = jr.input_feeding(jr.gru(8), score, num_source_steps=6, num_memory=5)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> memory = jr.source_memory(score, params.score, jnp.ones((2, 6, 5)))
        >>> carry = layer.initial_carry(params, (2,))._replace(memory=memory)
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 7, 3)), carry=carry)
        >>> rollout.outputs.shape, jr.attention_weights(rollout).shape
        ((2, 7, 8), (2, 7, 6))
    """
    stepping = check_can_be_fed(cell, "cell")
    looking = cross_attention(score, num_source_steps, num_memory)

    def init(key, num_inputs):
        cell_key, score_key, kernel_key = jax.random.split(key, 3)
        width = _width(stepping, num_inputs)
        score_params = score.init(score_key, width, num_memory)
        dtypes = [leaf.dtype for leaf in jax.tree.leaves(score_params)] or [jnp.float32]
        kernel = initializers.input_kernel(
            kernel_key, num_memory + width, width, jnp.result_type(*dtypes)
        )
        return InputFeedingParams(stepping.init(cell_key, num_inputs + width), score_params, kernel)

    def initial_carry(params, batch_shape=()):
        return InputFeedingCarry(
            stepping.initial_carry(params.cell, batch_shape),
            looking.initial_carry(params.score, batch_shape),
            jnp.zeros((*batch_shape, params.kernel.shape[1]), compute_dtype(params)),
        )

    def unroll(params, carry, steps, key):
        refuse_starts(carry, "input_feeding")
        xs = zero_masked(steps.mask, in_compute_dtype(params, checks.one_array(steps.xs, "xs")))
        num_steps, batch_shape = xs.shape[0], xs.shape[1:-1]
        fresh = initial_carry(params, batch_shape)

        def advance(at, inputs):
            state, attended, dropped = at
            index, (x, mask, reset) = inputs
            attended = restarted(attended, fresh.attended, reset)
            dropped = dropped if reset is None else dropped | reset
            read = Steps(jnp.concatenate([x, attended], axis=-1), mask, reset)
            rollout = one_step(stepping, params.cell, state, read, fold_in(key, index))
            d = in_compute_dtype(params, rollout.outputs)
            context, weights = look(score, params.score, carry.memory, d[None], dropped[None])
            y = jnp.tanh(jnp.concatenate([context[0], d], axis=-1) @ params.kernel)
            return (rollout.carry, held(y, attended, mask), dropped), (y, weights[0])

        start = carry.cell, carry.attended, jnp.zeros(batch_shape, bool)
        start = varying_like(start, (params, carry, steps))
        inputs = jnp.arange(num_steps), steps._replace(xs=xs)
        (state, attended, dropped), (ys, weights) = lax.scan(advance, start, inputs)
        memory = carry.memory
        if steps.reset is not None:
            memory = select(dropped, fresh.memory, memory)
        info = Attended(zero_masked(steps.mask, weights))
        return Rollout(InputFeedingCarry(state, memory, attended), ys, info)

    return Layer(
        init=init,
        initial_carry=initial_carry,
        unroll=unroll,
        num_outputs=lambda num_inputs: _width(stepping, num_inputs),
        roles=InputFeedingParams(stepping.roles, score.roles, "recurrent"),
    )


def check_can_be_fed(model: Cell | Layer, name: str) -> Layer:
    """The model as a layer; raises unless it can read what was made of its last output."""
    layer = as_layer(model, name)
    if not layer.causal:
        raise ValueError(f"{name} must be causal: it reads what was made of its last output.")
    check_can_attend(model, name)
    return layer


def _width(layer, num_inputs):
    """H, which is also the width of what is fed back, so it must not depend on that."""
    width = layer.num_outputs(num_inputs)
    fed = layer.num_outputs(num_inputs + width)
    if fed != width:
        raise ValueError(
            "cell must have as many outputs whatever the width of its inputs, to be fed what "
            f"was made of them, got {width} and {fed}."
        )
    return width
