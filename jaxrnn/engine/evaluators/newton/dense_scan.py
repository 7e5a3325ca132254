"""The linear recurrence hₜ = Aₜ hₜ₋₁ + bₜ with matrices, as Newton's method needs it."""

import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxrnn.engine.masking import expand_mask
from jaxrnn.engine.time import flip, flip_reset
from jaxrnn.types import Array


class Products(NamedTuple):
    """The products of matrices whose axes are laid out in one way.

    Attributes:
        apply: `(a, h)`, a matrix and a vector.
        multiply: `(a2, a1)`, two matrices.
        transpose: `a`, a matrix.
    """

    apply: Callable[[Array, Array], Array]
    multiply: Callable[[Array, Array], Array]
    transpose: Callable[[Array], Array]


DENSE = Products(
    lambda a, h: jnp.einsum("...ij,...j->...i", a, h),
    jnp.matmul,
    lambda a: jnp.swapaxes(a, -1, -2),
)
"""Matrices `[..., N, N]` and vectors `[..., N]`."""


def _sum(terms):
    return functools.reduce(operator.add, terms)


# Written out, because a routine for products of such small matrices mostly waits. Not marked as
# `in_one_kernel`: XLA's CPU backend aborts on some programs with this loop as one kernel.
SMALL = Products(
    lambda a, h: _sum(a[..., j, :] * h[..., None, j, :] for j in range(a.shape[-2])),
    lambda a2, a1: _sum(a2[..., j, None, :] * a1[..., None, j, :, :] for j in range(a2.shape[-2])),
    lambda a: jnp.swapaxes(a, -2, -3),
)
"""Many small matrices `[..., N, N, M]` and vectors `[..., N, M]`, M of each."""


def dense_scan(a: Array, b: Array, fresh: Array, products: Products = DENSE) -> Array:
    """Solves hₜ = freshₜ ? bₜ : Aₜ hₜ₋₁ + bₜ, with its own derivative.

    Pairs (A, b) compose as in `linear_scan`, with matrix products in place of elementwise ones.
    The scan is sequential on CPU and associative elsewhere. Its transpose with respect to b is the
    same scan run backwards with Aᵀ, so only A is stored.

    Args:
        a: matrices, `[T, ..., N, N]` for `DENSE`.
        b: vectors, `[T, ..., N]` for `DENSE`.
        fresh: bool `[T, ...]`, leading axes of both, True at the first step.
        products: how the axes are laid out.

    Returns:
        h, like `b`.
    """
    # Nothing reads A at a fresh step, where it may be NaN; as zero it stays out of every product
    # and every cotangent.
    a = jnp.where(expand_mask(fresh, a), 0, a)

    # The equation that the solution satisfies. JAX differentiates it with respect to A, and for
    # higher derivatives, so that the scan needs no other rule.
    def residual(h):
        before = jnp.concatenate([jnp.zeros_like(h[:1]), h[:-1]])
        return h - products.apply(a, jnp.where(expand_mask(fresh, h), 0, before))

    def solve(_, b):
        return _solve(products, a, b, fresh)

    def transpose_solve(_, cotangent):
        # gₜ = Aₜ₊₁ᵀ gₜ₊₁ + cotangentₜ: from the end this is the same recurrence, each step with the
        # matrix of the one read before it, hence the roll. The last step of the sequence is read
        # first and has no such matrix, so the scan starts fresh there.
        after = jnp.roll(flip(products.transpose(a)), 1, axis=0)
        first = flip_reset(fresh).at[0].set(True)
        return flip(_solve(products, after, flip(cotangent), first))

    return lax.custom_linear_solve(residual, b, solve, transpose_solve)


def _solve(products, a, b, fresh):
    return lax.platform_dependent(
        *(a, b, fresh),
        cpu=functools.partial(_sequential, products),
        default=functools.partial(_associative, products),
    )


def _sequential(products, a, b, fresh):
    def step(h, inputs):
        a, b, fresh = inputs
        h = jnp.where(expand_mask(fresh, b), b, products.apply(a, h) + b)
        return h, h

    return lax.scan(step, jnp.zeros_like(b[0]), (a, b, fresh))[1]


def _associative(products, a, b, fresh):
    def compose(before, after):
        (a1, b1, fresh1), (a2, b2, fresh2) = before, after
        a = jnp.where(expand_mask(fresh2, a2), a2, products.multiply(a2, a1))
        b = jnp.where(expand_mask(fresh2, b2), b2, products.apply(a2, b1) + b2)
        return a, b, fresh1 | fresh2

    return lax.associative_scan(compose, (a, b, fresh))[1]
