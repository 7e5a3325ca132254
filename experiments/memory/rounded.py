"""Cells whose carry is rounded to a few bits a number, trained to give the whole history back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import jaxrnn as jr
from experiments.frame.checkpoints import Checkpoints
from experiments.frame.fitting import Fitter
from experiments.memory.config import UPDATES_PER_CALL, Config
from experiments.memory.counting import Counted, all_histories, as_codes, count
from jaxrnn.types import Cell

READER_UNITS = 64
BATCH = 64


class RoundedParams(NamedTuple):
    """The cell, and the two layers that read the history from its carry."""

    cell: Any
    hidden: Any
    reader: Any


class Rounding(NamedTuple):
    """`levels`, 2^p values in (-1, 1) for a number, and `kept [H]`, which numbers there are."""

    levels: Any
    kept: Any


def rounded(cell: Cell, rounding: Rounding) -> Cell:
    """The cell with its carry on the middles of equal parts of (-1, 1); 0 where not `kept`.

    The derivative is that without rounding (Bengio et al. 2013, the straight-through estimator).
    """

    def advance(params, carry, z):
        h = cell.advance(params, carry, z).h
        middle = (2 * to_levels(h, rounding.levels) + 1) / rounding.levels - 1
        h = h + lax.stop_gradient(middle - h)
        return carry._replace(h=jnp.where(rounding.kept, h, 0))

    return cell._replace(advance=advance)


def to_levels(h: Any, levels: Any) -> Any:
    """Which of the equal parts of (-1, 1) a number lies in, from 0 on."""
    return jnp.clip(jnp.floor((h + 1) / 2 * levels), 0, levels - 1)


class Bottleneck:
    """An Elman cell with a rounded carry for every pair of units and bits, all at once."""

    def __init__(self, config: Config):
        self.config = config
        self.pairs = [(units, bits) for units in config.state_units for bits in config.state_bits]
        self.num_epochs = config.state_updates // UPDATES_PER_CALL
        self.cell = jr.elman(max(config.state_units))
        self.hidden, self.reader = jr.dense(READER_UNITS), jr.dense(config.history_bits)
        units = np.arange(max(config.state_units))
        self.roundings = Rounding(
            levels=np.array([2.0**bits for _, bits in self.pairs], np.float32),
            kept=np.stack([units < number for number, _ in self.pairs]),
        )

    def init(self, key: Any) -> RoundedParams:
        """Parameters of one pair."""
        keys = jax.random.split(key, 3)
        return RoundedParams(
            self.cell.init(keys[0], 1),
            self.hidden.init(keys[1], max(self.config.state_units)),
            self.reader.init(keys[2], READER_UNITS),
        )

    def outputs(self, params: Any, rounding: Rounding, bits: Any) -> Any:
        """The rounded carries `[..., T, H]` behind every bit."""
        xs = 2.0 * bits[..., None] - 1
        return jr.unroll(rounded(self.cell, rounding), params, xs).outputs

    def loss(self, params: RoundedParams, rounding: Rounding, bits: Any) -> Any:
        """The mean loss of all bits read until then, behind every step."""
        carries = self.outputs(params.cell, rounding, bits)
        hidden = jax.nn.gelu(jr.unroll(self.hidden, params.hidden, carries).outputs)
        logits = jr.unroll(self.reader, params.reader, hidden).outputs
        steps = np.arange(self.config.history_bits)
        ago = steps[:, None] - steps  # the reader's outputs are the newest bit, the one before, …
        labels = bits[..., np.maximum(ago, 0)]
        losses = optax.losses.sigmoid_binary_cross_entropy(logits, labels)
        return (losses * (ago >= 0)).sum() / (losses.shape[0] * (ago >= 0).sum())

    def train(self, checkpoints: Checkpoints, epoch_done: Callable[[int], Any]) -> list[Counted]:
        """Trains all pairs, and counts the states that all histories end in."""
        config = self.config

        def loss_fn(params, bits, key):
            del key
            losses = jax.vmap(self.loss, in_axes=(0, 0, None))(params, self.roundings, bits)
            return losses.sum(), {"losses": losses}

        def batches(epoch):
            rng = np.random.default_rng([config.first_seed, epoch])
            shape = (UPDATES_PER_CALL, BATCH, config.history_bits)
            return rng.integers(0, 2, shape).astype(np.float32)

        alone = optax.adam(optax.cosine_decay_schedule(1e-2, config.state_updates))
        optimizer = optax.GradientTransformation(jax.vmap(alone.init), jax.vmap(alone.update))
        keys = jax.random.split(jax.random.key(config.first_seed), len(self.pairs))
        fitted = Fitter(loss_fn, optimizer).fit(
            "rounded", jax.vmap(self.init)(keys), batches, self.num_epochs, checkpoints,
            epoch_done=epoch_done,
        )  # fmt: skip
        return self.count(fitted.params)

    def count(self, params: RoundedParams) -> list[Counted]:
        """Of every pair."""
        histories = all_histories(self.config.history_bits).astype(np.float32)
        outputs = jax.jit(self.outputs)
        counted = []
        for index, (units, bits) in enumerate(self.pairs):
            one, rounding = jax.tree.map(lambda leaf: leaf[index], (params.cell, self.roundings))  # noqa: B023
            carries = outputs(one, rounding, histories)[..., :units]
            levels = np.asarray(to_levels(carries, rounding.levels))
            codes = as_codes(levels, 2**bits)
            counted.append(count("Elman", units, units * bits, codes))
        return counted
