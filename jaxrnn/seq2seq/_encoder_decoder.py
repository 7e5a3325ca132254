"""From one sequence to another: an encoder, a decoder, and what passes between them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxrnn.engine import checks
from jaxrnn.engine.keys import split_key
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.engine.unroll import unroll
from jaxrnn.generation._decoding import generate
from jaxrnn.generation._teacher_forcing import teacher_forced
from jaxrnn.layers._serial import serial
from jaxrnn.seq2seq._attention_cell import AttentionCellCarry, attention_cell, check_can_attend
from jaxrnn.seq2seq._cross_attention import Memory, cross_attention, source_memory
from jaxrnn.seq2seq._scores import Score
from jaxrnn.types import Cell, Layer


class EncoderDecoderParams(NamedTuple):
    """`encoder`, and `decoder`: a tuple for decoder, attention if there is any, and readout.

    Attention has the score's parameters, and with an `attending_cell` `AttentionCellParams(cell,
    score)`.
    """

    encoder: Any
    decoder: Any


class EncoderDecoder(NamedTuple):
    """A map from a source to another sequence, as a record of pure functions.

    Attributes:
        init: `(key, num_source_inputs, num_inputs) -> params`.
        encode: `(params, source, *, mask=None, key=None) -> carry`: what the decoder starts from.
        decoder: `(carry) -> Layer`: what runs from such a carry with `params.decoder`, by
            `unroll`, `step`, `free_run`; the same object for the same size of source. TypeError
            for what is no such carry.
        teacher_forced: `(params, source, xs, *, source_mask=None, mask=None, key=None)
            -> Rollout`: the outputs `[..., T, C]` from the true prefixes xs `[..., T]`, a start
            token in front.
        generate: `(params, source, prompt, num_steps, *, source_mask=None, **choice)
            -> Generated`: `generate` with its arguments, the prompt being the start token.
        roles: What the parameters are for, as in `Cell`.
    """

    init: Callable[..., EncoderDecoderParams]
    encode: Callable[..., Any]
    decoder: Callable[[Any], Layer]
    teacher_forced: Callable[..., Any]
    generate: Callable[..., Any]
    roles: Any = None


def encoder_decoder(
    encoder: Cell | Layer,
    decoder: Cell | Layer,
    readout: Cell | Layer,
    *,
    attention: Score | None = None,
    attending_cell: Cell | None = None,
    reverse_source: bool = False,
    bridge: Callable[[Any], Any] | None = None,
) -> EncoderDecoder:
    """Reads a source, then writes another sequence from what it kept of it.

        h_S, m = encoder(source),  p(x | source) = Πₜ readout([dₜ, cₜ]),  d = decoder(x; h_S)

    Without attention the decoder starts from the encoder's last carry and nothing else passes:
    the fixed vector of Sutskever et al. 2014 (arXiv:1409.3215), who also read the source in
    reverse, so that its first words are nearest. With attention every step also sees the context
    cₜ = Σⱼ αₜⱼ mⱼ of all encoder outputs: see `cross_attention` and, for the score, `dot_score`
    (Luong et al. 2015) and `additive_score` (Bahdanau et al. 2015). The outputs of the encoder
    and their keys then travel in the decoder's carry, so streaming, masks and chunks work as
    everywhere. A row without a real source step, or any row if S = 0, starts from the initial carry
    and sees c = 0.

    Luong's order: the decoder steps, then looks, and the readout sees both. With an
    `attending_cell` it is Bahdanau's: what the decoder makes of x and the context are read by
    this cell, which looks with its last state; see `attention_cell`. It starts from the encoder's
    last carry, and the decoder, an embedding say, from its own initial one.

        cₜ = Σⱼ αₜⱼ(dₜ₋₁) mⱼ,  dₜ = attending_cell(dₜ₋₁, [decoder(x)ₜ, cₜ])

    Args:
        encoder: Reads the source `[..., S, D]` or tokens `[..., S]`. With a `bridge` it need not
            be causal.
        decoder: Causal; reads the target. `serial(embed(D), lstm(H))`, say.
        readout: Causal; from the decoder's outputs (and the context behind them) to logits.
        attention: A score; None is the fixed vector.
        attending_cell: A cell that the context enters, without noise of its own; None is Luong's
            order.
        reverse_source: Read the source from its end.
        bridge: `(carry of the encoder) -> carry of the decoder`, or of the attention_cell cell if
            there is one, or -> None for its own initial carry. None hands the carry on; then both
            must have the same structure.

    Returns:
        The `EncoderDecoder`.

    Raises:
        TypeError: A part is neither a Cell nor a Layer, `attention` no Score, `attending_cell` no
            Cell, `bridge` no function, `reverse_source` no bool; or (in `encode`) the carry
            handed over has another structure or dtype than it should.
        ValueError: The decoder or the readout is not causal, there is an `attending_cell` and no
            `attention`, or it draws noise or reads anything but one vector a step; or (in
            `encode`) the carry has other sizes.

    Example:
        >>> import jax, jax.numpy as jnp, jaxrnn as jr
        >>> model = jr.encoder_decoder(
        ...     encoder=jr.serial(jr.embed(8), jr.gru(16)),
        ...     decoder=jr.serial(jr.embed(8), jr.gru(16)),
        ...     readout=jr.dense(11),
        ...     attention=jr.additive_score(12),
        ... )
        >>> params = model.init(jax.random.key(0), 30, 11)
        >>> source, start = jnp.array([[4, 2, 7, 0]]), jnp.array([[1]])
        >>> real = source != 0
        >>> written = model.generate(params, source, start, 6, source_mask=real, stop_token=2)
        >>> xs = jnp.concatenate([start, written.tokens], axis=1)
        >>> rollout = model.teacher_forced(params, source, xs, source_mask=source != 0)
        >>> rollout.outputs.shape, jr.attention_weights(rollout).shape
        ((1, 7, 11), (1, 7, 4))

        Bahdanau's order, from the carry of the encoder's last layer:

        >>> model = jr.encoder_decoder(
        ...     encoder=jr.serial(jr.embed(8), jr.gru(16)),
        ...     decoder=jr.embed(8),
        ...     readout=jr.dense(11),
        ...     attention=jr.additive_score(12),
        ...     attending_cell=jr.gru(16),
        ...     bridge=lambda carry: carry[-1],
        ... )
        >>> params = model.init(jax.random.key(0), 30, 11)
        >>> model.teacher_forced(params, source, xs, source_mask=source != 0).outputs.shape
        (1, 7, 11)
    """
    source_layer = as_layer(encoder, "encoder")
    target_layer, output_layer = _causal(decoder, "decoder"), _causal(readout, "readout")
    checks.boolean(reverse_source, "reverse_source")
    if attention is not None and not isinstance(attention, Score):
        raise TypeError(f"attention must be a Score, dot_score(64) say, got {attention!r}.")
    if attending_cell is not None:
        if not isinstance(attending_cell, Cell):
            raise TypeError(f"attending_cell must be a Cell or None, got {attending_cell!r}.")
        if attention is None:
            raise ValueError("attention must be a Score for an attending_cell, got None.")
        check_can_attend(attending_cell, "attending_cell")
    if bridge is not None and not callable(bridge):
        raise TypeError(f"bridge must be a function or None, got {bridge!r}.")

    # One object for one size of source: `unroll` compiles once for each layer it is given.
    @functools.lru_cache(maxsize=64)
    def stack(num_source_steps, num_memory):
        if attention is None:
            return serial(target_layer, output_layer)
        if attending_cell is None:
            looking = cross_attention(attention, num_source_steps, num_memory)
        else:
            looking = attention_cell(attending_cell, attention, num_source_steps, num_memory)
        return serial(target_layer, looking, output_layer)

    def init(key, num_source_inputs, num_inputs):
        encoder_key, decoder_key = jax.random.split(key)
        writer = stack(1, source_layer.num_outputs(num_source_inputs))
        return EncoderDecoderParams(
            source_layer.init(encoder_key, num_source_inputs),
            writer.init(decoder_key, num_inputs),
        )

    def encode(params, source, *, mask=None, key=None):
        rollout = unroll(
            source_layer, params.encoder, source, mask=mask, reverse=reverse_source, key=key
        )
        batch_shape = _rows(source_layer, source, "source")
        first, *looking, last = params.decoder
        start_of = functools.partial(_handed_over, rollout.carry, bridge, batch_shape)
        end = output_layer.initial_carry(last, batch_shape)
        if attention is None:
            return start_of(target_layer, first, "decoder"), end
        if attending_cell is None:
            memory = source_memory(attention, looking[0], rollout.outputs, mask)
            return start_of(target_layer, first, "decoder"), memory, end
        memory = source_memory(attention, looking[0].score, rollout.outputs, mask)
        h = start_of(attending_cell, looking[0].cell, "attending_cell")
        return target_layer.initial_carry(first, batch_shape), AttentionCellCarry(h, memory), end

    def writer_for(carry):
        num_parts = 2 if attention is None else 3
        if type(carry) is not tuple or len(carry) != num_parts:
            raise TypeError(
                f"carry must be the tuple of {num_parts} that encode makes, got {_kind(carry)}."
            )
        if attention is None:
            return stack(0, 1)
        memory = carry[1] if attending_cell is None else getattr(carry[1], "memory", None)
        if not isinstance(memory, Memory):
            raise TypeError(f"carry[1] must hold the Memory of a source, got {_kind(carry[1])}.")
        return stack(*memory.values.shape[-2:])

    def forced(params, source, xs, *, source_mask=None, mask=None, key=None):
        _same_rows(source, xs, "xs")
        encoder_key, decoder_key = split_key(key, 2)
        carry = encode(params, source, mask=source_mask, key=encoder_key)
        writer = writer_for(carry)
        return teacher_forced(writer, params.decoder, xs, carry=carry, mask=mask, key=decoder_key)

    def written(params, source, prompt, num_steps, *, source_mask=None, **choice):
        _same_rows(source, prompt, "prompt")
        carry = encode(params, source, mask=source_mask)
        return generate(writer_for(carry), params.decoder, prompt, num_steps, carry=carry, **choice)

    def _same_rows(source, xs, name):
        rows, wanted = _rows(target_layer, xs, name), _rows(source_layer, source, "source")
        if rows != wanted:
            raise ValueError(f"{name} must have the batch axes {wanted} of source, got {rows}.")

    roles = EncoderDecoderParams(source_layer.roles, stack(0, 1).roles)
    return EncoderDecoder(init, encode, writer_for, forced, written, roles)


def _causal(model: Any, name: str) -> Layer:
    layer = as_layer(model, name)
    if not layer.causal:
        raise ValueError(f"{name} must be causal: it writes what it has not seen yet.")
    return layer


def _rows(layer: Layer, xs: Any, name: str) -> tuple[int, ...]:
    return checks.leading_shape(checks.arrays(xs, name), layer.num_feature_axes, name)[:-1]


def _kind(tree: Any) -> str:
    """What an error says of a tree that may be large."""
    return f"a tuple of {len(tree)}" if type(tree) is tuple else type(tree).__name__


def _handed_over(
    carry: Any,
    bridge: Any,
    batch_shape: tuple[int, ...],
    receiver: Cell | Layer,
    params: Any,
    receiver_name: str,
) -> Any:
    """The first carry of what writes, from the encoder's last one."""
    expected = jax.eval_shape(lambda params: receiver.initial_carry(params, batch_shape), params)
    if bridge is None:
        without = f"without a bridge{_bridge_hint(carry, expected)}"
        name = f"the last carry of encoder, which {receiver_name} starts from {without},"
    else:
        carry, name = bridge(carry), f"the carry that bridge gives to {receiver_name}"
        if carry is None:
            return receiver.initial_carry(params, batch_shape)
    checks.same_tree(carry, expected, name)
    return carry


def _bridge_hint(carry, expected):
    """What to say where the encoder's last layer alone has the carry that is expected."""
    wanted = jax.tree.structure((expected,))
    fits = type(carry) is tuple and jax.tree.structure(carry[-1:]) == wanted
    return " (bridge=lambda carry: carry[-1] takes that of its last layer)" if fits else ""
