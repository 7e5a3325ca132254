"""Continuing a prompt: `free_run`, and `generate` for tokens until a stop token."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.arguments import compiled
from jaxrnn.engine.keys import checked_key
from jaxrnn.engine.masking import concrete
from jaxrnn.engine.remade import use_with_warning
from jaxrnn.engine.time import time_back, time_first
from jaxrnn.generation._feedback import (
    Feed,
    as_data,
    check_causal,
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
    num_steps: int | None = None,
    *,
    future: Any = None,
    feed: Feed = own_output,
    carry: Carry = None,
    mask: Mask = None,
    reset: Reset = None,
    key: Key = None,
) -> FreeRun:
    """Runs a model on a prompt and then on its own outputs.

        y₀ = f(prompt),  xₙ = feed(yₙ, futureₙ),  yₙ₊₁ = f(prompt, x₀, …, xₙ)

    What is known of the steps to come, such as the calendar or a planned price, is `future`, and
    `feed` puts the output into it; what it holds in the place of the output, NaN for example,
    reaches nothing that `feed` does not read. Where some of these steps have been observed, or rows
    hold several sequences, see `impute`.

    Padding in the prompt changes nothing, on whichever side it is. To continue, pass
    `prompt=result.xs[..., -1:, :]` and `carry=result.carry`. A row whose prompt holds no real step
    cannot be continued: its carry does not change, and its outputs and xs are zero.

    Args:
        model: the cell or layer to run; causal. It runs without noise.
        params: its parameters.
        prompt: a tree of arrays `[..., P, D]`, or `[..., P]` for tokens; P is at least 1.
        num_steps: N, the number of outputs; None where `future` says it.
        future: the N steps that are replaced, a tree of arrays `[..., N, D]` like the prompt. None:
            nothing is known of them, and `feed` gets as x the input that was read last.
        feed: as in `scheduled_sampling`.
        carry: the carry before the prompt; None is the initial carry.
        mask: `[..., P]`, True = real. None: all steps are real.
        reset: `[..., P]`, True = a new sequence starts. None: no step does.
        key: PRNG key for `feed`, which gets a different one at every step; without one it gets
            None.

    Returns:
        `FreeRun(carry, outputs [..., N, C], xs [..., N, D])`.

    Raises:
        ValueError: The layer is not causal, the prompt or the future has no steps, `num_steps` is
            below 1, both or neither of `num_steps` and `future` are given, a future is given
            without a `feed` to read it, shapes disagree, or `feed` returns a shape other than that
            of x.
        TypeError: An argument has the wrong type, tree structure or dtype.

    Example:
        >>> import jaxrnn as jr
        >>> cell = jr.simple_cell(lambda key, n: (), lambda params, carry, z: 0.5 * z, 1)
        >>> jr.free_run(cell, (), jnp.array([[8.0]]), 3).outputs[:, 0]
        Array([4., 2., 1.], dtype=float32)

        The second feature is known for the steps to come:

        >>> def total(params, carry, z):
        ...     return z.sum(-1, keepdims=True)
        >>> cell = jr.simple_cell(lambda key, n: (), total, 1)
        >>> future = jnp.array([[jnp.nan, 10.0], [jnp.nan, 20.0], [jnp.nan, 30.0]])
        >>> def keep(y, x, key):
        ...     return x.at[..., :1].set(y)
        >>> jr.free_run(cell, (), jnp.array([[1.0, 2.0]]), future=future, feed=keep).outputs[:, 0]
        Array([ 3., 13., 33.], dtype=float32)
    """
    check_causal(model)
    future, num_steps = _steps_to_come(model, future, num_steps)
    if future is not None and feed is own_output:
        raise ValueError("feed must be given with future: the default does not read it.")
    prompt, mask, reset = checked_prompt(model, prompt, num_steps, mask, reset)
    if future is not None:
        _check_like_prompt(future, prompt, model.num_feature_axes)
    arguments = params, prompt, future, as_data(feed), carry, mask, reset, checked_key(key)
    use_with_warning((feed,), arguments, "feed")
    return compiled(_free_run, (model, num_steps), arguments)(*arguments)


def _free_run(model, num_steps, params, prompt, future, feed, carry, mask, reset, key):
    progress = read_prompt(model, params, carry, prompt, mask, reset)
    future = time_first(future, progress.has_read.ndim)
    rest = feed_back(model, params, progress, num_steps, feed, key, future=future)
    return FreeRun(rest.carry, *time_back((rest.ys, rest.xs), progress.has_read.ndim))


def _steps_to_come(model, future, num_steps):
    """The future as arrays, and how many steps there are."""
    if num_steps is not None and future is None:
        return None, num_steps
    if num_steps is not None or future is None:
        raise ValueError(
            "num_steps or future must be given, and not both, got "
            f"{'neither' if future is None else 'both'}."
        )
    future = checks.arrays(future, "future")
    leading = checks.leading_shape(future, model.num_feature_axes, "future")
    if leading[-1] == 0:
        raise ValueError(f"future must have at least one step, got the axes {leading}.")
    return future, leading[-1]


def _check_like_prompt(future, prompt, num_feature_axes):
    """Raises unless the future continues the prompt: all but the number of steps is the same."""
    num_steps = checks.leading_shape(future, num_feature_axes, "future")[-1]
    axis = len(checks.leading_shape(prompt, num_feature_axes, "prompt")) - 1

    def continued(leaf):
        shape = *leaf.shape[:axis], num_steps, *leaf.shape[axis + 1 :]
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    checks.same_tree(future, jax.tree.map(continued, prompt), "future")


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
    check_tokens(model, prompt, "prompt")
    choices = temperature, top_p, stop_tokens(stop_token), fitting_pad(pad, prompt, "prompt")
    arrays = params, prompt, choices, carry, mask, reset, key
    return compiled(_generate, (model, num_steps, top_k), arrays)(*arrays)


def _generate(model, num_steps, top_k, params, prompt, choices, carry, mask, reset, key):
    temperature, top_p, stops, pad = choices

    def choose(logits, token, key):
        check_fits(logits.shape[-1] - 1, token, "prompt", "the last token of the logits")
        chosen = next_token(logits, key, temperature=temperature, top_k=top_k, top_p=top_p)
        return chosen.astype(token.dtype)

    def is_last(token):
        return (token[..., None] == stops).any(-1)

    progress = read_prompt(model, params, carry, prompt, mask, reset)
    rest = feed_back(model, params, progress, num_steps, choose, key, is_last=is_last, blank=pad)
    tokens, mask = time_back((rest.xs, rest.live), progress.has_read.ndim)
    return Generated(rest.carry, tokens, mask, progress.has_read & ~rest.goes_on)


def check_tokens(model: Model, tokens: Any, name: str) -> None:
    """Raises unless the model reads tokens and these are some."""
    if model.num_feature_axes != 0:
        raise ValueError(
            "model must read tokens to generate, such as serial(embed(D), ...); the x of this "
            f"one has {model.num_feature_axes} feature axes. free_run takes any x."
        )
    # -1 marks logits that are NaN, and unsigned ints have no -1.
    if not jnp.issubdtype(tokens.dtype, jnp.signedinteger):
        raise TypeError(f"{name} must be signed ints, got the dtype {tokens.dtype}.")


def check_fits(token: Any, tokens: jax.Array, name: str, what: str) -> None:
    """Raises ValueError for a token that would wrap around in the dtype of others."""
    limits = jnp.iinfo(tokens.dtype)
    if not limits.min <= token <= limits.max:
        raise ValueError(
            f"{name} must have a dtype that holds {token}, {what}, got {tokens.dtype}."
        )


def fitting_pad(pad: Any, tokens: jax.Array, name: str) -> jax.Array:
    """The token after the end of a row; raises ValueError where the others cannot hold it."""
    pad = as_tokens(pad, "pad")
    if (known := concrete(pad)) is not None:
        check_fits(known, tokens, name, "pad")
    return pad


def stop_tokens(stop_token: int | Sequence[int] | None) -> jax.Array:
    """The tokens that end a row, in one axis."""
    if stop_token is None:
        return jnp.zeros(0, jnp.int32)
    return as_tokens(stop_token, "stop_token").ravel()


def as_tokens(values: Any, name: str) -> jax.Array:
    """The values as an array; raises TypeError unless they are ints."""
    tokens = checks.array(values, name)
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise TypeError(f"{name} must be integer tokens, got {values!r}.")
    return tokens
