"""Counts the states that all binary histories end in, and what can be read from them."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxrnn as jr
from jaxrnn.types import Cell


class Counted(NamedTuple):
    """What a cell makes of all histories of n = 1 … N bits.

    Attributes:
        kind: The cell.
        units: Numbers in its carry, H.
        capacity: Bits its carry has, p H.
        states: Different carries, `[N]`.
        bits_right: Share of the bits that the best reader of the carry gets right, `[N]`.
    """

    kind: str
    units: int
    capacity: int
    states: np.ndarray
    bits_right: np.ndarray

    @property
    def name(self) -> str:
        """The cell with the size of its carry."""
        return f"{self.kind}, {self.units} × {self.capacity // self.units} bits"

    @property
    def histories_right(self) -> np.ndarray:
        """Share of the histories that the best reader gets right as a whole: one a state."""
        return self.states / 2.0 ** np.arange(1, len(self.states) + 1)


def all_histories(num_steps: int) -> np.ndarray:
    """Every row of bits, `[2^n, n]`, the first bit the slowest to change."""
    numbers = np.arange(2**num_steps)[:, None]
    return (numbers >> np.arange(num_steps)[::-1]) & 1


def count(kind: str, units: int, capacity: int, codes: np.ndarray) -> Counted:
    """From the carries of all histories as integers, `[2^N, N]`, one behind each step."""
    num_steps = codes.shape[1]
    states, bits_right = [], []
    for step in range(1, num_steps + 1):
        # All histories with these first bits have the same carry here.
        histories = all_histories(step)
        _, places = np.unique(codes[:: 2 ** (num_steps - step), step - 1], return_inverse=True)
        ends_here = np.bincount(places)
        states.append(len(ends_here))
        ones = np.stack([np.bincount(places, weights=bits) for bits in histories.T])
        bits_right.append(np.maximum(ones, ends_here - ones).sum() / histories.size)
    return Counted(kind, units, capacity, np.array(states), np.array(bits_right))


def most_states(capacity: int, num_steps: int) -> int:
    """2^min(n, p H): no cell can have more."""
    return 2 ** min(capacity, num_steps)


def most_bits_right(capacity: int, num_steps: int) -> float:
    """The share of bits right that no cell can have more of.

    The reader of a state names one history, and of the histories that end there at most 1 differs
    from it in no bit, n in one bit, n (n - 1) / 2 in two. With 2^(n - p H) histories a state, the
    fewest wrong bits are those of the nearest.
    """
    left, wrong = 2 ** max(0, num_steps - capacity), 0
    total = left
    for distance in range(num_steps + 1):
        here = min(left, math.comb(num_steps, distance))
        wrong, left = wrong + distance * here, left - here
    return 1 - wrong / (total * num_steps)


def shift_register(num_units: int, bits: int) -> Cell:
    """Holds the last p H bits of its input: H integers of p bits, the newest lowest.

    hₜ[0] = (2 hₜ₋₁[0] + xₜ) mod 2^p,   hₜ[i] = (2 hₜ₋₁[i] + top bit of hₜ₋₁[i - 1]) mod 2^p
    """

    def advance(params, carry, bit):
        del params
        top = carry >> (bits - 1)
        entering = jnp.concatenate([bit.astype(carry.dtype), top[..., :-1]], axis=-1)
        return (2 * carry + entering) % 2**bits

    def initial_carry(params, batch_shape=()):
        del params
        return jnp.zeros((*batch_shape, num_units), jnp.int32)

    return jr.simple_cell(
        lambda key, num_inputs: (), advance, num_units, initial_carry=initial_carry
    )


def parity_cell() -> Cell:
    """One bit of state: hₜ = hₜ₋₁ xor xₜ."""

    def advance(params, carry, bit):
        del params
        return carry ^ (bit == 1)

    def initial_carry(params, batch_shape=()):
        del params
        return jnp.zeros((*batch_shape, 1), bool)

    return jr.simple_cell(lambda key, num_inputs: (), advance, 1, initial_carry=initial_carry)


def carries_of_all(cell: Cell, params: Any, histories: np.ndarray) -> np.ndarray:
    """The carry behind every step, for a cell whose output is its carry, `[2^N, N, H]`."""
    return np.asarray(jr.unroll(cell, params, histories[..., None].astype(np.float32)).outputs)


def as_codes(levels: np.ndarray, num_levels: int) -> np.ndarray:
    """Levels `[..., H]` from 0 to `num_levels` - 1 as one integer."""
    return levels.astype(np.int64) @ num_levels ** np.arange(levels.shape[-1])
