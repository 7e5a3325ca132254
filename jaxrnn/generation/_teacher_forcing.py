"""`teacher_forced`, `scheduled_sampling` and `impute`: reading the truth, or some own outputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import Call, compiled
from jaxrnn.engine.keys import checked_key, drawing_key, fold_in, split_key
from jaxrnn.engine.masking import as_mask, select, zero_masked
from jaxrnn.engine.parameters import check_params, width_of
from jaxrnn.engine.remade import use_with_warning
from jaxrnn.engine.sharding import varying_like
from jaxrnn.engine.time import time_back, time_first
from jaxrnn.engine.unroll import unroll
from jaxrnn.generation._feedback import (
    Feed,
    Progress,
    as_data,
    check_causal,
    next_input,
    own_output,
    read_step,
)
from jaxrnn.generation._sampling import check_numbers
from jaxrnn.types import Carry, Key, Mask, Model, Params, Reset, Rollout


def teacher_forced(
    model: Model,
    params: Params,
    xs: Any,
    *,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    key: Key = None,
) -> Rollout:
    """Runs a causal model on the true inputs: every output predicts from the true prefix.

        yₜ = f(x₀, …, xₜ),  p(x) = Πₜ p(xₜ₊₁ | x₀, …, xₜ)

    This is `unroll` for models that generate. A low loss here does not imply a good `free_run`,
    where the model reads its own errors (exposure bias): report both. `shift_targets` makes the
    targets.

    Args:
        model: the cell or layer to run; causal.
        params: its parameters.
        xs: inputs, a tree of arrays `[..., T, D]`, or `[..., T]` for tokens.
        carry, mask, reset, key: as in `unroll`.

    Returns:
        The Rollout of `unroll`.

    Raises:
        ValueError: The layer is not causal, so an output would depend on what it predicts; or as
            in `unroll`.
        TypeError: As in `unroll`.

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
    model: Model,
    params: Params,
    xs: Any,
    rate: Any,
    *,
    key: Key,
    feed: Feed = own_output,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
) -> Rollout:
    """Runs a model on the truth at some steps and on its own outputs at the others.

        x'ₜ = oₜ ? feed(yₜ₋₁, xₜ) : xₜ,  oₜ ~ Bernoulli(rate);  yₜ = f(x'₀, …, x'ₜ)

    Bengio et al. 2015 (arXiv:1506.03099), whose ε is the share of truth, 1 - rate. The first real
    step of a sequence always reads the truth. y_{t-1} is the output of the last real step. Rate 0
    is `teacher_forced`, rate 1 is `free_run`. One scan; the rate is data, so a schedule compiles
    once.

    Args:
        model: the cell or layer to run; causal. Its own noise is drawn for every step.
        params: its parameters.
        xs: the true inputs, a tree of arrays `[..., T, D]`, or `[..., T]` for tokens.
        rate: probability of reading an own output, in [0, 1]: one number, or `[..., T]`.
        key: PRNG key, split for the choices, for `feed` and for the model's noise.
        feed: `(y, x, key) -> x`, what is read in place of the step x, from x and the last output y;
            by default y itself. What is known of every step, such as the calendar, it takes from
            x. It must be finite at zeros, which it gets where its result is not used. Gradients
            pass through it. Reuse one function, since a new one compiles again; arrays that it
            needs are arguments of a `jax.tree_util.Partial`.
        carry, mask, reset: as in `unroll`.

    Returns:
        Rollout with the carry after the last step, the outputs `[..., T, C]` (zero where masked),
        and as `info` the inputs that were read, a tree like `xs`, zero where masked.

    Raises:
        ValueError: The layer is not causal, there is no key, a concrete rate is not in [0, 1],
            shapes disagree, or `feed` returns a shape other than that of x.
        TypeError: An argument has the wrong type, tree structure or dtype.

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
    return _run_fed(_scheduled, model, feed, params, steps, rate, key, carry)


def _scheduled(model, params, steps, rate, key, feed, carry):
    choice_key, *keys = split_key(key, 3)
    leading = checks.leading_shape(steps.xs, model.num_feature_axes)
    uses_output = jax.random.bernoulli(choice_key, rate, leading)
    return _with_own_outputs(model, params, steps, uses_output, keys, feed, carry)


def impute(
    model: Model,
    params: Params,
    xs: Any,
    missing: Any,
    *,
    feed: Feed = own_output,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    key: Key = None,
) -> Rollout:
    """Runs a model over steps some of which are missing, in whose place it reads its own outputs.

        x'ₜ = missingₜ ? feed(yₜ₋₁, xₜ) : xₜ,  yₜ = f(x'₀, …, x'ₜ)

    A missing step counts: the model reads its own prediction there and moves on, where a masked
    step is skipped. y_{t-1} is the output of the last real step. Where nothing has been read yet,
    at the first real step of a sequence, there is no output, and x is read as it is: put there
    what the model should start from. Several sequences may share a row, each with its own missing
    steps, which are forecasts where they are its last. One scan.

    Args:
        model: the cell or layer to run; causal.
        params: its parameters.
        xs: a tree of arrays `[..., T, D]`, or `[..., T]` for tokens. What a missing step holds,
            NaN for example, reaches nothing that `feed` does not read.
        missing: flags `[..., T]`, True = x_t was not observed.
        feed: as in `scheduled_sampling`.
        carry, mask, reset: as in `unroll`.
        key: PRNG key, split for `feed` and for the model's noise; None is the deterministic model.

    Returns:
        Rollout with the carry after the last step, the outputs `[..., T, C]` (zero where masked),
        and as `info` the inputs that were read, a tree like `xs`, zero where masked.

    Raises:
        ValueError: The layer is not causal, shapes disagree, flags are not 0 or 1, or `feed`
            returns a shape other than that of x.
        TypeError: An argument has the wrong type, tree structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.simple_cell(lambda key, n: (), lambda params, carry, z: z + 1, 1)
        >>> xs = jnp.array([[1.0], [jnp.nan], [jnp.nan], [10.0], [jnp.nan]])
        >>> jr.impute(cell, (), xs, jnp.isnan(xs[:, 0])).info[:, 0]
        Array([ 1.,  2.,  3., 10., 11.], dtype=float32)
    """
    check_causal(model)
    steps = Call.checked(model, xs, mask, reset, time_major=False).steps
    leading = checks.leading_shape(steps.xs, model.num_feature_axes)
    missing, key = as_mask(missing, leading, "missing"), checked_key(key)
    return _run_fed(_imputed, model, feed, params, steps, missing, key, carry)


def _run_fed(run, model, feed, params, steps, flags, key, carry):
    """What scheduled sampling and imputation have in common: checks, and the compiled loop."""
    check_params(model, params, width_of(model, steps.xs))
    checks.array_leaves(carry, "carry")
    arguments = params, steps, flags, key, as_data(feed), carry
    use_with_warning((feed,), arguments, "feed")
    return compiled(run, (model,), arguments)(*arguments)


def _imputed(model, params, steps, missing, key, feed, carry):
    return _with_own_outputs(model, params, steps, missing, split_key(key, 2), feed, carry)


def _with_own_outputs(model, params, steps, uses_output, keys, feed, carry):
    """Reads own outputs at the flagged steps, except where nothing has been read yet."""
    leading = uses_output.shape
    axis = len(leading) - 1
    feed_key, noise_key = keys

    def advance(progress, inputs):
        index, uses_output, (x, mask, reset) = inputs
        has_read = progress.has_read if reset is None else progress.has_read & ~reset
        uses_output = uses_output & has_read
        own_x = next_input(feed, progress.y, x, fold_in(feed_key, index), uses_output)
        x = select(uses_output, own_x, x)
        progress = read_step(model, params, progress, x, mask, reset, fold_in(noise_key, index))
        return progress, zero_masked(mask, (progress.y, x))

    start = _nothing_read(model, params, carry, steps.xs, leading[:-1], axis)
    start = varying_like(start, (params, start, steps, uses_output, keys))
    inputs = (jnp.arange(leading[-1]), *time_first((uses_output, steps), axis))
    progress, results = lax.scan(advance, start, inputs)
    outputs, inputs = time_back(results, axis)
    return Rollout(progress.carry, outputs, inputs)


def _nothing_read(model, params, carry, xs, batch_shape, axis):
    """The progress before the first step, with zeros for the missing x and y."""
    carry = model.initial_carry(params, batch_shape) if carry is None else carry
    ys = jax.eval_shape(lambda: unroll(model, params, xs, carry=carry).outputs)

    def zeros(leaf):
        return jnp.zeros(leaf.shape[:axis] + leaf.shape[axis + 1 :], leaf.dtype)

    x, y = jax.tree.map(zeros, (xs, ys))
    return Progress(carry, x, y, jnp.zeros(batch_shape, bool))


def _checked_rate(rate, leading):
    check_numbers(rate, "rate", "in [0, 1]", lambda rate: (rate >= 0) & (rate <= 1))
    if np.shape(rate) not in ((), leading):
        raise ValueError(
            f"rate must be one number or have the shape {leading}, got {np.shape(rate)}."
        )
    return jnp.asarray(rate, jnp.promote_types(jnp.result_type(rate), jnp.float32))
