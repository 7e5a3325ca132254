"""Carries as real vectors.

A complex number counts as two coordinates, its real and its imaginary part. Leaves of ints and
bools, such as counters, have no derivative and are no coordinates.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class FlatCarry(NamedTuple):
    """How the carries of a model become vectors `[*batch, N]` of one real dtype.

    Attributes:
        like: a carry without batch axes, of `jax.ShapeDtypeStruct`.
        dtype: dtype of the vectors.
    """

    like: Any
    dtype: Any

    @property
    def size(self) -> int:
        """N, the number of coordinates."""
        return sum(map(_num_coordinates, jax.tree.leaves(self.like)))

    def pack(self, carry: Any) -> jax.Array:
        """The carry as a vector."""
        pairs = zip(jax.tree.leaves(carry), jax.tree.leaves(self.like), strict=True)
        flat = [_flat(leaf, like) for leaf, like in pairs if _num_coordinates(like)]
        return jnp.concatenate(flat, axis=-1).astype(self.dtype)

    def unpack(self, vector: jax.Array, carry: Any = None) -> Any:
        """The vector as a carry; leaves without coordinates are those of `carry`."""
        likes, tree = jax.tree.flatten(self.like)
        others = likes if carry is None else jax.tree.leaves(carry)
        leaves, start = [], 0
        for like, other in zip(likes, others, strict=True):
            stop = start + _num_coordinates(like)
            leaves.append(_shaped(vector[..., start:stop], like) if stop > start else other)
            start = stop
        return tree.unflatten(leaves)


def _num_coordinates(like):
    if not jnp.issubdtype(like.dtype, jnp.inexact):
        return 0
    return math.prod(like.shape) * (2 if jnp.issubdtype(like.dtype, jnp.complexfloating) else 1)


def _flat(leaf, like):
    flat = leaf.reshape(*leaf.shape[: leaf.ndim - like.ndim], math.prod(like.shape))
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        return jnp.concatenate([flat.real, flat.imag], axis=-1)
    return flat


def _shaped(part, like):
    if jnp.issubdtype(like.dtype, jnp.complexfloating):
        part = jax.lax.complex(*jnp.split(part, 2, axis=-1))
    return part.reshape(*part.shape[:-1], *like.shape).astype(like.dtype)
