"""Masks, lengths and resets, and how to convert between them.

A mask is True where a step is real; a reset is True where a step starts a new sequence. Values
are checked when they are concrete; of a traced array only the shape and the dtype can be checked.
"""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxrnn.engine import checks
from jaxrnn.engine.masking import as_mask, concrete


def mask_from_lengths(seq_lengths: Any, num_steps: int) -> jax.Array:
    """The mask of right-padded sequences.

        mₜ = t < length

    Args:
        seq_lengths: ints `[...]`, each in 0 ... `num_steps`; traced ones cannot be checked.
        num_steps: T, an int, or a symbol of `jax.export`.

    Returns:
        bool `[..., T]`.

    Raises:
        TypeError: The lengths or `num_steps` are not ints.
        ValueError: A concrete length is below 0 or above `num_steps`, or `num_steps` is below 0.

    Example:
        >>> mask_from_lengths([2, 0], 3)
        Array([[ True,  True, False],
               [False, False, False]], dtype=bool)
    """
    lengths = _as_ints(seq_lengths, "seq_lengths")
    if checks.is_symbolic(num_steps):
        return jnp.arange(num_steps) < lengths[..., None]
    num_steps = _as_int(num_steps, "num_steps")
    if num_steps < 0:
        raise ValueError(f"num_steps must be at least 0, got {num_steps}.")
    values = concrete(seq_lengths)
    if values is not None and values.size:
        shortest, longest = int(values.min()), int(values.max())
        if shortest < 0 or longest > num_steps:
            raise ValueError(
                f"seq_lengths must lie in 0 ... num_steps = {num_steps}, "
                f"got {shortest} ... {longest}."
            )
    return jnp.arange(num_steps) < lengths[..., None]


def lengths_from_mask(mask: Any) -> jax.Array:
    """The lengths of right-padded sequences.

    Args:
        mask: `[..., T]`, right-padded: no real step after a masked one. A traced mask cannot be
            checked; its real steps are counted.

    Returns:
        int32 `[...]`.

    Raises:
        TypeError: The mask is not an array of bools, ints or floats.
        ValueError: It has no time axis, or is concrete and not right-padded.

    Example:
        >>> lengths_from_mask([[1, 1, 0], [0, 0, 0]])
        Array([2, 0], dtype=int32)
    """
    flags = _as_flags(mask, "mask")
    values = concrete(mask)
    if values is not None and (values[..., 1:] > values[..., :-1]).any():
        raise ValueError(
            "mask must be right-padded to have lengths, got a real step after a masked one. "
            "unroll and the pooling functions take the mask itself; mask.sum(-1) counts its "
            "real steps."
        )
    return flags.sum(-1, dtype=jnp.int32)


def reset_from_segments(segment_ids: Any) -> jax.Array:
    """The resets of rows that hold several sequences, from the sequence each step belongs to.

        r₀ = True,  rₜ = idₜ ≠ idₜ₋₁

    Padding with a different id, such as -1, starts a segment too. After the last real step that
    resets the carry: where the final carry matters, give padding the id of the step before it, or
    use the `reset` of `pack`, which marks only the starts of sequences.

    Args:
        segment_ids: ints `[..., T]`.

    Returns:
        bool `[..., T]`.

    Raises:
        TypeError: The ids are not ints.
        ValueError: They have no time axis.

    Example:
        >>> reset_from_segments([4, 4, 2, 4])
        Array([ True, False,  True,  True], dtype=bool)
    """
    ids = _with_time(_as_ints(segment_ids, "segment_ids"), "segment_ids")
    first = jnp.ones(ids[..., :1].shape, bool)
    return jnp.concatenate([first, ids[..., 1:] != ids[..., :-1]], axis=-1)


def reset_from_done(done: Any, last_done: Any = False) -> jax.Array:
    """The resets of rollouts, from the flags that say where an episode ended.

        r₀ = last_done,  rₜ = doneₜ₋₁

    done[t] says that the episode ends after step t: x_t is its last step and x_{t+1} the first
    of the next one. Whether an episode ended before step 0 is not in this chunk, so a rollout that
    continues passes `last_done=done[..., -1]` of the previous chunk, together with the carry.

    Args:
        done: `[..., T]`, bool or 0 and 1.
        last_done: `[...]`, the last flag of the previous chunk, or one flag for all rows. False:
            the carry that is passed in belongs to the episode of step 0.

    Returns:
        bool `[..., T]`.

    Raises:
        TypeError: A flag is not a bool, int or float.
        ValueError: `done` has no time axis, `last_done` does not have the shape of its rows, or a
            concrete flag is neither 0 nor 1.

    Example:
        >>> reset_from_done([0, 1, 0, 1])
        Array([False, False,  True, False], dtype=bool)
        >>> reset_from_done([0, 0], last_done=1)
        Array([ True, False], dtype=bool)
    """
    flags = _as_flags(done, "done")
    rows = flags.shape[:-1]
    first = as_mask(last_done, rows if np.ndim(last_done) else (), "last_done")
    first = jnp.broadcast_to(first, rows)[..., None]
    return jnp.concatenate([first, flags], axis=-1)[..., : flags.shape[-1]]


def _as_flags(flags, name):
    """`as_mask` for flags of any shape with a time axis."""
    return _with_time(as_mask(flags, np.shape(flags), name), name)


def _as_int(value, name):
    if isinstance(value, bool | Tracer) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, since a shape depends on it, got {value!r}.")
    return operator.index(value)


def _as_ints(values, name):
    checks.array_or_list(values, name)
    known = concrete(values)
    # Concrete values stay numpy: without x64 JAX would cut an int64 id to its lower half.
    ints = jnp.asarray(values) if known is None else known
    if not jnp.issubdtype(ints.dtype, jnp.integer):
        raise TypeError(f"{name} must be ints, got the dtype {ints.dtype}.")
    return ints


def _with_time(flags, name):
    if flags.ndim == 0:
        raise ValueError(f"{name} must have a time axis, got a scalar.")
    return flags
