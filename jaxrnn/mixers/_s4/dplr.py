"""Linear systems with a diagonal-plus-low-rank matrix A = Λ - P Pᴴ: one step, and T at once.

Vectors hold one of each conjugate pair, and products add the other: Pᴴ h = 2 Re(P̄ · h).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine.evaluators.convolution import Response


class System(NamedTuple):
    """The continuous system and its step of size Δ, complex `[D, M]`; `step` is real `[D]`.

    A step is w = keep h - leave Pᴴ h + enter x, then h = w - spread Pᴴ w.
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
    """Discretises h' = (Λ - P Pᴴ) h + B x, y = 2 Re(C · h) by the trapezoidal rule.

        (1 - ΔA/2) hₜ = (1 + ΔA/2) hₜ₋₁ + ΔB xₜ

    1 - ΔA/2 is the diagonal 1 - ΔΛ/2 plus Δ/2 P Pᴴ, so Woodbury's identity inverts it: w is the
    right side divided by the diagonal, and `spread` is the correction for the low rank.

    Args:
        eigenvalues: Λ `[D, M]`, complex like the next three.
        low_rank: P.
        input_kernel: B.
        output_kernel: C.
        step: Δ `[D]`.

    Returns:
        The system.
    """
    half = step[:, None] / 2
    inverse = 1 / (1 - half * eigenvalues)
    overlap = conjugate_product(low_rank.conj(), inverse * low_rank)[:, None]
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


def conjugate_product(left: Any, right: Any) -> Any:
    """The product over both of each conjugate pair, of which vectors hold one; it is real."""
    return 2 * (left.real * right.real - left.imag * right.imag).sum(-1)


def advance(system: System, h: Any, x: Any) -> Any:
    """Ā h + B̄ x, `[..., D, M]`, in O(M) for a feature."""
    w = system.keep * h - system.leave * conjugate_product(system.low_rank.conj(), h)[..., None]
    w = w + system.enter * x[..., None]
    return w - system.spread * conjugate_product(system.low_rank.conj(), w)[..., None]


def response(system: System, skip: Any, num_steps: int) -> Response:
    """What the system does in T steps, from its transform at the T-th roots of unity.

    A transform of T points wraps around: it adds Āˡ⁺ᵀ, Āˡ⁺²ᵀ, … to Āˡ. The factor 1 - Āᵀ removes
    them again; it is applied to C for outputs and to B for the last carry.

    Args:
        system: the system.
        skip: the factor `[D]` of xₜ in yₜ.
        num_steps: T.

    Returns:
        The response; its carry is h `[*batch, D, M]`.
    """
    circle = _circle(system, num_steps)
    squares = _repeated_squares(system, num_steps)
    all_steps = jnp.int32(num_steps)
    # C Āᵀ is a product from the left. On the real parts (Re h, Im h) the row vector of C is
    # (Re C, -Im C), hence the transposed matrices and the conjugates.
    transposed = [jnp.swapaxes(square, -1, -2) for square in squares]
    wrapped_output = _apply_power(transposed, system.output_kernel.conj(), all_steps).conj()
    output_kernel = system.output_kernel - wrapped_output
    input_kernel = system.input_kernel - _apply_power(squares, system.input_kernel, all_steps)

    def started(h):
        # Without input yₜ = C Āᵗ⁺¹ h, the kernel of a system whose B̄ is Ā h. Since
        # B̄ = (1 - ΔA/2)⁻¹ Δ B and Ā = (1 - ΔA/2)⁻¹ (1 + ΔA/2), its B is h / Δ + A h / 2.
        low_rank = system.low_rank
        slope = system.eigenvalues * h - low_rank * conjugate_product(low_rank.conj(), h)[..., None]
        enter = h / system.step[:, None] + slope / 2
        return jnp.fft.irfft(_transfer(circle, output_kernel, enter), num_steps, axis=0)

    def last(h, xs, counts):
        return _apply_power(squares, h, counts) + _input_sum(circle, input_kernel, xs)

    kernel = jnp.fft.irfft(_transfer(circle, output_kernel, system.input_kernel), num_steps, axis=0)
    return Response(kernel, skip, started, last)


class _Circle(NamedTuple):
    """G(z) at the roots of unity `z [Z, 1]` of a real transform of T steps, Z = T // 2 + 1.

    `kept` and `conjugate` `[Z, D, M]` are the diagonal E(z) for the states that vectors hold and
    for their conjugates; `gain [Z, D]` is (1 + z) / (1 + (1 + z) Pᴴ E P).
    """

    z: Any
    kept: Any
    conjugate: Any
    gain: Any
    low_rank: Any


