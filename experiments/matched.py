"""Models of the same size: the width at which each has so many parameters."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax

import jaxrnn as jr

HEADS = 2

# From the width of a block to the mixer in it; the width is a multiple of 2 `HEADS`.
MIXERS: Mapping[str, Callable[[int], jr.Cell | jr.Layer]] = {
    "elman": jr.elman,
    "gru": jr.gru,
    "lstm": jr.lstm,
    "slstm": lambda width: jr.slstm(width, HEADS),
    "min_gru": jr.min_gru,
    "lru": lambda width: jr.lru(width, width),
    "s5": lambda width: jr.s5(width, width),
    "mamba": lambda width: jr.mamba(16),
    "mlstm": lambda width: jr.mlstm(HEADS, width // HEADS),
    "attention": lambda width: jr.self_attention(HEADS, window=256),
}
LABELS: Mapping[str, str] = {
    "elman": "Elman",
    "gru": "GRU",
    "lstm": "LSTM",
    "slstm": "sLSTM",
    "min_gru": "minGRU",
    "lru": "LRU",
    "s5": "S5",
    "mamba": "Mamba",
    "mlstm": "mLSTM",
    "attention": "attention",
}


def count_params(params: Any) -> int:
    """How many real numbers are in a tree of parameters or of their shapes."""
    sizes = (
        leaf.size * (2 if jax.numpy.issubdtype(leaf.dtype, jax.numpy.complexfloating) else 1)
        for leaf in jax.tree.leaves(params)
    )
    return sum(sizes)


def matched_width(
    make: Callable[[int], jr.Cell | jr.Layer],
    num_inputs: int,
    num_params: int,
    widths: Iterable[int] = range(4 * HEADS, 256 * HEADS, 2 * HEADS),
) -> int:
    """The width in increasing `widths` at which what `make` makes is nearest to `num_params`."""

    def distance(width):
        key = jax.random.key(0)
        params = jax.eval_shape(lambda key: make(width).init(key, num_inputs), key)
        return abs(count_params(params) - num_params)

    best, least = None, None
    for width in widths:
        now = distance(width)
        if least is not None and now > least:
            break
        best, least = width, now
    if best is None:
        raise ValueError("widths must hold one or more, got none.")
    return best
