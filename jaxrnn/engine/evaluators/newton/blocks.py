"""The Jacobians of a step in blocks, and the linear recurrence that each block solves alone.

A vector of N entries is divided into blocks; blocks of one size make one array. Of `blocks`, for
each size ints `[size, M]`, the entries of its M blocks; of a Jacobian, for each size an array
`[..., size, size, M]`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrnn.engine.evaluators.newton.dense_scan import SMALL, dense_scan
from jaxrnn.engine.linear_scan import linear_scan
from jaxrnn.engine.sharding import varying_like
from jaxrnn.types import Array

Blocks = tuple[np.ndarray, ...]

# The largest matrices whose products are written out. On CPU larger ones are faster as products.
_SMALL_SIZE = 4


def one_block(size: int) -> Blocks:
    """All entries in one block."""
    return (np.arange(size)[:, None],)


def single_entries(size: int) -> Blocks:
    """Each entry in a block of its own."""
    return (np.arange(size)[None],)


def block_jacobian(
    function: Callable[..., Array], vectors: Array, inputs: object, blocks: Blocks
) -> tuple[Array, ...]:
    """The Jacobians of a function that couples no two blocks.

    Args:
        function: `(vector [N], inputs) -> vector [N]`.
        vectors: where to take the Jacobian, `[..., N]`.
        inputs: a tree of arrays with the leading axes of `vectors`.
        blocks: the blocks.

    Returns:
        The Jacobian in blocks.
    """
    # One tangent for each member of the blocks, and all blocks at once: an entry of the result
    # depends on the members of its own block alone.
    tangents = _tangents(blocks, vectors)

    def derive(vector, inputs):
        _, push = jax.linearize(lambda vector: function(vector, inputs), vector)
        columns = jax.vmap(push)(tangents)
        return tuple(
            jnp.swapaxes(_taken(columns[: len(members)], members), 0, 1) for members in blocks
        )

    for _ in vectors.shape[:-1]:
        derive = jax.vmap(derive)
    return derive(vectors, inputs)


def diagonal_jacobian(
    function: Callable[[Array], Array], vectors: Array, blocks: Blocks
) -> tuple[Array]:
    """The diagonals of the Jacobians of a function that couples no two blocks.

    Args:
        function: `[..., N] -> [..., N]`.
        vectors: where to take the Jacobian, `[..., N]`.
        blocks: the blocks.

    Returns:
        The Jacobian in blocks of one entry, `([..., 1, 1, N],)`.
    """

    # One after another and not by `vmap`: all columns at once would take the memory of the whole
    # Jacobian, which the diagonal is there to avoid.
    def put(diagonal, tangent):
        column = jax.jvp(function, (vectors,), (jnp.broadcast_to(tangent, vectors.shape),))[1]
        return jnp.where(tangent != 0, column, diagonal), None

    start = varying_like(jnp.zeros_like(vectors), jax.eval_shape(function, vectors))
    diagonal, _ = lax.scan(put, start, _tangents(blocks, vectors))
    return (diagonal[..., None, None, :],)


def solve_blocks(slopes: tuple[Array, ...], b: Array, fresh: Array, blocks: Blocks) -> Array:
    """Solves hₜ = freshₜ ? bₜ : Jₜ hₜ₋₁ + bₜ.

    Args:
        slopes: J in blocks, time first.
        b: `[T, *batch, N]`.
        fresh: bool `[T, *batch]`, True at the first step.
        blocks: the blocks.

    Returns:
        h `[T, *batch, N]`.
    """
    parts = (_taken(b, members) for members in blocks)
    return _put_back([_scan(*pair, fresh) for pair in zip(slopes, parts, strict=True)], blocks)


def apply_blocks(slopes: tuple[Array, ...], vectors: Array, blocks: Blocks) -> Array:
    """J h, for J in blocks and h `[..., N]`."""
    parts = (_taken(vectors, members) for members in blocks)
    return _put_back([_apply(*pair) for pair in zip(slopes, parts, strict=True)], blocks)


def _scan(slope, b, fresh):
    size = b.shape[-2]
    if size == 1:
        fresh = jnp.broadcast_to(fresh[..., None, None], b.shape)
        return linear_scan(slope[..., 0, :], b, reset=fresh, axis=0)
    if size <= _SMALL_SIZE:
        return dense_scan(slope, b, fresh, SMALL)
    h = dense_scan(jnp.moveaxis(slope, -1, -3), jnp.swapaxes(b, -1, -2), fresh)
    return jnp.swapaxes(h, -1, -2)


def _apply(slope, h):
    if h.shape[-2] <= _SMALL_SIZE:
        return SMALL.apply(slope, h)
    return jnp.einsum("...ijm,...jm->...im", slope, h)


def _tangents(blocks, vectors):
    """`[largest size, N]`; the j-th one is 1 at the j-th member of every block."""
    tangents = np.zeros((max(map(len, blocks)), vectors.shape[-1]), vectors.dtype)
    for members in blocks:
        for tangent, places in zip(tangents, members, strict=False):
            tangent[places] = 1
    return varying_like(jnp.asarray(tangents), vectors)


def _taken(vectors, members):
    """`[..., N] -> [..., size, M]`."""
    if _is_in_order(members.reshape(-1), vectors.shape[-1]):
        return vectors.reshape(*vectors.shape[:-1], *members.shape)
    return vectors[..., members]


def _put_back(parts, blocks):
    """The inverse of `_taken` for all sizes together."""
    flat = [part.reshape(*part.shape[:-2], -1) for part in parts]
    vectors = jnp.concatenate(flat, axis=-1)
    order = np.concatenate([members.reshape(-1) for members in blocks])
    return vectors if _is_in_order(order, len(order)) else vectors[..., np.argsort(order)]


def _is_in_order(entries, size):
    return np.array_equal(entries, np.arange(size))
