"""Wrappers that add noise to a cell: zoneout and recurrent dropout.

The noise is data. `prepare` draws it for the whole sequence and adds it to the inputs, so every
evaluator sees the same numbers, and a step is a pure function of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.carry import broadcast_carry
from jaxrnn.engine.keys import drawing_key, from_sequence_start, split_key
from jaxrnn.factories import model_factory
from jaxrnn.types import Cell, Split


class Noisy(NamedTuple):
    """A value of the inner cell with its noise: flags like the carry, or None without a key."""

    inner: Any
    flags: Any


@model_factory
def zoneout(cell: Cell, rates: Any) -> Cell:
    """Keeps each number of the carry as it was with some probability.

        hₜ = d ⊙ hₜ₋₁ + (1 - d) ⊙ h̃ₜ,  d ~ Bernoulli(rate);  without a key d = rate, the expectation

    Krueger et al. 2016 (arXiv:1606.01305). As in the paper, an LSTM computes h̃ₜ from the new c
    before zoneout acts on c. Flags are drawn for every step, row and unit.

    Args:
        cell: the cell.
        rates: the probabilities, a float for all or a tree of floats like the carry, for example
            `LSTMCarry(h=0.05, c=0.5)`. Leaves that are neither floating nor complex are never kept.

    Returns:
        The cell with the same params and carry.

    Raises:
        TypeError: A rate is not a float, `cell` is not a Cell, or (while tracing) `rates` does not
            fit the carry.
        ValueError: A rate is not in [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.zoneout(jr.lstm(4), jr.cells.LSTMCarry(h=0.1, c=0.5))
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.unroll(cell, params, jnp.ones((5, 3)), key=jax.random.key(1)).outputs.shape
        (5, 4)
    """
    checks.is_cell(cell)
    rates = jax.tree.map(lambda rate: checks.fraction(rate, "rates"), rates)

    def draw(params, key, leading, reset):
        del reset
        carry = jax.eval_shape(cell.initial_carry, params)
        return _flags(key, _spread(rates, carry), carry, leading)

    def keep(carry, new_carry, flags):
        flags = jax.tree.map(lambda leaf: None, carry) if flags is None else flags

        def leaf(rate, old, new, flag):
            if not jnp.issubdtype(new.dtype, jnp.inexact):
                return new
            return rate * old + (1 - rate) * new if flag is None else jnp.where(flag, old, new)

        return jax.tree.map(leaf, _spread(rates, carry), carry, new_carry, flags)

    inner = cell.advance
    if isinstance(inner, Split):
        advance = Split(
            lambda params, carry, z: Noisy(inner.mix(params, carry, z.inner), z.flags),
            lambda carry, u: keep(carry, inner.update(carry, u.inner), u.flags),
        )
    else:

        def advance(params, carry, z):
            return keep(carry, inner(params, carry, z.inner), z.flags)

    return _noisy(cell, "zoneout", draw)._replace(advance=advance)


@model_factory
def recurrent_dropout(cell: Cell, rate: float) -> Cell:
    """Dropout on what the recurrent kernels read, with one mask for a whole sequence.

        hₜ = update(hₜ₋₁, mix(params, m ⊙ hₜ₋₁ / (1 - rate), zₜ)),  m ~ Bernoulli(1 - rate)

    Gal and Ghahramani 2016 (arXiv:1512.05287). Only the recurrent product reads the dropped carry;
    the pointwise paths (the cell of an LSTM, the interpolation of a GRU) read all of it. A new mask
    is drawn at every reset, so packed sequences have different masks. A call of `unroll` with
    another key draws another mask: chunks of one stream share theirs only if they get the same key.

    Args:
        cell: a cell whose `advance` is a `Split`.
        rate: the fraction of the carry that is dropped.

    Returns:
        The cell with the same params and carry.

    Raises:
        TypeError: The rate is not a float, or `cell` is not a Cell with a `Split`.
        ValueError: The rate is not in [0, 1).

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> cell = jr.recurrent_dropout(jr.gru(4), 0.3)
        >>> params = cell.init(jax.random.key(0), 3)
        >>> jr.unroll(cell, params, jnp.ones((5, 3)), key=jax.random.key(1)).outputs.shape
        (5, 4)
    """
    rate = checks.fraction(rate, "rate")
    inner = checks.split_of(cell)

    def draw(params, key, leading, reset):
        carry = jax.eval_shape(cell.initial_carry, params)
        rates = jax.tree.map(lambda leaf: 1 - rate, carry)
        if reset is None:
            return broadcast_carry(_flags(key, rates, carry, leading[1:]), leading[:1])
        flags = _flags(key, rates, carry, leading)
        return jax.tree.map(lambda leaf: from_sequence_start(leaf, reset), flags)

    def mix(params, carry, z):
        def drop(leaf, flag):
            if not jnp.issubdtype(leaf.dtype, jnp.inexact):
                return leaf
            return jnp.where(flag, leaf / (1 - rate), 0)

        dropped = carry if z.flags is None else jax.tree.map(drop, carry, z.flags)
        return inner.mix(params, dropped, z.inner)

    return _noisy(cell, "recurrent_dropout", draw)._replace(advance=Split(mix, inner.update))


def _noisy(cell: Cell, name: str, draw: Callable[..., Any]) -> Cell:
    """The cell for inputs `Noisy(x, flags)`, which its `prepare` makes; all but its `advance`."""

    def prepare(params, key, xs, reset):
        leading = checks.leading_shape(xs, cell.num_feature_axes)
        key, inner_key = split_key(drawing_key(key, name), 2)
        if cell.prepare is not None:
            xs = cell.prepare(params, inner_key, xs, reset)
        return Noisy(xs, None if key is None else draw(params, key, leading, reset))

    return cell._replace(
        project=lambda params, x: Noisy(cell.project(params, x.inner), x.flags),
        emit=lambda params, carry, x: cell.emit(params, carry, x.inner),
        prepare=prepare,
    )


def _spread(rates: Any, carry: Any) -> Any:
    return checks.spread(rates, carry, "rates", "the carry")


def _flags(key: Any, rates: Any, carry: Any, leading: tuple[int, ...]) -> Any:
    """A tree like the carry of bools `[*leading, ...]`, each True with its rate."""
    leaves, tree = jax.tree.flatten(carry)
    draws = zip(split_key(key, len(leaves)), jax.tree.leaves(rates), leaves, strict=True)
    return tree.unflatten(
        jax.random.bernoulli(leaf_key, rate, (*leading, *leaf.shape))
        for leaf_key, rate, leaf in draws
    )
