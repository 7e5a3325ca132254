"""Counts the states that all binary histories end in, and what can be read from them."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxrnn as jr
from experiments.frame.checkpoints import Advance, Checkpoints
from experiments.frame.fitting import Fitter
from experiments.memory.config import UPDATES_PER_EPOCH, Config

READER_UNITS = 64
BATCH = 64


class Counted(NamedTuple):
    """What a cell with H numbers of p bits makes of all histories of n = 1 … N bits.

    `states [N]` counts different carries, and `bits_right [N]` is the share of the bits that the
    best reader of the carry gets right.
    """

    kind: str
    units: int  # H
    capacity: int  # p H
    states: np.ndarray
    bits_right: np.ndarray

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.units} × {self.capacity // self.units} bits"

    @property
    def steps(self) -> range:
        return range(1, len(self.states) + 1)

    @property
    def most_states(self) -> np.ndarray:
        """2^min(n, p H), `[N]`: no cell can have more."""
        return 2 ** np.minimum(self.capacity, self.steps)

    @property
    def most_bits_right(self) -> np.ndarray:
        return np.array([most_bits_right(self.capacity, step) for step in self.steps])


def all_histories(num_steps: int) -> np.ndarray:
    """Every row of bits, `[2^n, n]`, the first bit the slowest to change."""
    numbers = np.arange(2**num_steps)[:, None]
    return (numbers >> np.arange(num_steps)[::-1]) & 1


def count(kind: str, units: int, capacity: int, codes: np.ndarray) -> Counted:
    """From the carries of all histories as integers, `[2^N, N]`, one after each step."""
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


@jr.model_factory
def shift_register(num_units: int, bits: int) -> jr.Cell:
    """Holds the last p H bits of its input: H integers of p bits, the newest lowest.

    hₜ[0] = (2 hₜ₋₁[0] + xₜ) mod 2^p,   hₜ[i] = (2 hₜ₋₁[i] + top bit of hₜ₋₁[i - 1]) mod 2^p
    """

    def advance(params, carry, bit):
        del params
        top = carry >> (bits - 1)
        entering = jnp.concatenate([bit.astype(carry.dtype), top[..., :-1]], axis=-1)
        return (2 * carry + entering) % 2**bits

    return _without_params(advance, num_units, jnp.int32)


@jr.model_factory
def parity_cell() -> jr.Cell:
    """One bit of state: hₜ = hₜ₋₁ xor xₜ."""
    return _without_params(lambda params, carry, bit: carry ^ (bit == 1), 1, bool)


def _without_params(advance, num_units, dtype):
    def initial_carry(params, batch_shape=()):
        del params
        return jnp.zeros((*batch_shape, num_units), dtype)

    return jr.simple_cell(lambda *_: (), advance, num_units, initial_carry=initial_carry)


def carries_of_all(cell: jr.Cell, params: Any, histories: np.ndarray) -> np.ndarray:
    """The carry after every step, for a cell whose output is its carry, `[2^N, N, H]`."""
    return np.asarray(jr.unroll(cell, params, histories[..., None].astype(np.float32)).outputs)


def as_codes(levels: np.ndarray, num_levels: int) -> np.ndarray:
    """Levels `[..., H]` from 0 to `num_levels` - 1 as one integer."""
    return levels.astype(np.int64) @ num_levels ** np.arange(levels.shape[-1])


def one_bit(history_bits: int) -> Counted:
    """The parity cell; `bits_right` is the share of histories whose parity it holds."""
    histories, cell = all_histories(history_bits), parity_cell()
    carries = carries_of_all(cell, (), histories)
    counted = count("parity", 1, jr.state_capacity_bits(cell, ()), as_codes(carries, 2))
    right = carries[..., 0] == histories.cumsum(axis=1) % 2
    return counted._replace(bits_right=right.mean(axis=0))


def registers(pairs: Iterable[tuple[int, int]], history_bits: int) -> list[Counted]:
    histories, counted = all_histories(history_bits), []
    for units, bits in pairs:
        cell = shift_register(units, bits)
        capacity = jr.state_capacity_bits(cell, (), bits_per_number=bits)
        codes = as_codes(carries_of_all(cell, (), histories), 2**bits)
        counted.append(count("shift register", units, capacity, codes))
    return counted


# Cells whose carry is rounded to a few bits a number, trained to give the whole history back.


class Rounding(NamedTuple):
    """`levels`, 2^p values in (-1, 1) for a number, and `kept [H]`, which numbers there are."""

    levels: Any
    kept: Any


def rounded(cell: jr.Cell, rounding: Rounding) -> jr.Cell:
    """The cell with its carry on the middles of equal parts of (-1, 1); 0 where not `kept`.

    The derivative is that without rounding (Bengio et al. 2013, the straight-through estimator).
    """

    def advance(params, carry, z):
        h = cell.advance(params, carry, z).h
        middle = (2 * to_levels(h, rounding.levels) + 1) / rounding.levels - 1
        h = h + jax.lax.stop_gradient(middle - h)
        return carry._replace(h=jnp.where(rounding.kept, h, 0))

    return cell._replace(advance=advance)


def to_levels(h: Any, levels: Any) -> Any:
    """Which of the equal parts of (-1, 1) a number lies in, from 0 on."""
    return jnp.clip(jnp.floor((h + 1) / 2 * levels), 0, levels - 1)


def make_roundings(config: Config) -> Rounding:
    """Of every pair of units and bits, all with as many units as the largest."""
    units = np.arange(max(config.state_units))
    return Rounding(
        levels=np.array([2.0**bits for _, bits in config.pairs], np.float32),
        kept=np.stack([units < number for number, _ in config.pairs]),
    )


def initial_params(config: Config) -> Any:
    """An Elman cell, and the two layers that read the history from its carry, for every pair."""
    cell = jr.elman(max(config.state_units))
    network = jr.serial(cell, jr.dense(READER_UNITS), jr.dense(config.history_bits))
    keys = jax.random.split(jax.random.key(config.first_seed), len(config.pairs))
    return jax.vmap(lambda key: network.init(key, 1))(keys)


def rounded_carries(params: Any, rounding: Rounding, bits: Any) -> Any:
    """The carry of the Elman cell `[..., T, H]` after every bit."""
    cell = rounded(jr.elman(rounding.kept.shape[-1]), rounding)
    return jr.unroll(cell, params, 2.0 * bits[..., None] - 1).outputs


def reading_loss(params: Any, batch: tuple[Rounding, Any], key: Any) -> Any:
    """The mean loss of all bits read until then, after every step."""
    del key
    (cell, hidden, reader), (rounding, bits) = params, batch
    carries = rounded_carries(cell, rounding, bits)
    features = jax.nn.gelu(jr.unroll(jr.dense(READER_UNITS), hidden, carries).outputs)
    logits = jr.unroll(jr.dense(bits.shape[-1]), reader, features).outputs
    steps = np.arange(bits.shape[-1])
    ago = steps[:, None] - steps  # the reader's outputs are the newest bit, the one before, …
    losses = optax.losses.sigmoid_binary_cross_entropy(logits, bits[..., np.maximum(ago, 0)])
    return (losses * (ago >= 0)).sum() / (losses.shape[0] * (ago >= 0).sum()), {}


def train_rounded(config: Config, checkpoints: Checkpoints, advance: Advance) -> list[Counted]:
    """Trains all pairs side by side, on the same histories, and counts what they tell apart."""
    num_pairs, updates = len(config.pairs), config.state_updates
    roundings = jax.tree.map(
        lambda leaf: np.repeat(leaf[:, None], UPDATES_PER_EPOCH, axis=1), make_roundings(config)
    )

    def batches(epoch):
        rng = np.random.default_rng([config.first_seed, epoch])
        bits = rng.integers(0, 2, (1, UPDATES_PER_EPOCH, BATCH, config.history_bits))
        return roundings, np.repeat(bits.astype(np.float32), num_pairs, axis=0)

    fitter = Fitter(reading_loss, optax.adam(optax.cosine_decay_schedule(1e-2, updates)))
    epochs, params = updates // UPDATES_PER_EPOCH, initial_params(config)
    fitted = fitter.fit_seeds("rounded", params, batches, epochs, checkpoints, advance=advance)
    return count_rounded(config, fitted.params)


def count_rounded(config: Config, params: Any) -> list[Counted]:
    histories = all_histories(config.history_bits).astype(np.float32)
    carries_of, roundings, counted = jax.jit(rounded_carries), make_roundings(config), []
    for index, (units, bits) in enumerate(config.pairs):
        one, rounding = jax.tree.map(lambda leaf: leaf[index], (params[0], roundings))  # noqa: B023
        carries = carries_of(one, rounding, histories)[..., :units]
        codes = as_codes(np.asarray(to_levels(carries, rounding.levels)), 2**bits)
        counted.append(count("Elman", units, units * bits, codes))
    return counted
