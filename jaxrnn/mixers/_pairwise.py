"""Which pairs of steps meet in the pairwise form of a matrix memory, and the sums between them."""

import jax.numpy as jnp

from jaxrnn.types import Array, Mask, Reset


def seen_steps(mask: Mask, reset: Reset, num_steps: int) -> tuple[Array, Array]:
    """What each step reads: real steps of its own sequence up to itself, and perhaps the carry.

    Args:
        mask: None or bool `[T, *batch]`.
        reset: None or bool `[T, *batch]`.
        num_steps: T.

    Returns:
        bool `seen [*batch, 1, T, T]` (step t reads step s) and `from_carry [*batch, 1, T]`. The
        axis of 1 is for heads; without flags there are no batch axes.
    """
    # Only the step that is read must be real: outputs of masked steps are zeroed in the end.
    seen = jnp.tril(jnp.ones((1, num_steps, num_steps), bool))
    from_carry = jnp.ones((1, num_steps), bool)
    if mask is not None:
        seen = seen & by_head(mask)[..., None, :]
    if reset is not None:
        # The number of resets up to a step numbers its sequence; 0 is the one of the carry.
        segment = by_head(jnp.cumsum(reset, axis=0))
        seen = seen & (segment[..., :, None] == segment[..., None, :])
        from_carry = segment == 0
    return seen, from_carry


def by_head(flags: Array) -> Array:
    """Moves time last, after an axis for heads: `[T, *batch] -> [*batch, 1, T]`."""
    return jnp.moveaxis(flags, 0, -1)[..., None, :]


def sums_between(terms: Array) -> Array:
    """termₛ₊₁ + … + termₜ for s <= t, `[..., T] -> [..., T, T]`."""
    # Not as a difference of two sums from the start, which grow with T: in float32 their difference
    # keeps few digits of a short sum. Here each column s adds up only the terms after s.
    num_steps = terms.shape[-1]
    after = jnp.tril(jnp.ones((num_steps, num_steps), bool), -1)
    return jnp.cumsum(jnp.where(after, terms[..., :, None], 0), axis=-2)
