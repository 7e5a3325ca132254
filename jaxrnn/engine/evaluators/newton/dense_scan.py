"""The linear recurrence hₜ = Aₜ hₜ₋₁ + bₜ with matrices, as Newton's method needs it."""

import jax.numpy as jnp
from jax import lax

from jaxrnn.engine.time import flip, flip_reset
from jaxrnn.types import Array


def dense_scan(a: Array, b: Array, fresh: Array) -> Array:
    """Solves hₜ = freshₜ ? bₜ : Aₜ hₜ₋₁ + bₜ, with its own derivative.

    Pairs (A, b) compose as in `linear_scan`, with matrix products in place of elementwise ones.
    The scan is sequential on CPU and associative elsewhere. Its transpose with respect to b is the
    same scan run backwards with Aᵀ, so only A is stored.

    Args:
        a: `[T, ..., N, N]`.
        b: `[T, ..., N]`.
        fresh: bool `[T, ...]`, True at the first step.

    Returns:
        h `[T, ..., N]`.
    """
    # Nothing reads A at a fresh step, where it may be NaN; as zero it stays out of every product
    # and every cotangent.
    a = jnp.where(fresh[..., None, None], 0, a)

    # The equation that the solution satisfies. JAX differentiates it with respect to A, and for
    # higher derivatives, so that the scan needs no other rule.
    def residual(h):
        before = jnp.concatenate([jnp.zeros_like(h[:1]), h[:-1]])
        return h - _apply(a, jnp.where(fresh[..., None], 0, before))

    def solve(_, b):
        return _solve(a, b, fresh)

    def transpose_solve(_, cotangent):
        # gₜ = Aₜ₊₁ᵀ gₜ₊₁ + cotangentₜ: from the end this is the same recurrence, each step with the
        # matrix of the one read before it, hence the roll. The last step of the sequence is read
        # first and has no such matrix, so the scan starts fresh there.
        after = jnp.roll(flip(jnp.swapaxes(a, -1, -2)), 1, axis=0)
        return flip(_solve(after, flip(cotangent), flip_reset(fresh).at[0].set(True)))

    return lax.custom_linear_solve(residual, b, solve, transpose_solve)


def _solve(a, b, fresh):
    return lax.platform_dependent(a, b, fresh, cpu=_sequential, default=_associative)


def _sequential(a, b, fresh):
    def step(h, inputs):
        a, b, fresh = inputs
        h = jnp.where(fresh[..., None], b, _apply(a, h) + b)
        return h, h

    return lax.scan(step, jnp.zeros_like(b[0]), (a, b, fresh))[1]


def _associative(a, b, fresh):
    def compose(before, after):
        (a1, b1, fresh1), (a2, b2, fresh2) = before, after
        a = jnp.where(fresh2[..., None, None], a2, a2 @ a1)
        b = jnp.where(fresh2[..., None], b2, _apply(a2, b1) + b2)
        return a, b, fresh1 | fresh2

    return lax.associative_scan(compose, (a, b, fresh))[1]


def _apply(a, h):
    return jnp.einsum("...ij,...j->...i", a, h)
