"""The record that an encoder-decoder is."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxrnn.factories import ModelValue
from jaxrnn.types import Layer


class EncoderDecoderParams(NamedTuple):
    """`encoder`, `decoder`, a tuple for decoder, attention if any, and readout, and `bridge`.

    Attention has the score's parameters, with an `attention_cell` `AttentionCellParams(cell,
    score)`, and with `input_feeding` `InputFeedingParams(cell, score, kernel)`. `bridge` is None
    where the bridge has no parameters.
    """

    encoder: Any
    decoder: Any
    bridge: Any = None


class _EncoderDecoderFields(NamedTuple):
    init: Callable[..., EncoderDecoderParams]
    encode: Callable[..., Any]
    decoder: Callable[[Any], Layer]
    teacher_forced: Callable[..., Any]
    generate: Callable[..., Any]
    beam_search: Callable[..., Any]
    roles: Any = None


class EncoderDecoder(ModelValue, _EncoderDecoderFields):
    """A map from a source to another sequence, as a record of pure functions.

    A row may hold several sources (`pack` makes such rows): `source_reset` says where each begins
    and `reset` where each sequence of the target does. Sequence k of the target then reads source
    k and nothing of the others, and gives what the pair gives in a row of its own, in values and
    gradients; without a source k it is written as from a source without a real step. It does not
    matter whether the first sequence of a row is flagged. The encoder, where the decoder starts
    from its carry, and all that writes then run step by step and draw noise for every step anew.

    Attributes:
        init: `(key, num_source_inputs, num_inputs) -> params`.
        encode: `(params, source, *, mask=None, reset=None, key=None) -> carry`: what the decoder
            starts from. With `reset` it is a `PackedCarry`, from which a reset moves on to the next
            source; without it a tuple, and a reset drops the source.
        decoder: `(carry) -> Layer`: what runs from such a carry with `params.decoder`, by
            `unroll`, `step`, `free_run`; layers for sources of the same size are equal. TypeError
            for any other carry.
        teacher_forced: `(params, source, xs, *, source_mask=None, source_reset=None, mask=None,
            reset=None, key=None) -> Rollout`: the outputs `[..., T, C]` from the true prefixes xs
            `[..., T]`, each with a start token before it. ValueError where one reset is given
            without the other.
        generate: `(params, source, prompt, num_steps, *, source_mask=None, source_reset=None,
            reset=None, **choice) -> Generated`: `generate` with its arguments; the prompt is the
            start token. In a row of several sources it goes on with the sequence in which the
            prompt ends.
        beam_search: `(params, source, start, *, source_mask=None, **search) -> Hypotheses`:
            `beam_search` with its arguments; `start` `[...]` is the start token of each row, which
            holds one source.
        roles: What the parameters are for, as in `Cell`.
    """
