"""From logits to tokens: the likeliest one, or a draw after temperature, top-k and top-p."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrnn.engine import checks
from jaxrnn.engine.keys import drawing_key
from jaxrnn.engine.masking import concrete


def next_token(
    logits: Any,
    key: Any = None,
    *,
    temperature: Any = None,
    top_k: int | None = None,
    top_p: Any = None,
) -> jax.Array:
    """Chooses a token from logits, greedily or by sampling.

        greedy: argmax logits;  else token ~ softmax(logits / temperature) on the tokens kept

    `top_k` keeps the k likeliest tokens (Fan et al. 2018, arXiv:1805.04833), the lower numbers
    where some are equal. `top_p`, nucleus sampling, then keeps the smallest set of the likeliest
    tokens whose probability is at least that (Holtzman et al. 2019, arXiv:1904.09751), and always
    one. Both are applied after the temperature. A key draws the same noise for a token whatever is
    cut, so `top_k=1` is greedy and `top_p=1` is plain sampling.

    Args:
        logits: `[..., V]`; -inf forbids a token.
        key: PRNG key for sampling; greedy choice needs none.
        temperature: a number of at least 0, which may be traced; None is greedy. 0 is the limit,
            a draw among the likeliest.
        top_k: number of tokens to keep, 1 ... V; None keeps all.
        top_p: a probability in (0, 1], which may be traced; None keeps all.

    Returns:
        int32 `[...]`; -1, which is not a token, where the logits hold NaN.

    Raises:
        TypeError: The logits are not floating, `top_k` is not an int, or `temperature` or `top_p`
            is not a number.
        ValueError: There is no key to sample with, a concrete value is out of its range, or
            `top_k` or `top_p` is given without a temperature.

    Example:
        >>> logits = jnp.log(jnp.array([0.5, 0.3, 0.2]))
        >>> next_token(logits)
        Array(0, dtype=int32)
        >>> keys = jax.random.split(jax.random.key(0), 50)
        >>> draw = jax.vmap(lambda key: next_token(logits, key, temperature=1.0, top_p=0.6))
        >>> sorted(set(draw(keys).tolist()))
        [0, 1]
    """
    logits = checked_logits(logits)
    check_choice(key, temperature, top_k, top_p)
    if temperature is None:
        token = jnp.argmax(logits, axis=-1)
    else:
        scaled = _at_temperature(logits, temperature)
        if top_k is not None or top_p is not None:
            scaled = jnp.where(_kept(scaled, top_k, top_p), scaled, -jnp.inf)
        token = jax.random.categorical(drawing_key(key, "next_token"), scaled)
    return jnp.where(jnp.isnan(logits).any(-1), -1, token).astype(jnp.int32)


def check_choice(key: Any, temperature: Any, top_k: Any, top_p: Any) -> None:
    """Raises unless the arguments of `next_token` fit together."""
    if temperature is None:
        for name, value in {"top_k": top_k, "top_p": top_p}.items():
            if value is not None:
                raise ValueError(
                    f"temperature must be given to sample with {name}, 1.0 for example; "
                    f"got {name}={value!r} and temperature=None, which is greedy."
                )
        return
    if key is None:
        raise ValueError("key must be a PRNG key to sample with a temperature, got None.")
    _one(temperature, "temperature")
    check_numbers(temperature, "temperature", "of at least 0", lambda t: (t >= 0) & (t < np.inf))
    if top_k is not None:
        checks.positive(top_k, "top_k")
    if top_p is not None:
        _one(top_p, "top_p")
        check_numbers(top_p, "top_p", "in (0, 1]", lambda share: (share > 0) & (share <= 1))


def check_numbers(value: Any, name: str, expected: str, holds: Callable[[Any], Any]) -> None:
    """Raises unless `value` is numeric, and `holds` for all of its numbers when it is concrete."""
    known = concrete(value)
    dtype = value.dtype if known is None else known.dtype
    if not jnp.issubdtype(dtype, jnp.number):
        raise TypeError(f"{name} must be a number {expected}, got {value!r}.")
    if known is not None and not np.all(holds(known)):
        raise ValueError(f"{name} must be a number {expected}, got {value}.")


def _one(value, name):
    if np.ndim(value):
        raise ValueError(f"{name} must be one number, got the shape {np.shape(value)}.")


def checked_logits(logits: Any) -> jax.Array:
    """The logits `[..., V]` in float32 at least; raises unless they are floating."""
    logits = checks.array(logits, "logits")
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise TypeError(f"logits must be floating, got the dtype {logits.dtype}.")
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits must be [..., V] for at least one token, got {logits.shape}.")
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def _at_temperature(logits, temperature):
    """logits / temperature up to a constant, and its limit at 0."""
    temperature = jnp.asarray(temperature, logits.dtype)
    relative = logits - logits.max(-1, keepdims=True)
    # An infinite logit is the only one to draw; the difference of two is NaN.
    relative = jnp.where(logits == jnp.inf, 0, relative)
    limit = jnp.where(relative == 0, 0, -jnp.inf)
    divisor = jnp.where(temperature > 0, temperature, 1)
    return jnp.where(temperature > 0, relative / divisor, limit)


def _kept(logits, top_k, top_p):
    """Which tokens top_k and top_p keep, in the order of the vocabulary."""
    num_tokens = logits.shape[-1]
    top_k = num_tokens if top_k is None else top_k
    if top_k > num_tokens:
        raise ValueError(f"top_k must be at most {num_tokens}, the number of tokens, got {top_k}.")
    values, tokens = jax.lax.top_k(logits, top_k)
    kept = jnp.ones(values.shape, bool)
    if top_p is not None:
        probabilities = jax.nn.softmax(values)
        likelier = jnp.cumsum(probabilities, axis=-1) - probabilities
        # The sum may round to 1 before the last tokens, and top_p = 1 must keep these too.
        kept = ((likelier < top_p) | (jnp.asarray(top_p) >= 1)).at[..., 0].set(True)
    no_token = jnp.zeros(logits.shape, bool)
    return jnp.put_along_axis(no_token, tokens, kept, axis=-1, inplace=False)
