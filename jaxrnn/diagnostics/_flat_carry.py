"""Carries as real vectors, and the Jacobian of a step between them.

A complex number counts as its real and its imaginary part. Leaves of ints and bools, counters say,
are no coordinates: they have no derivative.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.diagnostics._observe import Run
from jaxrnn.engine import precision
from jaxrnn.types import Steps


class Vectors(NamedTuple):
    """How the carries of a layer become vectors `[*batch, N]` of one real dtype.

    Attributes:
        like: A carry without batch axes, of `jax.ShapeDtypeStruct`.
        dtype: Of the vectors.
    """

    like: Any
    dtype: Any

    @property
    def num(self) -> int:
        """N, the number of coordinates."""
        return sum(map(_num, jax.tree.leaves(self.like)))

    def pack(self, carry: Any) -> jax.Array:
        """The carry as a vector."""
        parts = zip(jax.tree.leaves(carry), jax.tree.leaves(self.like), strict=True)
        flat = [_flat(leaf, like) for leaf, like in parts if _num(like)]
        return jnp.concatenate(flat, axis=-1).astype(self.dtype)

    def unpack(self, vector: jax.Array, carry: Any) -> Any:
        """The vector as a carry; leaves without coordinates are those of `carry`."""
        leaves, tree = jax.tree.flatten(carry)
        start, taken = 0, []
        for leaf, like in zip(leaves, jax.tree.leaves(self.like), strict=True):
            part = vector[..., start : start + _num(like)]
            taken.append(_shaped(part, leaf) if _num(like) else leaf)
            start += _num(like)
        return tree.unflatten(taken)


def vectors(run: Run) -> Vectors:
    """How the carries of a run become vectors; raises where there is nothing to derive by."""
    if not run.layer.causal:
        raise ValueError("model must be causal; this layer has no carry between steps.")
    like = jax.eval_shape(run.layer.initial_carry, run.params)
    result = Vectors(like, precision.compute_dtype((run.params, run.carry)))
    if result.num == 0:
        raise TypeError(
            "model must have a carry of floating or complex numbers, "
            f"got {jax.tree.structure(like)}."
        )
    return result


def advance_with_jacobian(run: Run, packing: Vectors, carry: Any, one: Steps) -> tuple[Any, Any]:
    """The carry after one guarded step, and J = ∂hₜ / ∂hₜ₋₁ `[*batch, N, N]`.

    Rows of a batch do not see each other, so one pull-back serves all of them.
    """
    one = jax.tree.map(lambda leaf: leaf[None], one)

    def step(vector):
        before = packing.unpack(vector, carry)
        after = run.layer.unroll(run.params, before, one, None).carry
        return packing.pack(after), after

    # Backwards: a layer may have a reverse rule of its own, which has no forward derivative.
    vector, pull, after = jax.vjp(step, packing.pack(carry), has_aux=True)
    units = jnp.eye(packing.num, dtype=vector.dtype)
    rows = jax.vmap(lambda unit: pull(jnp.broadcast_to(unit, vector.shape))[0])(units)
    return after, jnp.moveaxis(rows, 0, -2)


def _num(like):
    if not jnp.issubdtype(like.dtype, jnp.inexact):
        return 0
    return math.prod(like.shape) * (2 if jnp.issubdtype(like.dtype, jnp.complexfloating) else 1)


def _flat(leaf, like):
    flat = leaf.reshape(*leaf.shape[: leaf.ndim - like.ndim], -1)
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        return jnp.concatenate([flat.real, flat.imag], axis=-1)
    return flat


def _shaped(part, leaf):
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        part = jax.lax.complex(*jnp.split(part, 2, axis=-1))
    return part.reshape(leaf.shape).astype(leaf.dtype)
