"""Reading a prompt and then the own outputs: free running, and tokens until a stop token."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxrnn.engine.arguments import compiled
from jaxrnn.engine.keys import checked_key
from jaxrnn.generation._feedback import (
    Feed,
    as_data,
    checked_prompt,
    own_output,
    read_prompt,
    run_on,
    time_back,
)
from jaxrnn.generation._sampling import check_choice, next_token
from jaxrnn.types import Cell, Layer


class FreeRun(NamedTuple):
    """What a free run makes.

    Attributes:
        carry: After reading the prompt and all of `xs` but the last one.
        outputs: `[..., N, C]`; each tells the element of `xs` beside it.
        xs: `[..., N, D]`, what `feed` made of the outputs.
    """

    carry: Any
    outputs: Any
    xs: Any


class Generated(NamedTuple):
    """What `generate` makes.

    Attributes:
        carry: After reading the prompt and all generated tokens but the last one of each row.
        tokens: `[..., N]`, `pad` where `mask` is False.
        mask: bool `[..., N]`, True where a token was generated, a stop token included.
        stopped: bool `[...]`, True where a row ended by a stop token.
    """

    carry: Any
    tokens: Any
    mask: Any
    stopped: Any


def free_run(
    model: Cell | Layer,
    params: Any,
    prompt: Any,
    num_steps: int,
    *,
    feed: Feed = own_output,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    key: Any = None,
) -> FreeRun:
    """Reads a prompt and then its own outputs.

        y₀ = f(prompt),  xₙ = feed(yₙ),  yₙ₊₁ = f(prompt, x₀, …, xₙ)

    Padding in the prompt changes nothing, on whichever side. To go on, give
    `prompt=result.xs[..., -1:, :]` and `carry=result.carry`. A row whose prompt holds no real step
    has nothing to go on from: its carry stays, its outputs and xs are zero.

    Args:
        model: What to run; causal, and without noise.
        params: Its parameters.
        prompt: A tree of arrays `[..., P, D]`, or `[..., P]` for tokens; P at least 1.
        num_steps: N, how many outputs to make.
        feed: As in `scheduled_sampling`.
        carry: The carry in front of the prompt; None is the initial carry.
        mask: `[..., P]`, True = real. None: all are.
        reset: `[..., P]`, True = a new sequence starts. None: none does.
        key: For `feed`, which gets one for every step; None gives it None.

    Returns:
        `FreeRun(carry, outputs [..., N, C], xs [..., N, D])`.

    Raises:
        ValueError: The layer is not causal, the prompt has no steps, `num_steps` is below 1,
            shapes disagree, or `feed` gives another shape than x has.
        TypeError: Something is of another kind or dtype than expected.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.simple_cell(lambda key, n: (), lambda params, carry, z: 0.5 * z, 1)
        >>> jr.free_run(cell, (), jnp.array([[8.0]]), 3).outputs[:, 0]
        Array([4., 2., 1.], dtype=float32)
    """
    prompt, mask, reset = checked_prompt(model, prompt, num_steps, mask, reset)
    arguments = params, prompt, as_data(feed), carry, mask, reset, checked_key(key)
    return compiled(_free_run, model, num_steps)(*arguments)


def _free_run(model, num_steps, params, prompt, feed, carry, mask, reset, key):
    at = read_prompt(model, params, carry, prompt, mask, reset)
    made = run_on(model, params, at, num_steps, feed, key)
    return FreeRun(made.carry, *time_back((made.ys, made.xs), at.known.ndim))


def generate(
    model: Cell | Layer,
    params: Any,
    prompt: Any,
    num_steps: int,
    *,
    temperature: Any = None,
    top_k: int | None = None,
    top_p: Any = None,
    stop_token: int | Sequence[int] | None = None,
    pad: int = 0,
    carry: Any = None,
    mask: Any = None,
    reset: Any = None,
    key: Any = None,
) -> Generated:
    """Reads a prompt of tokens and writes on, greedily or by draws.

        tokenₙ ~ next_token(f(prompt, token₀, …, tokenₙ₋₁))

    One scan of `num_steps`. A row that gave a stop token is masked from then on: its carry does
    not change and its tokens are `pad`; so is a row whose prompt holds no real step. Padding in
    the prompt changes nothing, on whichever side. To go on, give `prompt=result.tokens[..., -1:]`,
    `carry=result.carry` and `mask=result.mask[..., -1:] & ~result.stopped[..., None]`.

    Args:
        model: What to run, from tokens to logits: `serial(embed(D), ..., dense(V))`,
            causal. It runs without noise.
        params: Its parameters.
        prompt: ints `[..., P]`, P at least 1; a start token where there is nothing else.
        num_steps: N, how many tokens to make.
        temperature: None is greedy; a number of at least 0 samples. Data, so is `top_p`:
            another value does not compile again.
        top_k: Sample from the k likeliest tokens.
        top_p: Sample from the likeliest tokens that hold this probability, as `next_token`.
        stop_token: The token, or tokens, that end a row.
        pad: What stands behind the end.
        carry: The carry in front of the prompt, an encoder's say; None is the initial carry.
        mask: `[..., P]`, True = real. None: all are.
        reset: `[..., P]`, True = a new sequence starts. None: none does.
        key: To sample with; greedy needs none.

    Returns:
        `Generated(carry, tokens [..., N], mask [..., N], stopped [...])`, tokens in the dtype of
        the prompt; -1 where the logits hold NaN.

    Raises:
        ValueError: The layer is not causal, there is no key to sample with, a value is out of its
            range, the prompt has no steps, or shapes disagree.
        TypeError: The prompt holds no ints, the model gives no logits, or something is of another
            kind than expected.

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
    choices = temperature, top_p, stops, _tokens(pad, "pad")
    arrays = params, prompt, choices, carry, mask, reset, key
    return compiled(_generate, model, num_steps, top_k)(*arrays)


def _generate(model, num_steps, top_k, params, prompt, choices, carry, mask, reset, key):
    temperature, top_p, stops, pad = choices

    def choose(logits, token, key):
        chosen = next_token(logits, key, temperature=temperature, top_k=top_k, top_p=top_p)
        return chosen.astype(token.dtype)

    def is_last(token):
        return (token[..., None] == stops).any(-1)

    at = read_prompt(model, params, carry, prompt, mask, reset)
    made = run_on(model, params, at, num_steps, choose, key, is_last=is_last, blank=pad)
    tokens, mask = time_back((made.xs, made.live), at.known.ndim)
    return Generated(made.carry, tokens, mask, at.known & ~made.goes_on)


def _check_tokens(model, prompt):
    if model.num_feature_axes != 0:
        raise ValueError(
            "model must read tokens, serial(embed(D), ...) say, to generate; the x of this "
            f"one has {model.num_feature_axes} feature axes. free_run takes any x."
        )
    # -1 stands for logits that are NaN, and unsigned ints have none.
    if not jnp.issubdtype(prompt.dtype, jnp.signedinteger):
        raise TypeError(f"prompt must be signed ints, got the dtype {prompt.dtype}.")


def _tokens(values, name):
    tokens = jnp.asarray(values)
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise TypeError(f"{name} must be integer tokens, got {values!r}.")
    return tokens