def _circle(system: System, num_steps: int) -> _Circle:
    angles = -2 * np.pi * np.arange(num_steps // 2 + 1) / num_steps
    half_turn = np.exp(0.5j * angles)
    # 1 - z from the sine: the difference of two numbers near 1 would cancel.
    minus, plus = -2j * np.sin(angles / 2) * half_turn, 2 * np.cos(angles / 2) * half_turn
    dtype = system.eigenvalues.dtype
    z, minus, plus = (jnp.asarray(part, dtype)[:, None] for part in (half_turn**2, minus, plus))
    scaled_minus = (2 / system.step * minus)[..., None]
    kept = 1 / (scaled_minus - plus[..., None] * system.eigenvalues)
    conjugate = 1 / (scaled_minus - plus[..., None] * system.eigenvalues.conj())
    circle = _Circle(z, kept, conjugate, plus, system.low_rank)
    overlap = _diagonal_product(circle, system.low_rank.conj(), system.low_rank)
    return circle._replace(gain=plus / (1 + plus * overlap))


def _diagonal_product(circle: _Circle, left: Any, right: Any) -> Any:
    """left E right over both of each pair, `[D, M]` and `[*batch, D, M]` to `[Z, *batch, D]`.

    For complex z, E(z) of the conjugate state is not the conjugate of E(z), so both are needed.
    """
    product = "zdm,...dm->z...d"
    kept = jnp.einsum(product, circle.kept * left, right)
    return kept + jnp.einsum(product, circle.conjugate * left.conj(), right.conj())


def _transfer(circle: _Circle, left: Any, right: Any) -> Any:
    """2 left G right, `[Z, *batch, D]`."""
    coupled = _diagonal_product(circle, circle.low_rank.conj(), right)
    gain = circle.gain * _diagonal_product(circle, left, circle.low_rank)
    diagonal = _diagonal_product(circle, left, right)
    return 2 * (diagonal - _with_batch_axes(gain, coupled) * coupled)


def _input_sum(circle: _Circle, vector: Any, xs: Any) -> Any:
    """Σₛ Āᵀ⁻¹⁻ˢ B̄ xₛ = (1/T) Σ_z z 2 G(z) vector X(z) over the circle; vector = (1 - Āᵀ) B."""
    num_steps = len(xs)
    transform = jnp.fft.rfft(xs, axis=0)
    # The real transform holds half of the circle. Below, kept + conj(conjugate) adds z and its
    # conjugate, and the weight is the 2 of 2 G(z). 1 and -1 are their own conjugates: they are
    # added twice, so their weight is 1.
    weights = np.where(np.isin(np.arange(len(transform)), (0, num_steps / 2)), 1, 2) / num_steps
    weights = jnp.asarray(weights, xs.dtype)[:, None] * circle.z
    inputs = _with_batch_axes(weights, transform) * transform
    gain = circle.gain * _diagonal_product(circle, circle.low_rank.conj(), vector)
    coupled = _with_batch_axes(gain, inputs) * inputs
    product = "z...d,zdm->...dm"

    def half(diagonal, vector, low_rank):
        through_diagonal = jnp.einsum(product, inputs, diagonal) * vector
        return through_diagonal - jnp.einsum(product, coupled, diagonal) * low_rank

    kept = half(circle.kept, vector, circle.low_rank)
    conjugate = half(circle.conjugate, vector.conj(), circle.low_rank.conj())
    return kept + conjugate.conj()


def _with_batch_axes(leaf: Any, like: Any) -> Any:
    """`[Z, D]` with axes of 1 for the batch of `like [Z, *batch, D]`."""
    return jnp.expand_dims(leaf, tuple(range(1, like.ndim - 1)))


def _repeated_squares(system: System, num_steps: int) -> list[Any]:
    """Ā, Ā², Ā⁴, … up to at most T steps, real `[D, 2*M, 2*M]` on the parts of h.

    Ā is linear over the reals only: it adds the conjugates, so it acts on (Re h, Im h).
    """
    eye = jnp.eye(system.keep.shape[-1], dtype=system.keep.dtype)
    basis = jnp.concatenate([eye, 1j * eye])[:, None, :]
    basis = jnp.broadcast_to(basis, (len(basis), *system.keep.shape))
    image = advance(system, basis, jnp.zeros_like(system.step))
    squares = [jnp.moveaxis(_real_and_imaginary(image), 0, -1)]
    for _ in range(num_steps.bit_length() - 1):
        squares.append(squares[-1] @ squares[-1])
    return squares


def _apply_power(squares: list[Any], h: Any, counts: Any) -> Any:
    """Āⁿ h for n = counts `[*batch]` and h `[*batch, D, M]`, by the binary digits of n."""
    parts = _real_and_imaginary(h)
    for digit, square in enumerate(squares):
        moved = jnp.einsum("dij,...dj->...di", square, parts)
        parts = jnp.where(((counts >> digit) & 1 == 1)[..., None, None], moved, parts)
    return lax.complex(*jnp.split(parts, 2, axis=-1))


def _real_and_imaginary(h: Any) -> Any:
    return jnp.concatenate([h.real, h.imag], axis=-1)
