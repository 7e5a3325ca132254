"""Recurrences that do not change with time, evaluated as one long convolution."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxrnn.sequences.masks import zero_masked
from jaxrnn.types import Path, Rollout


class Response(NamedTuple):
    """What a linear recurrence without resets does in T steps, feature by feature.

    Attributes:
        kernel: `[T, D]`, the outputs after a 1 at the first step.
        started: `carry -> [T, *batch, D]`, the outputs without input.
        last: `(carry, xs, counts) -> carry` after as many steps as `counts [*batch]` says, which
            are the last ones of xs `[T, *batch, D]`; before them xs is zero.
    """

    kernel: Any
    started: Callable[[Any], Any]
    last: Callable[[Any, Any, Any], Any]


def convolve(response: Response, carry: Any, xs: Any, mask: Any) -> Rollout:
    """Runs a linear recurrence by Fourier transforms of length 2 T or more.

        yₜ = Σₛ kernelₜ₋ₛ xₛ + startedₜ

    With a mask the real steps of each row move together to its end, and the outputs back.

    Args:
        response: Of T steps.
        carry: Where it starts.
        xs: `[T, *batch, D]`.
        mask: None or bool `[T, *batch]`.

    Returns:
        Rollout with outputs `[T, *batch, D]`.
    """
    num_steps = xs.shape[0]
    started = response.started(carry)
    if mask is None:
        counts = jnp.full(xs.shape[1:-1], num_steps)
        outputs = _causal_product(response.kernel, xs) + started
        return Rollout(response.last(carry, xs, counts), outputs, Path("convolution"))
    order = jnp.argsort(mask, axis=0, stable=True)
    xs = _at(zero_masked(mask, xs), order)
    counts = mask.sum(axis=0)
    number = jnp.maximum(jnp.cumsum(mask, axis=0) - 1, 0)
    place = jnp.minimum(number + num_steps - counts, num_steps - 1)
    outputs = _at(_causal_product(response.kernel, xs), place) + _at(started, number)
    return Rollout(response.last(carry, xs, counts), outputs, Path("convolution"))


def _causal_product(kernel, xs):
    """Σₛ kernelₜ₋ₛ xₛ; a transform shorter than 2 T would wrap the end round to the start."""
    num_steps = xs.shape[0]
    length = 1 << (2 * num_steps - 1).bit_length()
    kernel = jnp.fft.rfft(kernel, length, axis=0)
    kernel = kernel.reshape(len(kernel), *[1] * (xs.ndim - 2), -1)
    product = kernel * jnp.fft.rfft(xs, length, axis=0)
    return jnp.fft.irfft(product, length, axis=0)[:num_steps]


def _at(leaf, steps):
    return jnp.take_along_axis(leaf, steps[..., None], axis=0)
