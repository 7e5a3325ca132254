"""Masks, lengths and resets: their checks, and how each is made from the others.

A mask is True where a step is real; a reset is True where a step starts a new sequence. Values
are checked where they can be read: a traced array has none yet, so there only its shape and its
dtype are checked.
"""

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_FLAG_DTYPES = (jnp.bool_, jnp.integer, jnp.floating)


def concrete(values: Any) -> np.ndarray | None:
    """The values as a numpy array, or None when they are traced.

    Args:
        values: An array, or what becomes one.

    Returns:
        A numpy array, or None.

    Example:
        >>> concrete([1, 0])
        array([1, 0])
        >>> jax.eval_shape(lambda mask: concrete(mask), jnp.ones(2)) is None
        True
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values)):
        return None
    return np.asarray(values)


def as_mask(mask: Any, shape: tuple[int, ...], name: str = "mask") -> jax.Array:
    """Flags as bools, checked against the shape they must have.

    Args:
        mask: `[..., T]`, bool, or 0 and 1 as ints or floats. What is traced and no bool cannot be
            checked and means `!= 0`.
        shape: The shape it must have, exactly.
        name: What the errors call it; `"reset"` for resets.

    Returns:
        bool `[..., T]`.

    Raises:
        TypeError: It is no array of bools, ints or floats.
        ValueError: It has another shape, or (when concrete) a value that is neither 0 nor 1.

    Example:
        >>> as_mask([1, 0, 1], (3,))
        Array([ True, False,  True], dtype=bool)
    """
    try:
        flags = jnp.asarray(mask)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of bools, got {mask!r}.") from error
    if not any(jnp.issubdtype(flags.dtype, dtype) for dtype in _FLAG_DTYPES):
        raise TypeError(f"{name} must be bool, or 0 and 1, got the dtype {flags.dtype}.")
    shape = tuple(shape)
    if flags.shape != shape:
        # Time is the last axis for callers and the first inside the engine.
        hint = _LENGTHS if shape and flags.shape in (shape[:-1], shape[1:]) else ""
        raise ValueError(f"{name} must have the shape {shape}, got {flags.shape}.{hint}")
    if flags.dtype == bool:
        return flags
    _check_zero_or_one(mask, name)
    return flags != 0


def expand_mask(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    """Gives a mask the feature axes of a leaf, each of size 1.

    Args:
        mask: bool `[..., T]`.
        leaf: `[..., T, *features]`.

    Returns:
        bool `[..., T, 1, ...]` with the number of axes of `leaf`.

    Example:
        >>> expand_mask(jnp.array([True, False]), jnp.zeros((2, 3, 4))).shape
        (2, 1, 1)
    """
    return jnp.expand_dims(mask, tuple(range(mask.ndim, leaf.ndim)))


def zero_masked(mask: jax.Array | None, xs: Any) -> Any:
    """Puts zeros where the mask is False, so that what stood there reaches nothing.

    A product with the mask would let NaN through; a `where` before the mathematics does not, in
    values and in gradients.

    Args:
        mask: bool `[..., T]`, or None, which keeps everything.
        xs: A tree of arrays `[..., T, *features]`.

    Returns:
        A tree like `xs`.

    Example:
        >>> zero_masked(jnp.array([True, False]), jnp.array([1.0, jnp.nan]))
        Array([1., 0.], dtype=float32)
    """
    if mask is None:
        return xs
    return jax.tree.map(
        lambda leaf: jnp.where(expand_mask(mask, leaf), leaf, jnp.zeros_like(leaf)), xs
    )


def mask_from_lengths(seq_lengths: Any, num_steps: int) -> jax.Array:
    """The mask of right-padded sequences.

        mₜ = t < length

    Args:
        seq_lengths: ints `[...]`, each in 0 ... `num_steps`; traced ones cannot be checked.
        num_steps: T.

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
        mask: `[..., T]`, right-padded: no real step behind a masked one. A traced mask cannot be
            checked; its real steps are counted.

    Returns:
        int32 `[...]`.

    Raises:
        TypeError: The mask is no array of bools, ints or floats.
        ValueError: It has no time axis, or is concrete and not right-padded.

    Example:
        >>> lengths_from_mask([[1, 1, 0], [0, 0, 0]])
        Array([2, 0], dtype=int32)
    """
    flags = _as_flags(mask, "mask")
    values = concrete(mask)
    if values is not None and (values[..., 1:] > values[..., :-1]).any():
        raise ValueError(
            "mask must be right-padded to have lengths, got a real step behind a masked one. "
            "unroll and the pooling functions take the mask itself; mask.sum(-1) counts its "
            "real steps."
        )
    return flags.sum(-1, dtype=jnp.int32)


def reset_from_segments(segment_ids: Any) -> jax.Array:
    """The resets of rows that hold several sequences, from the sequence each step belongs to.

        r₀ = True,  rₜ = idₜ ≠ idₜ₋₁

    Padding that has an id of its own, -1 say, starts a segment too: behind the last real step
    that resets the carry, so ask for a final carry with the padding's id set to the one before
    it, or take `pack`'s own `reset`, which marks starts of sequences only.

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
    of the next one. What ended before step 0 stands in no flag of this chunk, so a rollout that
    goes on passes `last_done=done[..., -1]` of the chunk before it, together with the carry.

    Args:
        done: `[..., T]`, bool or 0 and 1.
        last_done: `[...]`, the last flag of the chunk before; or one flag for all rows. False:
            the carry that is passed in belongs to the episode of step 0.

    Returns:
        bool `[..., T]`.

    Raises:
        TypeError: A flag is no bool, int or float.
        ValueError: `done` has no time axis, `last_done` another shape than its rows, or a
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


_LENGTHS = " Lengths become a mask by mask_from_lengths."


def _check_zero_or_one(mask, name):
    values = concrete(mask)
    if values is None:
        return
    wrong = values[(values != 0) & (values != 1)]
    if wrong.size:
        hint = _LENGTHS if (wrong > 1).any() else ""
        raise ValueError(f"{name} must hold only 0 and 1, got {wrong[0]}.{hint}")


def _as_flags(flags, name):
    """`as_mask` for flags that set the shape themselves."""
    return _with_time(as_mask(flags, np.shape(flags), name), name)


def _as_int(value, name):
    if isinstance(value, bool | Tracer) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, a shape depends on it, got {value!r}.")
    return operator.index(value)


def _as_ints(values, name):
    read = concrete(values)
    # Without x64 an int of 64 bits would lose its upper half on the way to JAX.
    ints = jnp.asarray(values) if read is None else read
    if not jnp.issubdtype(ints.dtype, jnp.integer):
        raise TypeError(f"{name} must be ints, got the dtype {ints.dtype}.")
    return ints


def _with_time(flags, name):
    if flags.ndim == 0:
        raise ValueError(f"{name} must have a time axis, got a scalar.")
    return flags
