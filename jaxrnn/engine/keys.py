"""Keys of random numbers: a PRNG key, None for the deterministic model, or a `MissingKey`."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.types import Array, Key


@jax.tree_util.register_static
@dataclass(frozen=True)
class MissingKey:
    """The key of a training step that was called without one.

    Deterministic models ignore it, and models that draw noise raise: dropout cannot be switched off
    by forgetting an argument.

    Attributes:
        asked_by: the name of the training step, for the error.
        advice: what its caller can do, for the error.
    """

    asked_by: str
    advice: str = (
        "pass key=jax.random.key(...), or pass key=None to unroll inside the loss for the "
        "deterministic model."
    )


class DrawsNoise(ValueError):
    """A model that draws noise was run with a `MissingKey`."""


def checked_key(key: Key) -> Key:
    """Returns `key` if it is one PRNG key, None or a `MissingKey`.

    Args:
        key: the argument of a caller.

    Raises:
        TypeError: It is something else, for example an int.
    """
    if key is None or isinstance(key, MissingKey):
        return key
    dtype, shape = getattr(key, "dtype", None), np.shape(key)
    # Both kinds of keys: those of `jax.random.key`, and the uint32 vectors of `jax.random.PRNGKey`.
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if (typed and shape == ()) or (dtype == jnp.uint32 and len(shape) == 1):
        return key
    raise TypeError(
        f"key must be one PRNG key, as jax.random.key(seed) makes it, or None, got {key!r}."
    )


def split_key(key: Key, num: int) -> list[Key]:
    """Splits a key into `num` keys; None and a `MissingKey` are repeated.

    Args:
        key: a PRNG key, None, or MissingKey.
        num: number of keys.

    Returns:
        A list of `num` keys.

    Example:
        >>> split_key(None, 2), len(split_key(jax.random.key(0), 3))
        ([None, None], 3)
    """
    if key is None or isinstance(key, MissingKey):
        return [key] * num
    return list(jax.random.split(key, num))


def fold_in(key: Key, index: Any) -> Key:
    """The key with the number `index`; None and a `MissingKey` are returned as they are."""
    if key is None or isinstance(key, MissingKey):
        return key
    return jax.random.fold_in(key, index)


def drawing_key(key: Key, name: str) -> Key:
    """The key to draw noise with: a PRNG key, or None for the deterministic model.

    Args:
        key: a PRNG key, None, or MissingKey.
        name: name of the model that draws noise, for the error.

    Raises:
        DrawsNoise: A training step was called without a key although `name` draws noise.
    """
    if isinstance(key, MissingKey):
        raise DrawsNoise(f"{name} draws noise but {key.asked_by} got no key: {key.advice}")
    return key


def from_sequence_start(draws: Array, reset: Array) -> Array:
    """For each step, the draw of the first step of its sequence.

    Args:
        draws: `[T, *batch, ...]`, a draw for every step.
        reset: bool `[T, *batch]`.

    Returns:
        An array like `draws`, constant from a reset to the next one.

    Example:
        >>> from_sequence_start(jnp.array([5, 6, 7, 8]), jnp.array([False, False, True, False]))
        Array([5, 5, 7, 7], dtype=int32)
    """
    # The largest number of a reset step so far is the start of the sequence; 0 is the start of the
    # first one, with or without a reset there.
    steps = jnp.arange(reset.shape[0]).reshape(-1, *[1] * (reset.ndim - 1))
    start = lax.cummax(jnp.where(reset, steps, 0))
    start = start.reshape(*start.shape, *[1] * (draws.ndim - start.ndim))
    return jnp.take_along_axis(draws, start, axis=0)
