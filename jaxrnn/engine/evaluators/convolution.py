"""Recurrences that do not change with time, evaluated as one long convolution."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine.evaluators.nan_shield import shielded
from jaxrnn.engine.masking import zero_masked
from jaxrnn.engine.precision import in_compute_dtype, project
from jaxrnn.engine.recurrent import recurrent
from jaxrnn.types import Affine, Cell, Layer, Path, Rollout


def convolutional(cell: Cell) -> Layer:
    """A linear cell whose coefficients and features stand apart, run as one long convolution.

        hₜ = a ⊙ hₜ₋₁ + b xₜ,  yₜ = Re(c · hₜ) + e xₜ    for each feature, a the same at all t
        yₜ = Σ_{s≤t} Re(c · aᵗ⁻ˢ b) xₛ + Re(c · aᵗ⁺¹ h₋₁) + e xₜ

    Gu et al. 2022 (arXiv:2206.11893): the states are summed before the convolution, whose Fourier
    transforms cost O(T log T) for a feature, where the recurrence keeps N states for every row and
    step. The kernel takes O(T N) memory whatever the batch. Masks of any pattern are kept, by
    moving real steps together. A sequence with resets, and T = 1, is run as `recurrent(cell)`,
    which gives the same to the rounding of the largest input of the row, later ones included.

    Args:
        cell: A linear cell such as `s4d`: yₜ of a feature depends on x of this feature alone, is
            linear in it, and the carry is one array `[..., D, N]`.

    Returns:
        The layer, `[T, *batch, D] -> [T, *batch, D]`, with the params and the carry of the cell.

    Raises:
        TypeError: `cell` is not a Cell, is not linear, draws noise, or has another carry.
        ValueError: Coefficients change with x, features mix, or the response is not linear.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> layer = jr.convolutional(jr.s4d(16))
        >>> params = layer.init(jax.random.key(0), 3)
        >>> rollout = jr.unroll(layer, params, jnp.ones((2, 100, 3)))
        >>> rollout.outputs.shape, rollout.info.evaluator
        ((2, 100, 3), 'convolution')
    """
    by_step = recurrent(cell)
    _check_cell(cell)
    at_once = shielded(_at_once)

    def unroll(params, carry, xs, mask, reset, key):
        if reset is None and xs.shape[0] > 1:
            return at_once(cell, params, carry, xs, mask, reset)
        return by_step.unroll(params, carry, xs, mask, reset, key)

    return by_step._replace(unroll=unroll)


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


class _Coefficients(NamedTuple):
    """`a`, `b`, `c` `[D, N]` and `e [D]` of a linear cell."""

    a: Any
    b: Any
    c: Any
    e: Any


def _at_once(cell, params, carry, xs, mask, reset):
    del reset
    (h,), tree = jax.tree.flatten(carry)
    xs = in_compute_dtype(params, xs)
    coefficients = _coefficients(cell, params, tree, h.dtype, xs.shape[-1])
    rollout = convolve(_response(coefficients, len(xs)), h, xs, mask)
    outputs = rollout.outputs + coefficients.e * xs
    return Rollout(tree.unflatten([rollout.carry]), outputs, rollout.info)


def _coefficients(cell, params, tree, dtype, num_inputs):
    """What the cell does with 1 in every feature, and with 1 in every state."""
    one = jnp.ones(num_inputs)
    (a,), (b,) = (jax.tree.leaves(part) for part in project(cell, params, one))

    def read(state, x):
        h = jnp.broadcast_to(state, b.shape).astype(dtype)
        return cell.emit(params, tree.unflatten([h]), in_compute_dtype(params, x))

    states = jnp.eye(b.shape[-1])
    c = jax.vmap(read, (0, None), -1)(states, 0 * one)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        c = jax.lax.complex(c, -jax.vmap(read, (0, None), -1)(1j * states, 0 * one))
    return _Coefficients(jnp.broadcast_to(a, b.shape), b, c, read(jnp.zeros(1), one))


def _response(coefficients: _Coefficients, num_steps: int) -> Response:
    a, b, c, _ = coefficients
    powers = _powers(a, num_steps)
    product = "tdn,...dn->t...d"

    def started(h):
        return jnp.einsum(product, c * powers[1:], h).real

    def last(h, xs, counts):
        entered = jnp.einsum("tdn,t...d->...dn", powers[num_steps - 1 :: -1] * b, xs)
        return powers[counts] * h + entered

    return Response(jnp.einsum(product, c * powers[:-1], b).real, started, last)


def _powers(a: Any, num_steps: int) -> Any:
    """aᵗ for t = 0 … T, `[T + 1, D, N]`, by doubling: no logarithm, so a may be 0."""
    powers = jnp.ones_like(a)[None]
    while len(powers) <= num_steps:
        powers = jnp.concatenate([powers, powers * a])
        a = a * a
    return powers[: num_steps + 1]


def _check_cell(cell):
    if cell.prepare is not None:
        raise TypeError("cell must draw no noise to be a convolution, but it has a prepare.")
    with jax.ensure_compile_time_eval():
        params = cell.init(jax.random.key(0), 2)
        carry = jax.tree.map(jnp.zeros_like, cell.initial_carry(params))
        x = jax.random.normal(jax.random.key(1), (3, 2))
        z, other_z = (project(cell, params, some) for some in (x[0], x[1]))
        _check_affine(z, other_z, carry)
        outputs = [
            recurrent(cell).unroll(params, carry, some, None, None, None).outputs
            for some in (x, -2 * x, x.at[:, 0].set(0))
        ]
        if outputs[0].shape != x.shape or (outputs[2][:, 1] != outputs[0][:, 1]).any():
            raise ValueError(
                "cell must keep features apart to be a convolution, but it mixes them."
            )
        if (outputs[1] != -2 * outputs[0]).any():
            raise ValueError(
                "cell must be linear in x to be a convolution, -2 x does not give -2 y."
            )


def _check_affine(z, other_z, carry):
    if not isinstance(z, Affine):
        raise TypeError(f"cell must be linear, with a project to Affine, got {type(z).__name__}.")
    shapes = [leaf.shape for leaf in jax.tree.leaves(carry)]
    if len(shapes) != 1 or len(shapes[0]) != 2:
        raise TypeError(f"cell must have one array [..., D, N] for its carry, got {shapes}.")
    (a,), (other_a,) = jax.tree.leaves(z.a), jax.tree.leaves(other_z.a)
    if (a != other_a).any():
        raise ValueError("cell must have the same coefficients at all steps, they change with x.")
