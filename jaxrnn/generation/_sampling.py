"""From logits to tokens: the likeliest one, or a draw from what temperature and cuts leave."""

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
    """Chooses a token from logits, greedily or by a draw.

        greedy: argmax logits;  else token ~ softmax(logits / temperature) on the tokens kept

    `top_k` keeps the k likeliest tokens (Fan et al. 2018, arXiv:1805.04833), of equal ones the
    lower numbers. `top_p` then keeps the smallest set of the likeliest whose probability is at
    least that (Holtzman et al. 2019, arXiv:1904.09751), never less than one. Both cut after the
    temperature, and the draw of a key is the same number for a token whatever is cut, so
    `top_k=1` is greedy and `top_p=1` is the plain draw.

    Args:
        logits: `[..., V]`; -inf forbids a token.
        key: For the draw; greedy choice needs none.
        temperature: A number of at least 0, which may be traced; None is greedy. 0 is the limit,
            a draw among the likeliest.
        top_k: How many tokens are kept, 1 ... V; None keeps all.
        top_p: A probability in (0, 1], which may be traced; None keeps all.

    Returns:
        int32 `[...]`; -1, which is no token, where the logits hold NaN.

    Raises:
        TypeError: The logits are not floating, `top_k` is no int, or a number is none.
        ValueError: There is no key to sample with, a value lies outside of its range (when
            concrete), or a cut is given without a temperature.

    Example:
        >>> logits = jnp.log(jnp.array([0.5, 0.3, 0.2]))
        >>> next_token(logits)
        Array(0, dtype=int32)
        >>> keys = jax.random.split(jax.random.key(0), 50)
        >>> draw = jax.vmap(lambda key: next_token(logits, key, temperature=1.0, top_p=0.6))
        >>> sorted(set(draw(keys).tolist()))
        [0, 1]
    """
    logits = _checked_logits(logits)
    check_choice(key, temperature, top_k, top_p)
    if temperature is None:
        token = jnp.argmax(logits, axis=-1)
    else:
        scaled = _cooled(logits, temperature)
        if top_k is not None or top_p is not None:
            scaled = jnp.where(_kept(scaled, top_k, top_p), scaled, -jnp.inf)
        token = jax.random.categorical(drawing_key(key, "next_token"), scaled)
    return jnp.where(jnp.isnan(logits).any(-1), -1, token).astype(jnp.int32)


def check_choice(key: Any, temperature: Any, top_k: Any, top_p: Any) -> None:
    """Raises unless the arguments of `next_token` say what to do."""
    if temperature is None:
        for name, value in {"top_k": top_k, "top_p": top_p}.items():
            if value is not None:
                raise ValueError(
                    f"temperature must be given to sample with {name}, 1.0 say; "
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
    """Raises unless `value` is a number or numbers, and `holds` for all when they are concrete."""
    known = concrete(value)
    dtype = value.dtype if known is None else known.dtype
    if not jnp.issubdtype(dtype, jnp.number):
        raise TypeError(f"{name} must be a number {expected}, got {value!r}.")
    if known is not None and not np.all(holds(known)):
        raise ValueError(f"{name} must be a number {expected}, got {value}.")


def _one(value, name):
    if np.ndim(value):
        raise ValueError(f"{name} must be one number, got the shape {np.shape(value)}.")


def _checked_logits(logits):
    logits = jnp.asarray(logits)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise TypeError(f"logits must be floating, got the dtype {logits.dtype}.")
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"logits must be [..., V] for at least one token, got {logits.shape}.")
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def _cooled(logits, temperature):
    """logits / temperature up to a constant, and its limit at 0."""
    temperature = jnp.asarray(temperature, logits.dtype)
    below = logits - logits.max(-1, keepdims=True)
    cold = jnp.where(below == 0, 0, -jnp.inf)
    return jnp.where(temperature > 0, below / jnp.where(temperature > 0, temperature, 1), cold)


def _kept(logits, top_k, top_p):
    """Which tokens the cuts leave, in the order of the vocabulary."""
    num_tokens = logits.shape[-1]
    top_k = num_tokens if top_k is None else top_k
    if top_k > num_tokens:
        raise ValueError(f"top_k must be at most the {num_tokens} tokens there are, got {top_k}.")
    values, tokens = jax.lax.top_k(logits, top_k)
    kept = jnp.ones(values.shape, bool)
    if top_p is not None:
        probabilities = jax.nn.softmax(values)
        likelier = jnp.cumsum(probabilities, axis=-1) - probabilities
        # A sum that rounds to 1 early must not cut anything from the whole.
        kept = ((likelier < top_p) | (jnp.asarray(top_p) >= 1)).at[..., 0].set(True)
    none = jnp.zeros(logits.shape, bool)
    return jnp.put_along_axis(none, tokens, kept, axis=-1, inplace=False)
