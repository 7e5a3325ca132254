"""Continuing a prompt: `free_run`, and `generate` for tokens until a stop token."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import compiled
from jaxrnn.engine.keys import checked_key
from jaxrnn.engine.masking import concrete
from jaxrnn.engine.remade import warn_if_remade
from jaxrnn.engine.time import time_back
from jaxrnn.generation._feedback import (
    Feed,
    as_data,
    checked_prompt,
    feed_back,
    own_output,
    read_prompt,
)
from jaxrnn.generation._sampling import check_choice, next_token
from jaxrnn.types import Carry, Key, Mask, Model, Params, Reset


class FreeRun(NamedTuple):
    """The result of `free_run`.

    Attributes:
        carry: the carry after reading the prompt and all of `xs` but the last one.
        outputs: `[..., N, C]`; outputs[n] predicts xs[n].
        xs: `[..., N, D]`, what `feed` made of the outputs.
    """

    carry: Any
    outputs: Any
    xs: Any


class Generated(NamedTuple):
    """The result of `generate`.

    Attributes:
        carry: the carry after reading the prompt and all generated tokens of a row but its last.
        tokens: `[..., N]`, `pad` where `mask` is False.
        mask: bool `[..., N]`, True where a token was generated, a stop token included.
        stopped: bool `[...]`, True where a row ended with a stop token.
    """

    carry: Any
    tokens: Any
    mask: Any
    stopped: Any


def free_run(
    model: Model,
    params: Params,
    prompt: Any,
    num_steps: int,
    *,
    feed: Feed = own_output,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    key: Key = None,
) -> FreeRun:
    """Runs a model on a prompt and then on its own outputs.

        y₀ = f(prompt),  xₙ = feed(yₙ),  yₙ₊₁ = f(prompt, x₀, …, xₙ)

    Padding in the prompt changes nothing, on whichever side it is. To continue, pass
    `prompt=result.xs[..., -1:, :]` and `carry=result.carry`. A row whose prompt holds no real step
    cannot be continued: its carry does not change, and its outputs and xs are zero.

    Args:
        model: the cell or layer to run; causal. It runs without noise.
        params: its parameters.
        prompt: a tree of arrays `[..., P, D]`, or `[..., P]` for tokens; P is at least 1.
        num_steps: N, the number of outputs.
        feed: as in `scheduled_sampling`.
        carry: the carry before the prompt; None is the initial carry.
        mask: `[..., P]`, True = real. None: all steps are real.
        reset: `[..., P]`, True = a new sequence starts. None: no step does.
        key: PRNG key for `feed`, which gets a different one at every step; without one it gets
            None.

    Returns:
        `FreeRun(carry, outputs [..., N, C], xs [..., N, D])`.

    Raises:
        ValueError: The layer is not causal, the prompt has no steps, `num_steps` is below 1,
            shapes disagree, or `feed` returns a shape other than that of x.
        TypeError: An argument has the wrong type, tree structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.simple_cell(lambda key, n: (), lambda params, carry, z: 0.5 * z, 1)
        >>> jr.free_run(cell, (), jnp.array([[8.0]]), 3).outputs[:, 0]
        Array([4., 2., 1.], dtype=float32)
    """
    prompt, mask, reset = checked_prompt(model, prompt, num_steps, mask, reset)
    arguments = params, prompt, as_data(feed), carry, mask, reset, checked_key(key)
    warn_if_remade((feed,), arguments, "feed")
    return compiled(_free_run, (model, num_steps), arguments)(*arguments)


def _free_run(model, num_steps, params, prompt, feed, carry, mask, reset, key):
    progress = read_prompt(model, params, carry, prompt, mask, reset)
    rest = feed_back(model, params, progress, num_steps, feed, key)
    return FreeRun(rest.carry, *time_back((rest.ys, rest.xs), progress.has_read.ndim))


def generate(
    model: Model,
    params: Params,
    prompt: Any,
    num_steps: int,
    *,
    temperature: Any = None,
    top_k: int | None = None,
    top_p: Any = None,
    stop_token: int | Sequence[int] | None = None,
    pad: int = 0,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    key: Key = None,
) -> Generated:
    """Continues a prompt of tokens, greedily or by sampling.

        tokenₙ ~ next_token(f(prompt, token₀, …, tokenₙ₋₁))

    One scan of `num_steps`. A row is masked after a stop token: its carry does not change and its
    tokens are `pad`. So is a row whose prompt holds no real step. Padding in the prompt changes
    nothing, on whichever side it is. To continue, pass `prompt=result.tokens[..., -1:]`,
    `carry=result.carry` and `mask=result.mask[..., -1:] & ~result.stopped[..., None]`.

    Args:
        model: the layer to run, from tokens to logits, such as `serial(embed(D), ..., dense(V))`;
            causal. It runs without noise.
        params: its parameters.
        prompt: ints `[..., P]`, P is at least 1; a start token where there is nothing else.
        num_steps: N, the number of tokens.
        temperature: None is greedy; a number of at least 0 samples. It is data, like `top_p`: a
            new value does not compile again.
        top_k: number of likeliest tokens to sample from, as in `next_token`.
        top_p: probability that the likeliest tokens to sample from must hold, as in `next_token`.
        stop_token: the token or tokens that end a row.
        pad: the token after the end of a row.
        carry: the carry before the prompt, such as that of an encoder; None is the initial carry.
        mask: `[..., P]`, True = real. None: all steps are real.
        reset: `[..., P]`, True = a new sequence starts. None: no step does.
        key: PRNG key for sampling; greedy choice needs none.

    Returns:
        `Generated(carry, tokens [..., N], mask [..., N], stopped [...])`, tokens in the dtype of
        the prompt; -1 where the logits hold NaN.

    Raises:
        ValueError: The layer is not causal, there is no key to sample with, a value is out of its
            range, the prompt has no steps, or shapes disagree.
        TypeError: The prompt does not hold ints, the model returns no logits, or an argument has
            the wrong type.

    Example:
        >>> import jax, jaxrnn as jr
        >>> layer = jr.language_model([jr.gru(8)], num_features=4, num_tokens=10)
        >>> params = layer.init(jax.random.key(0), 10)
        >>> prompts = jnp.array([[3, 1, 4], [2, 7, 0]])
        >>> mask = jnp.array([[1, 1, 1], [1, 1, 0]])
        >>> jr.generate(layer, params, prompts, 6, mask=mask, temperature=0.8, top_k=5,
        ...             stop_token=9, key=jax.random.key(1)).tokens.shape
        (2, 6)
    """
    prompt, mask, reset = checked_prompt(model, prompt, num_steps, mask, reset)
    check_choice(checked_key(key), temperature, top_k, top_p)
    _check_tokens(model, prompt)
    stops = (
        jnp.zeros(0, jnp.int32) if stop_token is None else _tokens(stop_token, "stop_token").ravel()
    )
    pad = _tokens(pad, "pad")
    if (known := concrete(pad)) is not None:
        _check_fits(known, prompt.dtype, "pad")
    choices = temperature, top_p, stops, pad
    arrays = params, prompt, choices, carry, mask, reset, key
    return compiled(_generate, (model, num_steps, top_k), arrays)(*arrays)


def _generate(model, num_steps, top_k, params, prompt, choices, carry, mask, reset, key):
    temperature, top_p, stops, pad = choices

    def choose(logits, token, key):
        _check_fits(logits.shape[-1] - 1, token.dtype, "the largest token of the logits")
        chosen = next_token(logits, key, temperature=temperature, top_k=top_k, top_p=top_p)
        return chosen.astype(token.dtype)

    def is_last(token):
        return (token[..., None] == stops).any(-1)

    progress = read_prompt(model, params, carry, prompt, mask, reset)
    rest = feed_back(model, params, progress, num_steps, choose, key, is_last=is_last, blank=pad)
    tokens, mask = time_back((rest.xs, rest.live), progress.has_read.ndim)
    return Generated(rest.carry, tokens, mask, progress.has_read & ~rest.goes_on)


def _check_tokens(model, prompt):
    if model.num_feature_axes != 0:
        raise ValueError(
            "model must read tokens to generate, such as serial(embed(D), ...); the x of this "
            f"one has {model.num_feature_axes} feature axes. free_run takes any x."
        )
    # -1 marks logits that are NaN, and unsigned ints have no -1.
    if not jnp.issubdtype(prompt.dtype, jnp.signedinteger):
        raise TypeError(f"prompt must be signed ints, got the dtype {prompt.dtype}.")


def _check_fits(token, dtype, name):
    limits = jnp.iinfo(dtype)
    if not limits.min <= token <= limits.max:
        raise ValueError(f"prompt must have a dtype that holds {token}, {name}, got {dtype}.")


def _tokens(values, name):
    tokens = checks.array(values, name)
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise TypeError(f"{name} must be integer tokens, got {values!r}.")
    return tokens
