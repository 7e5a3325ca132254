"""One chunk of a matrix memory, all steps at once, in products of matrices.

Between a write at step s and a reader at step t the memory decays by exp(gₛ₊₁ + … + gₜ). A decay
that all key channels share is a factor of the product of key and reader. One for each channel is
inside of that product, and exp(Gₜ) exp(-Gₛ), of sums G from the start, would overflow. So blocks of
steps join in pairs: readers of the second block and keys of the first meet at the boundary m,
exp(gₘ₊₁ + … + gₜ) on the one and exp(gₛ₊₁ + … + gₘ) on the other. Every exponent is a sum of terms
that are not positive; a difference of two sums would lose the digits of a short one.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np


class MatrixSteps(NamedTuple):
    """What C steps of n writes each do, features last.

    `query [B, H, C, K]`, `key` and `erase` `[B, H, C*n, K]`, `value [B, H, C*n, V]`,
    `log_decay [B, H, C, 1 or K]`. An axis B or H of 1 is shared. `erase` may be None. Where the
    steps of a sequence are cut into chunks, time comes first and n has an axis.
    """

    query: Any
    key: Any
    value: Any
    log_decay: Any
    erase: Any


def matrix_chunk(state: Any, initial: Any, steps: MatrixSteps, reset: Any) -> tuple[Any, Any]:
    """The memory `[B, H, K, V]` after the last of C steps, and the outputs `[B, H, C, V]`.

    Args:
        state: `[B, H, K, V]`, the memory before the first step.
        initial: the memory that a fresh step starts from, like `state`; None is zero.
        steps: finite numbers, but decays may be -inf.
        reset: bool `[B, H, C]`, or None.
    """
    query, key, value, log_decay, erase = steps
    num_steps = query.shape[-2]
    num_writes = key.shape[-2] // num_steps
    # The number of resets up to a step numbers its sequence; 0 is that of `state`.
    sequence = None if reset is None else jnp.cumsum(reset, axis=-1)[..., None]
    levels, since, until = _levels(log_decay, None if initial is None else sequence)

    def from_start(readers):
        """What readers find of the memory that their sequence starts from."""
        per_step = readers.shape[-2] // num_steps
        decay, number = jnp.repeat(jnp.exp(since), per_step, axis=-2), sequence
        found = _decayed_product(readers, decay, state)
        if number is None:
            return found
        number = jnp.repeat(number, per_step, axis=-2)
        of_fresh = 0 if initial is None else _decayed_product(readers, decay, initial)
        return jnp.where(number == 0, found, of_fresh)

    scores = _scores_of(key, levels, sequence, num_steps)
    if erase is not None:
        found = scores(erase, np.tril(np.ones((num_writes, num_writes)), -1))
        value = _inverse(jnp.eye(key.shape[-2], dtype=value.dtype) + found) @ (
            value - from_start(erase)
        )
    outputs = scores(query, np.ones((1, num_writes))) @ value + from_start(query)

    decay = jnp.exp(since[..., -1, :, None])
    last = decay * state
    if sequence is not None:
        end = sequence[..., -1:, :]
        last = jnp.where(end == 0, last, 0 if initial is None else decay * initial)
        value = jnp.where(jnp.repeat(sequence, num_writes, axis=-2) == end, value, 0)
    held = jnp.repeat(jnp.exp(until), num_writes, axis=-2)
    if held.shape[-1] == 1:
        return last + jnp.swapaxes(key, -1, -2) @ (held * value), outputs
    return last + jnp.swapaxes(held * key, -1, -2) @ value, outputs


def _decayed_product(readers, decay, matrix):
    # One decay for all keys is a factor of the product, which keys that heads share need once.
    return decay * (readers @ matrix) if decay.shape[-1] == 1 else (decay * readers) @ matrix


def _levels(log_decay, sequence):
    """The sums of terms after the boundary and up to it, for blocks of 1, 2, 4, … steps.

    Args:
        log_decay: `[..., C, G]`.
        sequence: None, or the number of the sequence of each step, `[..., C, 1]`.

    Returns:
        A list of `(reach [..., m, L, G], held [..., m, L, G])`, for pairs of blocks of L steps: the
        sum of the second block up to each step, and that of the first after each step; and the two
        for all steps, `[..., C, G]`. Where sequences are given, the first begins with its own.
    """
    num_steps = log_decay.shape[-2]
    if sequence is not None:
        rows = jnp.broadcast_shapes(log_decay.shape[:-1], sequence.shape[:-1])
        log_decay = jnp.broadcast_to(log_decay, (*rows, log_decay.shape[-1]))
        sequence = _padded(sequence, mode="edge")[..., :, None, :]
    reach = _padded(log_decay)[..., :, None, :]
    held, levels = jnp.zeros_like(reach), []
    while reach.shape[-3] > 1:
        (reach1, reach2), (held1, held2) = _pairs(reach), _pairs(held)
        levels.append((reach2, held1))
        held = jnp.concatenate([held1 + reach2[..., -1:, :], held2], axis=-2)
        longer = reach1[..., -1:, :] + reach2
        if sequence is not None:
            first, second = _pairs(sequence)
            longer = jnp.where(second == first[..., -1:, :], longer, reach2)
            sequence = jnp.concatenate([first, second], axis=-2)
        reach = jnp.concatenate([reach1, longer], axis=-2)
    return levels, reach[..., 0, :num_steps, :], held[..., 0, :num_steps, :]


def _scores_of(key, levels, sequence, num_steps):
    """A function of readers, what they take from each key of their sequence."""
    num_writes = key.shape[-2] // num_steps
    shared = not levels or levels[0][0].shape[-1] == 1
    decay = jnp.exp(_between(levels, num_steps)) if shared else None

    def spread(leaf, num_readers):
        return jnp.repeat(jnp.repeat(leaf, num_readers, axis=-2), num_writes, axis=-1)

    def scores(readers, own):
        """`own [r, n]` says which writes of its own step each of r readers of a step reads."""
        before = np.tril(np.ones((num_steps, num_steps)), -1)
        seen = np.kron(before, np.ones_like(own)) + np.kron(np.eye(num_steps), own) > 0
        if sequence is not None:
            same = sequence == jnp.swapaxes(sequence, -1, -2)
            seen = seen & spread(same, len(own))
        # Products are selected, not only multiplied by 0: an unseen one that overflows would
        # give NaN.
        if shared:
            products = jnp.where(seen, readers @ jnp.swapaxes(key, -1, -2), 0)
            return products * spread(decay, len(own))
        return jnp.where(seen, _meetings(readers, key, levels, num_steps), 0)

    return scores


def _between(levels, num_steps):
    """gₛ₊₁ + … + gₜ for s <= t, `[..., C, C]`."""
    if not levels:
        return jnp.zeros((1, 1))
    *rows, num_pairs, _, _ = levels[0][0].shape
    between = jnp.zeros((*rows, 2 * num_pairs, 1, 1), levels[0][0].dtype)
    for reach, held in levels:
        between = _joined(between, reach + jnp.swapaxes(held, -1, -2))
    return between[..., 0, :num_steps, :num_steps]


def _meetings(readers, key, levels, num_steps):
    """Products of readers and decayed keys, `[..., C*r, C*n]`, right where the key comes first."""
    num_readers, num_writes = (leaf.shape[-2] // num_steps for leaf in (readers, key))
    readers, key = (
        _padded(leaf.reshape(*leaf.shape[:-2], num_steps, -1)).reshape(
            *leaf.shape[:-2], -1, per_step, leaf.shape[-1]
        )
        for leaf, per_step in ((readers, num_readers), (key, num_writes))
    )
    products = readers @ jnp.swapaxes(key, -1, -2)
    for reach, held in levels:
        second = _pairs(readers)[1] * jnp.exp(jnp.repeat(reach, num_readers, axis=-2))
        first = _pairs(key)[0] * jnp.exp(jnp.repeat(held, num_writes, axis=-2))
        products = _joined(products, second @ jnp.swapaxes(first, -1, -2))
        readers, key = (jnp.concatenate(_pairs(leaf), axis=-2) for leaf in (readers, key))
    return products[..., 0, : num_steps * num_readers, : num_steps * num_writes]


def _inverse(system: Any) -> Any:
    """The inverse of unit lower triangular matrices `[..., N, N]`, by blocks that double in size.

        [[A, 0], [C, B]]⁻¹ = [[A⁻¹, 0], [-B⁻¹ C A⁻¹, B⁻¹]]

    This takes log₂ N rounds of matrix products and is as stable as forward substitution, unlike
    the series (I - A)(I + A²)(I + A⁴) …, whose powers grow when keys repeat. On CPU a triangular
    solver takes 40 times as long.
    """
    size = system.shape[-1]
    # Padding never enters the part returned: the inverse of a leading block is that of the block.
    system = jnp.swapaxes(_padded(jnp.swapaxes(_padded(system), -1, -2)), -1, -2)
    width = system.shape[-1]
    # `inverse [..., width/half, half, half]` holds the inverses of the blocks on the diagonal.
    inverse = jnp.ones((*system.shape[:-1], 1, 1), system.dtype)
    while inverse.shape[-1] < width:
        half = inverse.shape[-1]
        blocks = system.reshape(*system.shape[:-2], width // half, half, width // half, half)
        # Block (2i + 1, 2i) for every i: the C of each pair.
        below = jnp.diagonal(blocks[..., 1::2, :, 0::2, :], axis1=-4, axis2=-2)
        first, second = _pairs(inverse)
        inverse = _joined(inverse, -second @ jnp.moveaxis(below, -1, -3) @ first)
    return inverse[..., 0, :size, :size]


def _padded(leaf, mode="constant"):
    """The axis before the last filled up to a power of two, with zeros or with its last entry."""
    rest = (1 << (leaf.shape[-2] - 1).bit_length()) - leaf.shape[-2]
    return jnp.pad(leaf, [(0, 0)] * (leaf.ndim - 2) + [(0, rest), (0, 0)], mode) if rest else leaf


def _pairs(blocks):
    """The first and the second block of each pair, `[..., 2m, a, b] -> [..., m, a, b]` twice."""
    return blocks[..., 0::2, :, :], blocks[..., 1::2, :, :]


def _joined(blocks, corner):
    """`[..., 2m, a, b]` in pairs on the diagonal, the corner below it: `[..., m, 2a, 2b]`."""
    first, second = _pairs(blocks)
    return jnp.concatenate(
        [
            jnp.concatenate([first, jnp.zeros_like(first)], axis=-1),
            jnp.concatenate([corner, second], axis=-1),
        ],
        axis=-2,
    )
