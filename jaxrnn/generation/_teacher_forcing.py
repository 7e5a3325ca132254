"""Reading the truth, or a mixture of the truth and what the model made itself."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import Call, compiled
from jaxrnn.engine.keys import checked_key, drawing_key, fold_in, split_key
from jaxrnn.engine.masking import select, zero_masked
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.unroll import unroll
from jaxrnn.generation._feedback import (
    Feed,
    Reading,
    as_data,
    check_causal,
    fed,
    own_output,
    read,
    time_back,
)
from jaxrnn.generation._sampling import check_numbers
from jaxrnn.types import Cell, Layer, Rollout


def teacher_forced(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    *,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    key: Any = None,
) -> Rollout:
    """Runs a causal model on the true inputs: every output predicts from the true prefix.

        yₜ = f(x₀, …, xₜ),  p(x) = Πₜ p(xₜ₊₁ | x₀, …, xₜ)

    It is `unroll` for models that generate. A low loss here is no promise about `free_run`, where
    the model reads its own errors (exposure bias): report both. The targets are `shift_targets`.

    Args:
        model: What to run; causal.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`, or `[..., T]` for tokens.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`, True = real. None: all are.
        reset: `[..., T]`, True = x_t starts a new sequence. None: none does.
        key: For the model's own noise; None is the deterministic model.

    Returns:
        The Rollout of `unroll`.

    Raises:
        ValueError: The layer is not causal, so an output would have seen what it predicts; or
            as `unroll`.
        TypeError: As `unroll`.

    Example:
        >>> import jaxrnn as jr
        >>> layer = jr.language_model([jr.gru(8)], num_features=4, num_tokens=10)
        >>> params = layer.init(jax.random.key(0), 10)
        >>> tokens = jnp.array([[3, 1, 4, 1, 5]])
        >>> logits = teacher_forced(layer, params, tokens).outputs
        >>> targets, mask = jr.shift_targets(tokens, num_feature_axes=0)
        >>> jr.mean_over_steps(jr.cross_entropy(logits, targets), mask).shape
        ()
    """
    check_causal(model)
    return unroll(model, params, xs, carry=carry, mask=mask, reset=reset, key=key)


def scheduled_sampling(
    model: Cell | Layer,
    params: Any,
    xs: Any,
    rate: Any,
    *,
    key: Any,
    feed: Feed = own_output,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
) -> Rollout:
    """Reads the truth at some steps and what the model made itself at the others.

        x'ₜ = oₜ ? feed(yₜ₋₁, x'ₜ₋₁) : xₜ,  oₜ ~ Bernoulli(rate);  yₜ = f(x'₀, …, x'ₜ)

    Bengio et al. 2015 (arXiv:1506.03099), whose ε is the share of truth, 1 - rate. The first real
    step of a sequence reads the truth, having nothing else. Steps count as they are real: y_{t-1}
    is the output of the last real step. Rate 0 is `teacher_forced`, rate 1 is `free_run`. One
    scan; the rate is data, so a schedule compiles once.

    Args:
        model: What to run; causal. Its own noise is drawn anew for every step.
        params: Its parameters.
        xs: A tree of arrays `[..., T, D]`, or `[..., T]` for tokens.
        rate: The probability of reading the own output, in [0, 1]: one number, or `[..., T]`.
        key: For the choices, for `feed` and for the model's noise, each its own.
        feed: `(y, x, key) -> x`, the next input from an output and the input that gave it, finite
            at zeros, since it also sees those; `y` itself when left out. Gradients pass through
            it where it has any. Keep the function: another one compiles again. What it needs as
            data is an argument of a `jax.tree_util.Partial`.
        carry: The carry to start from; None is the initial carry.
        mask: `[..., T]`, True = real. None: all are.
        reset: `[..., T]`, True = x_t starts a new sequence. None: none does.

    Returns:
        Rollout with the carry after the last step, the outputs `[..., T, C]` (zero where masked),
        and as `info` the inputs that were read, a tree like `xs`, zero where masked.

    Raises:
        ValueError: The layer is not causal, there is no key, a concrete rate lies outside of
            [0, 1], shapes disagree, or `feed` gives another shape than x has.
        TypeError: Something is of another kind or dtype than expected.

    Example:
        >>> import jaxrnn as jr
        >>> layer = jr.serial(jr.lstm(8), jr.dense(2))
        >>> params = layer.init(jax.random.key(0), 2)
        >>> xs = jnp.ones((3, 7, 2))
        >>> jr.scheduled_sampling(layer, params, xs, 0.25, key=jax.random.key(1)).outputs.shape
        (3, 7, 2)
    """
    check_causal(model)
    if checked_key(key) is None:
        raise ValueError("key must be a PRNG key for scheduled_sampling to draw with, got None.")
    drawing_key(key, "scheduled_sampling")
    steps = Call.checked(model, xs, mask, reset, time_major=False).steps
    rate = _checked_rate(rate, checks.leading_shape(steps.xs, model.num_feature_axes))
    return compiled(_scheduled, model)(params, steps, rate, key, as_data(feed), carry)


def _scheduled(model, params, steps, rate, key, feed, carry):
    leading = checks.leading_shape(steps.xs, model.num_feature_axes)
    axis = len(leading) - 1
    choice_key, feed_key, noise_key = split_key(key, 3)
    own = jax.random.bernoulli(choice_key, rate, leading)

    def advance(at, inputs):
        index, own, (x, mask, reset) = inputs
        own = own & (at.known if reset is None else at.known & ~reset)
        x = select(own, fed(feed, at, fold_in(feed_key, index), own), x)
        at = read(model, params, at, x, mask, reset, fold_in(noise_key, index))
        return at, zero_masked(mask, (at.y, x))

    start = _nothing_read(model, params, carry, steps.xs, leading[:-1], axis)
    start = varying_like(start, (params, start, steps, key))
    first = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), (own, steps))
    at, made = lax.scan(advance, start, (jnp.arange(leading[-1]), *first))
    outputs, inputs = time_back(made, axis)
    return Rollout(at.carry, outputs, inputs)


def _nothing_read(model, params, carry, xs, batch_shape, axis):
    """In front of the first step: zeros for the x and the y there are not."""
    carry = model.initial_carry(params, batch_shape) if carry is None else carry
    ys = jax.eval_shape(lambda: unroll(model, params, xs, carry=carry).outputs)

    def zeros(leaf):
        return jnp.zeros(leaf.shape[:axis] + leaf.shape[axis + 1 :], leaf.dtype)

    x, y = jax.tree.map(zeros, (xs, ys))
    return Reading(carry, x, y, jnp.zeros(batch_shape, bool))


def _checked_rate(rate, leading):
    check_numbers(rate, "rate", "in [0, 1]", lambda rate: (rate >= 0) & (rate <= 1))
    if jnp.shape(rate) not in ((), leading):
        raise ValueError(
            f"rate must be one number or have the shape {leading}, got {jnp.shape(rate)}."
        )
    return jnp.asarray(rate, jnp.promote_types(jnp.result_type(rate), jnp.float32))
