"""Attention to all that an encoder gave: the memory and the layer that reads it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks, precision
from jaxrnn.engine.masking import as_mask, select, zero_masked
from jaxrnn.engine.parameters import check_params
from jaxrnn.engine.precision import in_compute_dtype
from jaxrnn.engine.starts import refuse_starts
from jaxrnn.factories import model_factory
from jaxrnn.seq2seq._scores import Score
from jaxrnn.types import Layer, Rollout


class Memory(NamedTuple):
    """What a decoder looks at: `values [..., S, M]`, `keys [..., S, A]`, `mask` bool `[..., S]`."""

    values: Any
    keys: Any
    mask: Any


class Attended(NamedTuple):
    """The info of a layer that looks: `weights [T, ..., S]`, zero at masked steps of either side.

    `cross_attention`, `attention_cell` and `input_feeding` give it.
    """

    weights: Any


def source_memory(score: Score, params: Any, values: Any, mask: Any = None) -> Memory:
    """What a decoder looks at: an encoder's outputs, and their keys, made once.

    It is the carry of `cross_attention`, and `memory` in the carry of `attention_cell` and of
    `input_feeding`.

    Args:
        score: The score of the layer.
        params: The score's parameters: all that `cross_attention` has, `params.score` of
            `attention_cell`.
        values: `[..., S, M]`; S may be 0.
        mask: `[..., S]`, True = real. None: all are.

    Returns:
        `Memory(values, keys, mask)` in promote(params, float32), zero where masked.

    Raises:
        ValueError: The mask has another shape, or `values` another width than the parameters.
        TypeError: `score` is not a Score, the parameters are of another score, or the
            mask is not an array of flags.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> score = jr.dot_score(4)
        >>> params = score.init(jax.random.key(0), 3, 5)
        >>> jr.source_memory(score, params, jnp.ones((2, 6, 5))).keys.shape
        (2, 6, 4)
    """
    _check_score(score)
    values = checks.array(values, "values")
    checks.leading_shape(values, 1, "values")
    shape = values.shape[:-1]
    mask = jnp.ones(shape, bool) if mask is None else as_mask(mask, shape)
    check_params(score, params, None, None)
    values = in_compute_dtype(params, zero_masked(mask, values))
    return Memory(values, zero_masked(mask, score.keys(params, values)), mask)


@model_factory
def cross_attention(score: Score, num_source_steps: int, num_memory: int) -> Layer:
    """Looks at a source from every step: x and the mean of what it finds, side by side.

        αₜⱼ = softmaxⱼ(sₜⱼ) over the real source steps,  cₜ = Σⱼ αₜⱼ mⱼ,  yₜ = [xₜ, cₜ]

    The source is in the carry, `Memory` as `source_memory` makes it; no step changes it and a
    reset drops it, as a new sequence has another source. Without a real source step c = 0.
    Luong et al. 2015 (arXiv:1508.04025), global attention: the query is the decoder's output of
    the same step. So all steps are computed at once, after any causal layer. In Bahdanau et al.
    2015 (arXiv:1409.0473) the query is the output before, and the recurrence reads c: see
    `attention_cell`.

    Args:
        score: `dot_score(A)` or `additive_score(A)`, whose parameters are the layer's.
        num_source_steps: S; 0 is a source without a step.
        num_memory: M, the width of the source.

    Returns:
        The layer, `[..., D] -> [..., D+M]`, carry `Memory`, info `Attended(weights)`. It runs in
        promote(params, float32).

    Raises:
        TypeError: `score` is not a Score or a size is not an int.
        ValueError: `num_source_steps` is below 0 or `num_memory` below 1.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> score = jr.dot_score(4)
        >>> layer = jr.cross_attention(score, num_source_steps=6, num_memory=5)
        >>> params = layer.init(jax.random.key(0), 3)
        >>> memory = jr.source_memory(score, params, jnp.ones((2, 6, 5)))
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 7, 3)), carry=memory)
        >>> rollout.outputs.shape, jr.attention_weights(rollout).shape
        ((2, 7, 8), (2, 7, 6))
    """
    _check_score(score)
    is_known = not checks.is_symbolic(num_source_steps)
    if is_known and checks.integer(num_source_steps, "num_source_steps") < 0:
        raise ValueError(f"num_source_steps must not be below 0, got {num_source_steps}.")
    checks.positive(num_memory, "num_memory")

    def initial_carry(params, batch_shape=()):
        shape = (*batch_shape, num_source_steps)
        dtype = precision.compute_dtype(params)
        values, keys = (
            jnp.zeros((*shape, width), dtype) for width in (num_memory, score.num_units)
        )
        return Memory(values, keys, jnp.zeros(shape, bool))

    def unroll(params, carry, steps, key):
        del key
        refuse_starts(carry, "cross_attention")
        mask, reset = steps.mask, steps.reset
        xs = in_compute_dtype(params, checks.one_array(steps.xs, "xs"))
        dropped = jnp.zeros(xs.shape[:-1], bool)
        if reset is not None:
            dropped = jnp.cumsum(reset, axis=0) > 0
            empty = initial_carry(params, reset.shape[1:])
        context, weights = look(score, params, carry, xs, dropped)
        info = Attended(zero_masked(mask, weights))
        if reset is not None:
            carry = select(reset.any(0), empty, carry)
        return Rollout(carry, jnp.concatenate([xs, context], axis=-1), info)

    return Layer(
        init=lambda key, num_inputs: score.init(key, num_inputs, num_memory),
        initial_carry=initial_carry,
        unroll=unroll,
        num_outputs=lambda num_inputs: num_inputs + num_memory,
        roles=score.roles,
    )


def _check_score(score):
    if not isinstance(score, Score):
        raise TypeError(f"score must be a Score, such as dot_score(64); got {score!r}.")


def attention_weights(rollout: Rollout) -> jax.Array:
    """The attention map of a rollout through a layer that attends.

    Args:
        rollout: what `unroll` gave for a layer that holds one `cross_attention`, `attention_cell`
            or `input_feeding`.

    Returns:
        αₜⱼ `[..., T, S]`; rows of real target steps sum to 1 where the source has a real step.

    Raises:
        ValueError: There is none in the rollout's info, or more than one.

    Example:
        >>> import jaxrnn as jr
        >>> info = ((), Attended(jnp.array([[0.25, 0.75], [1.0, 0.0]])))
        >>> attention_weights(jr.Rollout((), (), info)).shape
        (2, 2)
    """
    found = attended_in(rollout.info)
    if len(found) != 1:
        raise ValueError(
            "rollout must hold the weights of one cross_attention, attention_cell or "
            f"input_feeding in its info, got {len(found)}."
        )
    return jnp.moveaxis(found[0].weights, 0, -2)


def attended_in(info: Any) -> list[Attended]:
    """Every `Attended` in the info of a rollout."""
    nodes = jax.tree.leaves(info, is_leaf=lambda node: isinstance(node, Attended))
    return [node for node in nodes if isinstance(node, Attended)]


def look(score: Score, params: Any, memory: Memory, xs: Any, dropped: Any) -> Any:
    """What every query finds in a source, and where it looked.

    The context is NaN where the query is not finite or where a source step that it may see is not
    (with a weight of 0 too); the weights and what is made of them stay finite.

    Args:
        score: The score.
        params: Its parameters.
        memory: Leaves `[*batch, S, ...]`.
        xs: The queries `[T, *batch, D]`.
        dropped: bool `[T, *batch]`, True = a reset has dropped the source.

    Returns:
        The context `[T, *batch, M]` and the weights `[T, *batch, S]`, both zero without a real
        source step (a query that is not finite gives NaN there too).
    """
    real = memory.mask & ~dropped[..., None]
    finite = jnp.isfinite(memory.values).all(-1) & jnp.isfinite(memory.keys).all(-1)
    reached = (real & ~finite).any(-1) | ~jnp.isfinite(xs).all(-1)
    # 0 · NaN is NaN, in the products here and in those of the derivative.
    values, keys, xs = (
        jnp.where(jnp.isfinite(leaf), leaf, 0) for leaf in (memory.values, memory.keys, xs)
    )
    scores = score.scores(params, xs, keys)
    scores = jnp.where(real, scores, jnp.finfo(scores.dtype).min)
    weights = jnp.where(real, jax.nn.softmax(scores), 0)
    # Without a real source step the context is a constant 0, so that a NaN in the cotangent behind
    # it reaches neither the weights nor the values.
    context = zero_masked(real.any(-1), jnp.einsum("t...s,...sm->t...m", weights, values))
    return select(reached, jnp.full_like(context, jnp.nan), context), weights
