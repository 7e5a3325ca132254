"""The meaning of a mask and of a reset, and the checks of both."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from jaxrnn.engine import checks
from jaxrnn.types import Array, Carry, Cell, Mask, Params, Reset

_FLAG_DTYPES = (jnp.bool_, jnp.integer, jnp.floating)
_HOW_TO_WEIGH = "; weights go to `weights=` of the losses, and flags are made by `mask != 0`"
_LENGTHS = " Lengths become a mask by mask_from_lengths."


class Restart(NamedTuple):
    """A reset that returns to one of many starts: bool `flag`, and int `number`, its entry."""

    flag: Array
    number: Array


def select(flag: Any, yes: Any, no: Any) -> Any:
    """Takes `yes` where `flag` is True and `no` elsewhere, leaf by leaf.

    Args:
        flag: bool `[*prefix]`, a leading prefix of every leaf.
        yes: a tree of arrays `[*prefix, ...]`.
        no: a tree like `yes`.

    Returns:
        A tree like `yes`. Numbers that are not taken, NaN included, reach no value and no
        cotangent.

    Example:
        >>> select(jnp.array([True, False]), jnp.ones((2, 3)), jnp.zeros((2, 3))).sum(axis=1)
        Array([3., 0.], dtype=float32)
    """
    # Flags are a leading prefix of every leaf, because time is axis 0: so one function serves
    # vectors and matrix memories, single steps and whole sequences.
    return jax.tree.map(
        lambda yes_leaf, no_leaf: jnp.where(expand_mask(flag, yes_leaf), yes_leaf, no_leaf), yes, no
    )


def restarted(carry: Carry, initial: Carry, reset: Reset | Restart) -> Carry:
    """The carry before a step: `initial` where the step starts a new sequence.

    Args:
        carry: the carry after the previous step, leaves `[*prefix, ...]`.
        initial: the carry that a reset returns to, like `carry`; for a `Restart` all of them,
            leaves `[N, *prefix, ...]`.
        reset: None, bool `[*prefix]`, or a `Restart` of such arrays.

    Returns:
        A tree like `carry`.
    """
    if reset is None:
        return carry
    if isinstance(reset, Restart):
        initial = jax.tree.map(lambda leaf: leaf[0], taken(initial, reset.number[None]))
        reset = reset.flag
    return select(reset, initial, carry)


def held(new: Carry, old: Carry, mask: Mask) -> Carry:
    """The carry after a step: `old` where the step is masked.

    Args:
        new: the carry that the step has computed, leaves `[*prefix, ...]`.
        old: the carry before the step, like `new`.
        mask: None or bool `[*prefix]`.

    Returns:
        A tree like `new`.
    """
    return new if mask is None else select(mask, new, old)


def guarded(
    cell: Cell,
    params: Params,
    initial: Carry,
    carry: Carry,
    z: Any,
    mask: Mask,
    reset: Reset | Restart,
) -> Carry:
    """One step of a cell with its reset and its mask.

        h' = rₜ ? initial_carry : hₜ₋₁,  hₜ = mₜ ? advance(h', zₜ) : h'

    Reset acts first and mask second, so a reset on a masked step counts.

    Args:
        cell: the cell.
        params: its parameters.
        initial: the carry that a reset returns to; None where there is no reset.
        carry: the carry after the previous step.
        z: the projection of x.
        mask: None or bool `[*batch]`.
        reset: None, bool `[*batch]` or a `Restart`, as in `restarted`.

    Returns:
        The carry after the step.
    """
    before = restarted(carry, initial, reset)
    after = cell.advance(params, before, z)
    # Before `held`, whose `where` would promote a wrong dtype and broadcast a wrong shape.
    checks.same_tree(after, before, "advance(params, carry, z)")
    return held(after, before, mask)


def concrete(values: Any) -> np.ndarray | None:
    """The values as a numpy array, or None when they are traced.

    Args:
        values: an array, or a number, list or tree that numpy turns into one.

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


