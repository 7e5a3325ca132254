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
from jax import lax

# Sums of it are finite, its exponential is 0.
_LOWEST = -1e30


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
        initial: what a reset returns to, like `state`; None is zero.
        steps: finite numbers, but decays may be -inf.
        reset: bool `[B, H, C]`, or None.
    """
    query, key, value, log_decay, erase = steps
    num_steps, num_writes = query.shape[-2], key.shape[-2] // query.shape[-2]
    log_decay = jnp.maximum(log_decay, _LOWEST)
    # The number of resets up to a step numbers its sequence; 0 is that of `state`.
    number = None if reset is None else jnp.cumsum(reset, axis=-1)[..., None]
    same = True if number is None else number == jnp.swapaxes(number, -1, -2)
    up_to = np.tri(num_steps)
    # Without `initial` the sums before a reset are read by nothing.
    since = jnp.exp(_sums(up_to if initial is None else up_to * same, log_decay))
    until = jnp.exp(_sums(1 - up_to, log_decay))

    def from_start(readers):
        """What readers find of the memory that their sequence starts from."""
        per_step = readers.shape[-2] // num_steps
        decay = jnp.repeat(since, per_step, axis=-2)
        found = _decayed_product(readers, decay, state)
        if number is None:
            return found
        after_reset = 0 if initial is None else _decayed_product(readers, decay, initial)
        return jnp.where(jnp.repeat(number, per_step, axis=-2) == 0, found, after_reset)

    shared = log_decay.shape[-1] == 1
    decays = jnp.exp(sums_between(log_decay[..., 0])) if shared else _levels(log_decay)

    def from_writes(readers, own):
        """What readers find of each write; `own [r, n]` says of which ones of their own step."""
        before = np.tri(num_steps, k=-1)
        seen = np.kron(before, np.ones_like(own)) + np.kron(np.eye(num_steps), own) > 0
        if number is not None:
            seen = seen & _repeated(same, own.shape)
        if not shared:
            return jnp.where(seen, _channel_products(readers, key, decays, own.shape), 0)
        # Selected, not only multiplied by 0: an unseen product that overflows would give NaN.
        products = jnp.where(seen, readers @ jnp.swapaxes(key, -1, -2), 0)
        return products * _repeated(decays, own.shape)

    if erase is not None:
        found = from_writes(erase, np.tri(num_writes, k=-1))
        system = jnp.eye(key.shape[-2], dtype=key.dtype) + found
        value = _inverse(system) @ (value - from_start(erase))
    outputs = from_writes(query, np.ones((1, num_writes))) @ value + from_start(query)

    last = jnp.swapaxes(since[..., -1:, :], -1, -2) * state
    if number is not None:
        end = number[..., -1:, :]
        value = jnp.where(jnp.repeat(number, num_writes, axis=-2) == end, value, 0)
        start = 0 if initial is None else jnp.swapaxes(since[..., -1:, :], -1, -2) * initial
        last = jnp.where(end == 0, last, start)
    until = jnp.repeat(until, num_writes, axis=-2)
    key, value = (key, until * value) if shared else (until * key, value)
    return last + jnp.swapaxes(key, -1, -2) @ value, outputs


def _decayed_product(readers, decay, matrix):
    # One decay for all keys is a factor of the product, which keys that heads share need once.
    return decay * (readers @ matrix) if decay.shape[-1] == 1 else (decay * readers) @ matrix


def _sums(which, terms):
    """The sum of the terms that each row of zeros and ones says, `[..., C, C] -> [..., C, G]`."""
    # Products compile faster than running sums. Their default precision on accelerators has too
    # few digits for an exponent.
    return jnp.matmul(jnp.asarray(which, terms.dtype), terms, precision=lax.Precision.HIGHEST)


def sums_between(terms: Any) -> Any:
    """termₛ₊₁ + … + termₜ for s <= t, `[..., C] -> [..., C, C]`."""
    up_to = np.tri(terms.shape[-1])
    return _sums(up_to * terms[..., None, :], jnp.asarray(1 - up_to.T, terms.dtype))


def _levels(log_decay):
    """The sums of terms after a boundary and up to it, for blocks of 1, 2, 4, … steps.

    Returns:
        A list of `(reach [..., m, L, K], held [..., m, L, K])`, for pairs of blocks of L steps: the
        sum of the second block up to each step, and that of the first after each step.
    """
    reach = _padded(log_decay)[..., :, None, :]
    held, levels = jnp.zeros_like(reach), []
    while reach.shape[-3] > 1:
        (reach1, reach2), (held1, held2) = _pairs(reach), _pairs(held)
        levels.append((reach2, held1))
        reach = jnp.concatenate([reach1, reach1[..., -1:, :] + reach2], axis=-2)
        held = jnp.concatenate([held1 + reach2[..., -1:, :], held2], axis=-2)
    return levels


def _channel_products(readers, key, levels, per_step):
    """Products `[..., C*r, C*n]` of r readers and n keys a step, for keys of an earlier step."""
    num_rows, num_columns = readers.shape[-2], key.shape[-2]

    def by_step(leaf, count):
        leaf = _padded(leaf.reshape(*leaf.shape[:-2], leaf.shape[-2] // count, -1))
        return leaf.reshape(*leaf.shape[:-1], count, -1)

    readers, key = (by_step(leaf, n) for leaf, n in zip((readers, key), per_step, strict=True))
    products = readers @ jnp.swapaxes(key, -1, -2)
    for reach, held in levels:
        second = _pairs(readers)[1] * jnp.repeat(jnp.exp(reach), per_step[0], axis=-2)
        first = _pairs(key)[0] * jnp.repeat(jnp.exp(held), per_step[1], axis=-2)
        products = _joined(products, second @ jnp.swapaxes(first, -1, -2))
        readers, key = (jnp.concatenate(_pairs(leaf), axis=-2) for leaf in (readers, key))
    return products[..., 0, :num_rows, :num_columns]


def _repeated(leaf, per_step):
    """`[..., C, C] -> [..., C*r, C*n]`."""
    return jnp.repeat(jnp.repeat(leaf, per_step[0], axis=-2), per_step[1], axis=-1)


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


def _padded(leaf):
    """The axis before the last filled up with zeros to a power of two."""
    rest = (1 << (leaf.shape[-2] - 1).bit_length()) - leaf.shape[-2]
    return jnp.pad(leaf, [(0, 0)] * (leaf.ndim - 2) + [(0, rest), (0, 0)]) if rest else leaf


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
