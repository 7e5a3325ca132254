"""Windows of steps merged into one step each: a sequence that becomes shorter."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import min_dim

from jaxrnn.engine import checks
from jaxrnn.engine.masking import concrete, expand_mask, zero_masked
from jaxrnn.factories import model_factory
from jaxrnn.types import Flags, Layer, Rollout, Steps


class Windows(NamedTuple):
    """Which steps go into which window; a window has a place for each of `stride` steps.

    Attributes:
        index: int `[T', stride, *batch]`, the step in each place; T where there is none.
        real: bool `[T', stride, *batch]`, whether there is a step in it.
        flags: the flags of the windows.
        fits: bool `[*batch]`, whether a row has no more than T' windows.
    """

    index: Any
    real: Any
    flags: Flags
    fits: Any


@model_factory
def subsample(stride: int, merge: str = "concat", *, max_sequences: int | None = None) -> Layer:
    """Merges every `stride` steps into one, so that a sequence becomes shorter.

        yⱼ = merge(x_{jk}, …, x_{jk+k-1}),  k = stride

    Only real steps count, and they count anew in every sequence: a padded or packed row gives
    exactly what each of its sequences gives alone, ⌈L / k⌉ steps for L. The last window of a
    sequence may be short. "concat" puts zeros for what it lacks, "mean" is the mean of the steps
    that it has, and "last" takes the last of them.

    The windows of a row are moved together to its left, and come with a mask and resets of their
    own: the layers after it read them, and `Rollout.flags` holds them for a loss. A sequence
    without a real step keeps one masked window, so that the sequences of a row can still be
    numbered.

    The number of windows T' depends on shapes alone: ⌈T / k⌉ without resets. With resets it is T,
    because all sequences may be short; `max_sequences` = n makes it ⌊(T + n(k-1)) / k⌋. Padding
    before the first reset is one of the n. A row with more sequences may not fit. Compiled code
    cannot raise for it, so such a row is NaN; where the flags are concrete (under
    `jax.disable_jit()`, or in the layer's own `unroll`) it raises ValueError.

    It is not causal, since a short window is complete only when its sequence has ended. In a
    pyramid it comes between layers that read from both ends: Chan et al. 2016, Listen, Attend and
    Spell (arXiv:1508.01211), with "concat".

    Args:
        stride: k, steps in a window.
        merge: "concat" (along the features), "mean" or "last".
        max_sequences: n, the largest number of sequences in a row with resets; None is any number.

    Returns:
        The layer, `[..., T, D] -> [..., T', C]` with C = kD for "concat" and D otherwise, params
        `()` and the carry `()`. It raises TypeError, while tracing, for x that is not floating.

    Raises:
        TypeError: `stride` or `max_sequences` is not an int.
        ValueError: One of them is below 1, or `merge` is not one of the above.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> xs = jnp.array([[1.0], [2.0], [9.0], [3.0], [10.0], [20.0]])
        >>> mask = jnp.array([1, 1, 0, 1, 1, 1])
        >>> reset = jnp.array([0, 0, 0, 0, 1, 0])
        >>> layer = jr.subsample(2, max_sequences=2)
        >>> rollout = jr.unroll(layer, (), xs, mask=mask, reset=reset)
        >>> print(rollout.outputs)
        [[ 1.  2.]
         [ 3.  0.]
         [10. 20.]
         [ 0.  0.]]
        >>> print(rollout.flags.mask, rollout.flags.reset)
        [ True  True  True False] [False False  True False]

        The encoder of Listen, Attend and Spell, which makes a quarter of the steps:

        >>> read = jr.bidirectional(jr.lstm(8))
        >>> pyramid = jr.serial(read, jr.subsample(2), read, jr.subsample(2), read)
        >>> params = pyramid.init(jax.random.key(0), 3)
        >>> jr.unroll(pyramid, params, jnp.ones((2, 11, 3))).outputs.shape
        (2, 3, 16)
    """
    checks.positive(stride, "stride")
    if merge not in tuple(_MERGES):
        raise ValueError(f"merge must be one of {tuple(_MERGES)}, got {merge!r}.")
    if max_sequences is not None:
        checks.positive(max_sequences, "max_sequences")

    def num_windows(num_steps, reset):
        num_sequences = 1 if reset is None else max_sequences
        if num_sequences is None:
            return num_steps
        # Python's `min` cannot compare the symbols of `jax.export`.
        return min_dim(num_steps, (num_steps + num_sequences * (stride - 1)) // stride)

    def unroll(params, carry, steps, key):
        del params, key
        xs = checks.one_array(steps.xs, "xs")
        if not jnp.issubdtype(xs.dtype, jnp.inexact):
            raise TypeError(f"xs must be floating to be merged, got the dtype {xs.dtype}.")
        windows = _windows(steps, stride, num_windows(xs.shape[0], steps.reset))
        fits = concrete(windows.fits)
        if fits is not None and not fits.all():
            raise ValueError(
                f"max_sequences must be at least the number of sequences in a row, got "
                f"{max_sequences} for rows that do not fit into {windows.real.shape[0]} windows."
            )
        ys = _MERGES[merge](_members(windows, xs), windows.real)
        # NaN, because compiled code cannot raise.
        ys = jnp.where(expand_mask(windows.fits[None], ys), ys, jnp.nan)
        return Rollout(carry, ys, (), windows.flags)

    return Layer(
        init=lambda key, num_inputs: (),
        initial_carry=lambda params, batch_shape=(): (),
        unroll=unroll,
        num_outputs=lambda num_inputs: num_inputs * (stride if merge == "concat" else 1),
        causal=False,
    )


def _windows(steps: Steps, stride: int, num_windows: int) -> Windows:
    """Where every real step goes: windows open where a sequence starts and when one is full."""
    xs, mask, reset = steps
    num_steps = xs.shape[0]
    # x may have further feature axes, such as those of a picture, and flags have none.
    shape = next((flag.shape for flag in (mask, reset) if flag is not None), xs.shape[:-1])
    real = jnp.ones(shape, bool) if mask is None else mask
    starts = jnp.zeros_like(real) if reset is None else reset
    # The first step starts a sequence with or without a flag, a masked one too: so that it has a
    # window whether the row is read from its start or from its end.
    starts = starts | (jnp.arange(num_steps) == 0).reshape(-1, *[1] * (real.ndim - 1))
    num_real = jnp.cumsum(real, axis=0, dtype=jnp.int32)
    before = lax.cummax(jnp.where(starts, num_real - real, 0))
    number = num_real - before - 1
    opens = starts | (real & (number > 0) & (number % stride == 0))
    window = jnp.cumsum(opens, axis=0, dtype=jnp.int32) - 1
    place = window * stride + number % stride
    members = _inverse(place, real, num_windows * stride)
    members = members.reshape(num_windows, stride, *members.shape[1:])
    is_real = members < num_steps
    first = _inverse(window, opens, num_windows)
    flags = Flags(
        mask=None if mask is None and reset is None else is_real.any(1),
        reset=None if reset is None else (first < num_steps) & _taken(reset, first),
    )
    return Windows(members, is_real, flags, fits=(window < num_windows).all(0))


def _inverse(position: Any, chosen: Any, size: int) -> Any:
    """For each of `size` positions the number of the chosen step that has it, or else T.

    Args:
        position: int `[T, *batch]`, which differ for the chosen steps of a row.
        chosen: bool `[T, *batch]`.
        size: how many positions there are.

    Returns:
        int32 `[size, *batch]`.
    """
    num_steps, *batch_shape = position.shape
    steps = jnp.arange(num_steps, dtype=jnp.int32)

    def of_row(position):
        nothing = jnp.full(size, num_steps, jnp.int32)
        return nothing.at[position].set(steps, mode="drop")

    rows = jnp.where(chosen, position, size).reshape(num_steps, math.prod(batch_shape))
    return jax.vmap(of_row, in_axes=1, out_axes=1)(rows).reshape(size, *batch_shape)


def _taken(xs: Any, index: Any) -> Any:
    """The steps at `index [N, *batch]`, for each row by itself; the last one for T."""
    return jnp.take_along_axis(xs, expand_mask(index, xs), axis=0, mode="clip")


def _members(windows: Windows, xs: Any) -> Any:
    """The steps of every window `[T', stride, *batch, ...]`, with zeros in the places left over."""
    num_windows, stride, *batch_shape = windows.index.shape
    taken = _taken(xs, windows.index.reshape(num_windows * stride, *batch_shape))
    features = xs.shape[1 + len(batch_shape) :]
    return zero_masked(windows.real, taken.reshape(*windows.index.shape, *features))


def _concat(members, real):
    del real
    return jnp.concatenate(jnp.moveaxis(members, 1, 0), axis=-1)


def _mean(members, real):
    wide = members.astype(jnp.promote_types(members.dtype, jnp.float32))
    return wide.sum(1) / jnp.maximum(expand_mask(real, members).sum(1), 1)


def _last(members, real):
    # The steps of a window come first, so the last one is real and has no real one after it.
    has_next = jnp.concatenate([real[:, 1:], jnp.zeros_like(real[:, :1])], axis=1)
    return zero_masked(real & ~has_next, members).sum(1)


_MERGES: dict[str, Callable[[Any, Any], Any]] = {"concat": _concat, "mean": _mean, "last": _last}
