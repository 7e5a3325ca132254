"""The ways to write from a source: a fixed vector, and attention outside or inside of a cell."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxrnn.layers._serial import serial
from jaxrnn.seq2seq._attention_cell import attention_cell, check_can_attend
from jaxrnn.seq2seq._cross_attention import cross_attention
from jaxrnn.seq2seq._input_feeding import check_can_be_fed, input_feeding
from jaxrnn.seq2seq._scores import Score
from jaxrnn.types import Cell, Layer


class Parts(NamedTuple):
    """Where in a stack the part is that the encoder's last carry goes to, and where the source is.

    Attributes:
        found: `(tree) -> (receiver's, source's)`, of the stack's carry (the memory is the source's)
            or parameters (those of the score are the source's).
        placed: `(carry, received, memory) -> carry`, the stack's carry with others in their place.
    """

    found: Callable[[Any], tuple[Any, Any]]
    placed: Callable[[Any, Any, Any], Any]


class Writer(NamedTuple):
    """How a target is written, and where what is known of the source enters.

    Attributes:
        stack: `(num_source_steps, num_memory) -> Layer`, all that writes.
        parts: Where the source enters.
        receiver: The name of the argument that starts from the encoder's last carry.
        score: What attends; None for a fixed vector.
    """

    stack: Callable[[int, int], Layer]
    parts: Parts
    receiver: str
    score: Score | None


# These are made once, because layers that hold the same functions are equal.
_FIRST = Parts(
    found=lambda tree: (tree[0], None),
    placed=lambda carry, received, memory: (received, carry[1]),
)
_FIRST_AND_SECOND = Parts(
    found=lambda tree: (tree[0], tree[1]),
    placed=lambda carry, received, memory: (received, memory, carry[2]),
)
_WITHIN_SECOND = Parts(
    found=lambda tree: (tree[1][0], tree[1][1]),
    placed=lambda carry, received, memory: (
        carry[0],
        carry[1]._replace(cell=received, memory=memory),
        carry[2],
    ),
)


def fixed_vector(decoder: Layer, readout: Layer) -> Writer:
    """The decoder starts from the encoder's last carry, and nothing else passes."""
    return Writer(functools.partial(_without, decoder, readout), _FIRST, "decoder", None)


def attention_after_decoder(decoder: Layer, readout: Layer, score: Score) -> Writer:
    """The decoder starts from the encoder's last carry, and its outputs are the queries."""
    stack = functools.partial(_with_attention, decoder, readout, score)
    return Writer(stack, _FIRST_AND_SECOND, "decoder", score)


def attention_before_cell(decoder: Layer, readout: Layer, score: Score, cell: Any) -> Writer:
    """A cell after the decoder starts from the encoder's last carry, and its state is the query."""
    if not isinstance(cell, Cell):
        raise TypeError(f"attention_cell must be a Cell or None, got {cell!r}.")
    check_can_attend(cell, "attention_cell")
    return _attention_inside(decoder, attention_cell, readout, score, cell)


def attention_fed_back(decoder: Layer, readout: Layer, score: Score, cell: Any) -> Writer:
    """As before, but the output is the query, and what is made of the context is fed back."""
    check_can_be_fed(cell, "input_feeding")
    return _attention_inside(decoder, input_feeding, readout, score, cell)


def _attention_inside(decoder, attending, readout, score, cell):
    attend = functools.partial(attending, cell, score)
    stack = functools.partial(_with_attention_inside, decoder, readout, attend)
    return Writer(stack, _WITHIN_SECOND, attending.__name__, score)


# Functions of a module, bound by `partial`, so that equal calls give equal writers.
def _without(decoder, readout, *source_size):
    return serial(decoder, readout)


def _with_attention(decoder, readout, score, *source_size):
    return serial(decoder, cross_attention(score, *source_size), readout)


def _with_attention_inside(decoder, readout, attend, *source_size):
    return serial(decoder, attend(*source_size), readout)
