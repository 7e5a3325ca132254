"""A linear system whose matrix is diagonal plus low rank: its steps, and T of them at once.

Vectors hold one of each conjugate pair; a product stands for both, Pᴴ h = 2 Re(P̄ · h).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine.evaluators.convolution import Response


class System(NamedTuple):
    """The continuous system and what a step of size Δ makes of it, complex `[D, M]`.

    A step is w = keep h - leave 2 Re(P̄·h) + enter x, then h = w - spread 2 Re(P̄·w).
    """

    eigenvalues: Any
    low_rank: Any
    input_kernel: Any
    output_kernel: Any
    step: Any
    keep: Any
    leave: Any
    enter: Any
    spread: Any


def discretized(
    eigenvalues: Any, low_rank: Any, input_kernel: Any, output_kernel: Any, step: Any
) -> System:
    """The system h' = (Λ - P Pᴴ) h + B x, y = 2 Re(C · h) in steps by the trapezoidal rule.

    Args:
        eigenvalues: Λ `[D, M]`, complex like the next three.
        low_rank: P.
        input_kernel: B.
        output_kernel: C.
        step: Δ `[D]`.

    Returns:
        The system; the inverse of 1 - ΔA/2 comes from Woodbury's identity.
    """
    half = step[:, None] / 2
    inverse = 1 / (1 - half * eigenvalues)
    overlap = pairs(low_rank.conj(), inverse * low_rank)[:, None]
    return System(
        eigenvalues=eigenvalues,
        low_rank=low_rank,
        input_kernel=input_kernel,
        output_kernel=output_kernel,
        step=step,
        keep=(1 + half * eigenvalues) * inverse,
        leave=half * low_rank * inverse,
        enter=2 * half * input_kernel * inverse,
        spread=half * low_rank * inverse / (1 + half * overlap),
    )


def pairs(left: Any, right: Any) -> Any:
    """The product of two vectors of which one of each conjugate pair is kept, real."""
    return 2 * (left.real * right.real - left.imag * right.imag).sum(-1)


def advance(system: System, h: Any, x: Any) -> Any:
    """Ā h + B̄ x, `[..., D, M]`, in O(M) for a feature."""
    w = system.keep * h - system.leave * pairs(system.low_rank.conj(), h)[..., None]
    w = w + system.enter * x[..., None]
    return w - system.spread * pairs(system.low_rank.conj(), w)[..., None]


def response(system: System, skip: Any, num_steps: int) -> Response:
    """What the system does in T steps, from its transform at the T-th roots of unity.

    Args:
        system: the system.
        skip: the factor `[D]` of xₜ in yₜ.
        num_steps: T.

    Returns:
        The response; its carry is h `[*batch, D, M]`.
    """
    circle = _circle(system, num_steps)
    squares = _squares(system, num_steps)
    every_step = jnp.int32(num_steps)
    rows = [jnp.swapaxes(square, -1, -2) for square in squares]
    later_output = _through(rows, system.output_kernel.conj(), every_step).conj()
    output_kernel = system.output_kernel - later_output
    input_kernel = system.input_kernel - _through(squares, system.input_kernel, every_step)

    def started(h):
        low_rank = system.low_rank
        slope = system.eigenvalues * h - low_rank * pairs(low_rank.conj(), h)[..., None]
        enter = h / system.step[:, None] + slope / 2
        return jnp.fft.irfft(_read(circle, output_kernel, enter), num_steps, axis=0)

    def last(h, xs, counts):
        return _through(squares, h, counts) + _gather(circle, input_kernel, xs)

    kernel = jnp.fft.irfft(_read(circle, output_kernel, system.input_kernel), num_steps, axis=0)
    return Response(kernel, skip, started, last)


class _Circle(NamedTuple):
    """G(z) at the roots of unity `z [Z]` of a real transform of T steps, Z = T // 2 + 1.

    `own` and `other` `[Z, D, M]` are E(z) for the states that are kept and for their conjugates;
    `gain [Z, D]` is (1 + z) / (1 + (1 + z) Pᴴ E P).
    """

    z: Any
    own: Any
    other: Any
    gain: Any
    low_rank: Any


def _circle(system: System, num_steps: int) -> _Circle:
    angles = -2 * np.pi * np.arange(num_steps // 2 + 1) / num_steps
    turn = np.exp(0.5j * angles)
    # 1 - z from the sine: the difference of two numbers near 1 would cancel.
    minus, plus = -2j * np.sin(angles / 2) * turn, 2 * np.cos(angles / 2) * turn
    dtype = system.eigenvalues.dtype
    z, minus, plus = (jnp.asarray(part, dtype)[:, None] for part in (turn**2, minus, plus))
    fast = (2 / system.step * minus)[..., None]
    own = 1 / (fast - plus[..., None] * system.eigenvalues)
    other = 1 / (fast - plus[..., None] * system.eigenvalues.conj())
    circle = _Circle(z, own, other, plus, system.low_rank)
    overlap = _between(circle, system.low_rank.conj(), system.low_rank)
    return circle._replace(gain=plus / (1 + plus * overlap))


def _between(circle: _Circle, left: Any, right: Any) -> Any:
    """left E right over both of each pair, `[D, M]` and `[*batch, D, M]` to `[Z, *batch, D]`."""
    product = "zdm,...dm->z...d"
    own = jnp.einsum(product, circle.own * left, right)
    return own + jnp.einsum(product, circle.other * left.conj(), right.conj())


def _read(circle: _Circle, left: Any, right: Any) -> Any:
    """2 left G right, `[Z, *batch, D]`."""
    coupled = _between(circle, circle.low_rank.conj(), right)
    gain = circle.gain * _between(circle, left, circle.low_rank)
    return 2 * (_between(circle, left, right) - _beside(gain, coupled) * coupled)


def _gather(circle: _Circle, vector: Any, xs: Any) -> Any:
    """Σₛ Āᵀ⁻¹⁻ˢ B̄ xₛ = (1/T) Σ_z z 2 G(z) vector X(z) over the circle; vector = (1 - Āᵀ) B."""
    num_steps = len(xs)
    transform = jnp.fft.rfft(xs, axis=0)
    # 1 and -1 are their own conjugates; the other z stand for two.
    weights = np.where(np.isin(np.arange(len(transform)), (0, num_steps / 2)), 1, 2) / num_steps
    inputs = _beside(jnp.asarray(weights, xs.dtype)[:, None] * circle.z, transform) * transform
    gain = circle.gain * _between(circle, circle.low_rank.conj(), vector)
    coupled = _beside(gain, inputs) * inputs
    product = "z...d,zdm->...dm"

    def half(diagonal, vector, low_rank):
        moved = jnp.einsum(product, inputs, diagonal) * vector
        return moved - jnp.einsum(product, coupled, diagonal) * low_rank

    own = half(circle.own, vector, circle.low_rank)
    other = half(circle.other, vector.conj(), circle.low_rank.conj())
    return own + other.conj()


def _beside(leaf: Any, like: Any) -> Any:
    """`[Z, D]` with axes of 1 for the batch of `like [Z, *batch, D]`."""
    return jnp.expand_dims(leaf, tuple(range(1, like.ndim - 1)))


def _squares(system: System, num_steps: int) -> list[Any]:
    """Ā, Ā², Ā⁴, … up to at most T steps, real `[D, 2*M, 2*M]` on the parts of h."""
    eye = jnp.eye(system.keep.shape[-1], dtype=system.keep.dtype)
    basis = jnp.concatenate([eye, 1j * eye])[:, None, :]
    basis = jnp.broadcast_to(basis, (len(basis), *system.keep.shape))
    image = advance(system, basis, jnp.zeros_like(system.step))
    squares = [jnp.moveaxis(_parts(image), 0, -1)]
    for _ in range(num_steps.bit_length() - 1):
        squares.append(squares[-1] @ squares[-1])
    return squares


def _through(squares: list[Any], h: Any, counts: Any) -> Any:
    """Āⁿ h for n = counts `[*batch]` and h `[*batch, D, M]`, by the binary digits of n."""
    parts = _parts(h)
    for digit, square in enumerate(squares):
        moved = jnp.einsum("dij,...dj->...di", square, parts)
        parts = jnp.where(((counts >> digit) & 1 == 1)[..., None, None], moved, parts)
    return lax.complex(*jnp.split(parts, 2, axis=-1))


def _parts(h: Any) -> Any:
    return jnp.concatenate([h.real, h.imag], axis=-1)