def as_mask(mask: Mask, shape: tuple[int, ...], name: str = "mask") -> jax.Array:
    """Flags as bools, checked against the shape that they must have.

    Args:
        mask: flags `[..., T]`, bool, or 0 and 1 as ints, or as floats that are not traced. Under
            `jit` the values of ints cannot be checked; any entry other than 0 is True.
        shape: the exact shape that it must have.
        name: what the errors call it; `"reset"` for resets.

    Returns:
        bool `[..., T]`.

    Raises:
        TypeError: It is not an array of bools, ints or floats, or it is traced and floating.
        ValueError: It has another shape, or (when its values are known) one that is not 0 or 1.

    Example:
        >>> as_mask([1, 0, 1], (3,))
        Array([ True, False,  True], dtype=bool)
    """
    flags = checks.array(mask, name)
    if not any(jnp.issubdtype(flags.dtype, dtype) for dtype in _FLAG_DTYPES):
        raise TypeError(f"{name} must be bool, or 0 and 1, got the dtype {flags.dtype}.")
    shape = tuple(shape)
    if flags.shape != shape:
        # Flags that lack only the time axis are probably lengths. Time is the last axis for callers
        # and the first one inside the engine.
        hint = _LENGTHS if shape and flags.shape in (shape[:-1], shape[1:]) else ""
        raise ValueError(f"{name} must have the shape {shape}, got {flags.shape}.{hint}")
    if flags.dtype == bool:
        return flags
    _check_zero_or_one(mask, flags.dtype, name)
    return flags != 0


def taken(tree: Any, index: Array) -> Any:
    """Entries `[K, *batch, ...]` of leaves `[N, *batch, ...]`, chosen row by row.

    Args:
        tree: a tree of arrays.
        index: ints `[K, *batch]`.

    Returns:
        A tree like `tree`.

    Example:
        >>> taken(jnp.array([[1, 2], [3, 4], [5, 6]]), jnp.array([[2, 0]]))
        Array([[5, 2]], dtype=int32)
    """
    return jax.tree.map(
        lambda leaf: jnp.take_along_axis(leaf, expand_mask(index, leaf), axis=0), tree
    )


def expand_mask(mask: jax.Array, leaf: jax.Array) -> jax.Array:
    """Adds the feature axes of a leaf to a mask, each of size 1.

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


def zero_masked(mask: Mask, xs: Any) -> Any:
    """Puts zeros where the mask is False, so that the numbers there reach nothing.

    A product with the mask would let NaN through. A `where` does not, neither in values nor, since
    it comes before anything is computed, in gradients.

    Args:
        mask: bool `[..., T]`, or None, which keeps everything.
        xs: a tree of arrays `[..., T, *features]`.

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


def reached(bad: Array, bad_carry: Array, reset: Reset) -> Array:
    """Whether a bad step, or a bad carry, of the same sequence came before, or the step is bad.

    Args:
        bad: bool `[T, *batch]`, at least one step.
        bad_carry: bool `[*batch]`, for the carry before the first step.
        reset: None or bool `[T, *batch]`.

    Returns:
        bool `[T, *batch]`.
    """
    # Steps count from 1. For each step two numbers are compared: that of the last bad step so far
    # (0 is a bad carry, -1 is none), and that of the first step of its sequence (0 if its sequence
    # goes back to the carry).
    steps = jnp.arange(1, len(bad) + 1).reshape(-1, *[1] * (bad.ndim - 1))
    last_bad = lax.cummax(jnp.where(bad, steps, jnp.where(bad_carry, 0, -1)))
    start = 0 if reset is None else lax.cummax(jnp.where(reset, steps, 0))
    return last_bad >= start


def _check_zero_or_one(mask, dtype, name):
    values = concrete(mask)
    if values is None:
        # A weight that is not 0 would count as a whole step, and so would NaN.
        if jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"{name} must be bool, or 0 and 1 as ints, where it is traced, got the dtype "
                f"{dtype}{_HOW_TO_WEIGH}."
            )
        return
    wrong = values[(values != 0) & (values != 1)]
    if wrong.size:
        hint = _LENGTHS if (wrong > 1).any() else ""
        raise ValueError(f"{name} must hold only 0 and 1, got {wrong[0]}.{hint}")
