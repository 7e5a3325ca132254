"""Keys as arguments: an array, None (the deterministic model), or a key that is missing."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@jax.tree_util.register_static
@dataclass(frozen=True)
class MissingKey:
    """Stands where a training step got no key: what draws noise raises, the rest ignores it."""

    asked_by: str


def checked_key(key: Any) -> Any:
    """Returns `key` when it is one PRNG key, None or a missing key.

    Args:
        key: What was given for a key.

    Raises:
        TypeError: It is something else, an int say.
    """
    if key is None or isinstance(key, MissingKey):
        return key
    dtype, shape = getattr(key, "dtype", None), jnp.shape(key)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if (typed and shape == ()) or (dtype == jnp.uint32 and len(shape) == 1):
        return key
    raise TypeError(
        f"key must be one PRNG key, as jax.random.key(seed) makes it, or None, got {key!r}."
    )


def split_key(key: Any, num: int) -> list[Any]:
    """`num` keys from one; None and a missing key stay what they are.

    Args:
        key: A PRNG key, None, or MissingKey.
        num: How many.

    Returns:
        A list of `num` keys.

    Example:
        >>> split_key(None, 2), len(split_key(jax.random.key(0), 3))
        ([None, None], 3)
    """
    if key is None or isinstance(key, MissingKey):
        return [key] * num
    return list(jax.random.split(key, num))


def fold_in(key: Any, index: Any) -> Any:
    """The key of number `index`; None and a missing key stay what they are."""
    if key is None or isinstance(key, MissingKey):
        return key
    return jax.random.fold_in(key, index)


def drawing_key(key: Any, name: str) -> Any:
    """The key for a draw: an array, or None for the deterministic model.

    Args:
        key: A PRNG key, None, or MissingKey.
        name: What draws, for the error.

    Raises:
        ValueError: A training step was called without a key although `name` draws noise.
    """
    if isinstance(key, MissingKey):
        raise ValueError(
            f"{name} draws noise but {key.asked_by} got no key: pass key=jax.random.key(...), "
            "or pass key=None to unroll inside the loss for the deterministic model."
        )
    return key


def from_sequence_start(draws: Any, reset: Any) -> Any:
    """What was drawn for the first step of the sequence each step belongs to.

    Args:
        draws: `[T, *batch, ...]`, a draw for every step.
        reset: bool `[T, *batch]`.

    Returns:
        An array like `draws`, constant from a reset to the next one.

    Example:
        >>> from_sequence_start(jnp.array([5, 6, 7, 8]), jnp.array([False, False, True, False]))
        Array([5, 5, 7, 7], dtype=int32)
    """
    steps = jnp.arange(reset.shape[0]).reshape(-1, *[1] * (reset.ndim - 1))
    start = lax.cummax(jnp.where(reset, steps, 0))
    start = start.reshape(*start.shape, *[1] * (draws.ndim - start.ndim))
    return jnp.take_along_axis(draws, start, axis=0)
