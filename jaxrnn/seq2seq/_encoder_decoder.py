"""From one sequence to another: an encoder, a decoder, and what passes between them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrnn.engine import checks
from jaxrnn.engine.keys import split_key
from jaxrnn.engine.parameters import check_params, width_of
from jaxrnn.engine.recurrent import as_layer
from jaxrnn.engine.unroll import unroll
from jaxrnn.factories import ModelValue, model_factory
from jaxrnn.generation._beam_search import beam_search
from jaxrnn.generation._decoding import generate
from jaxrnn.generation._teacher_forcing import teacher_forced
from jaxrnn.seq2seq._bridges import Bridge, batched, received
from jaxrnn.seq2seq._cross_attention import Memory, source_memory
from jaxrnn.seq2seq._packed_sources import (
    PackedCarry,
    packed_stack,
    read_sources,
    without_memory,
)
from jaxrnn.seq2seq._record import EncoderDecoder, EncoderDecoderParams
from jaxrnn.seq2seq._scores import Score
from jaxrnn.seq2seq._writers import (
    Writer,
    attention_after_decoder,
    attention_before_cell,
    attention_fed_back,
    fixed_vector,
)
from jaxrnn.types import Cell, Layer, Steps


@model_factory
def encoder_decoder(
    encoder: Cell | Layer,
    decoder: Cell | Layer,
    readout: Cell | Layer,
    *,
    attention: Score | None = None,
    attention_cell: Cell | None = None,
    input_feeding: Cell | Layer | None = None,
    reverse_source: bool = False,
    bridge: Callable[[Any], Any] | Bridge | None = None,
) -> EncoderDecoder:
    """Reads a source, then writes another sequence from what it kept of it.

        h_S, m = encoder(source),  p(x | source) = Πₜ readout(yₜ),  cₜ = Σⱼ αₜⱼ mⱼ

        a fixed vector    yₜ = dₜ,  d = decoder(x; h_S)
        attention         yₜ = [dₜ, cₜ],  d = decoder(x; h_S),  αₜ from dₜ
        attention_cell    yₜ = [dₜ, cₜ],  dₜ = cell(dₜ₋₁, [decoder(x)ₜ, cₜ]),  αₜ from dₜ₋₁
        input_feeding     yₜ = tanh([cₜ, dₜ] W),  dₜ = cell(dₜ₋₁, [decoder(x)ₜ, yₜ₋₁]),  αₜ from dₜ

    Without attention nothing but the encoder's last carry passes: Sutskever et al. 2014
    (arXiv:1409.3215), who also read the source in reverse, so that its first words are nearest.
    With attention every step also sees the context of all encoder outputs: after the decoder's step
    (Luong et al. 2015, arXiv:1508.04025; see `cross_attention`), before it (Bahdanau et al. 2015,
    arXiv:1409.0473; see `attention_cell`), or after it and fed to the next step (Luong et al.,
    section 3.3; see `input_feeding`). In the latter two the decoder, such as an embedding, starts
    from its own initial carry, and the cell after it from the encoder's last one.

    The outputs of the encoder and their keys travel in the decoder's carry, so streaming, masks and
    chunks work as everywhere. A row without a real source step, or any row if S = 0, starts from
    the encoder's initial carry and sees c = 0.

    Args:
        encoder: reads the source `[..., S, D]` or tokens `[..., S]`. With a `bridge` it need not
            be causal.
        decoder: causal; reads the target. `serial(embed(D), lstm(H))`, say.
        readout: causal; from y to logits.
        attention: a score, `dot_score(A)` or `additive_score(A)`; None is the fixed vector.
        attention_cell: a cell that the context enters, without noise of its own.
        input_feeding: a cell without noise of its own, or a causal layer, that y enters.
        reverse_source: whether the source is read from its end.
        bridge: `(carry of the encoder) -> carry of the decoder`, or of the cell after it if there
            is one, or -> None for its own initial carry; or a learned `Bridge`, such as
            `dense_bridge()`. None hands the carry on; then both must have the same structure.

    Returns:
        The `EncoderDecoder`.

    Raises:
        TypeError: A part is neither a Cell nor a Layer, `attention` is not a Score,
            `attention_cell` not a Cell, `bridge` neither a function nor a Bridge, `reverse_source`
            not a bool; or (in `encode`) the carry handed over has another structure or dtype than
            it should.
        ValueError: The decoder, the readout or `input_feeding` is not causal; there is an
            `attention_cell` or `input_feeding` without `attention`, or both; one of them draws
            noise or reads anything but one vector a step; or (in `encode`) the carry has other
            sizes, or a carry should pass from an encoder of packed sources that is not causal.

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
        ...     attention_cell=jr.gru(16),
        ...     bridge=lambda carry: carry[-1],
        ... )
        >>> params = model.init(jax.random.key(0), 30, 11)
        >>> model.teacher_forced(params, source, xs, source_mask=source != 0).outputs.shape
        (1, 7, 11)

        Two sources in one row, and what is written from each:

        >>> source, source_reset = jnp.array([[4, 2, 7, 5, 9]]), jnp.array([[1, 0, 0, 1, 0]])
        >>> xs, reset = jnp.array([[1, 3, 1, 6]]), jnp.array([[1, 0, 1, 0]])
        >>> rollout = model.teacher_forced(
        ...     params, source, xs, source_reset=source_reset, reset=reset
        ... )
        >>> print(jr.attention_weights(rollout)[0] > 0)
        [[ True  True  True False False]
         [ True  True  True False False]
         [False False False  True  True]
         [False False False  True  True]]
    """
    checks.boolean(reverse_source, "reverse_source")
    if bridge is not None and not isinstance(bridge, Bridge) and not callable(bridge):
        raise TypeError(f"bridge must be a function, a Bridge or None, got {bridge!r}.")
    if attention is not None and not isinstance(attention, Score):
        raise TypeError(f"attention must be a Score, such as dot_score(64); got {attention!r}.")
    reader = _Reader(as_layer(encoder, "encoder"), bool(reverse_source), bridge)
    parts = _causal(decoder, "decoder"), _causal(readout, "readout")
    if attention is None:
        if attention_cell is not None or input_feeding is not None:
            raise ValueError(
                "attention must be a Score for an attention_cell or input_feeding, got None."
            )
        return _assembled(reader, fixed_vector(*parts))
    if attention_cell is not None and input_feeding is not None:
        raise ValueError("input_feeding must be None where there is an attention_cell.")
    if attention_cell is not None:
        return _assembled(reader, attention_before_cell(*parts, attention, attention_cell))
    if input_feeding is not None:
        return _assembled(reader, attention_fed_back(*parts, attention, input_feeding))
    return _assembled(reader, attention_after_decoder(*parts, attention))


class _Reader(NamedTuple):
    """How a source is read, and what becomes of the carry after it."""

    layer: Layer
    reverse: bool
    bridge: Callable[[Any], Any] | Bridge | None


class _WholeFields(NamedTuple):
    reader: _Reader
    writer: Writer


class _Whole(ModelValue, _WholeFields):
    """Both parts as a value, so that parameters are compared with those of equal models."""

    def init(self, key: Any, num_source_inputs: int, num_inputs: int) -> EncoderDecoderParams:
        """The parameters of both parts, and of a bridge that has some."""
        (layer, _, bridge), writer = self
        encoder_key, decoder_key = jax.random.split(key)
        stack = writer.stack(1, layer.num_outputs(num_source_inputs))
        encoder = layer.init(encoder_key, num_source_inputs)
        params = EncoderDecoderParams(encoder, stack.init(decoder_key, num_inputs))
        if not isinstance(bridge, Bridge):
            return params
        carries = layer.initial_carry(encoder), _own_initial(writer, params)
        return params._replace(bridge=bridge.init(jax.random.fold_in(key, 2), *carries))


def _assembled(reader: _Reader, writer: Writer) -> EncoderDecoder:
    """The record, from how a source is read and how a target is written."""
    whole, without_source = _Whole(reader, writer), writer.stack(0, 1)

    def encode(params, source, *, mask=None, reset=None, key=None):
        source = checks.arrays(source, "source")
        check_params(whole, params, width_of(reader.layer, source), None)
        start = _start if reset is None else _packed_start
        return start(reader, writer, params, Steps(source, mask, reset), key)

    def decoder(carry):
        return _stack_for(writer, carry)

    def forced(
        params, source, xs, *, source_mask=None, source_reset=None, mask=None, reset=None, key=None
    ):
        check_pair(source, source_reset, xs, reset, "xs")
        encoder_key, decoder_key = split_key(key, 2)
        carry = encode(params, source, mask=source_mask, reset=source_reset, key=encoder_key)
        options = {"carry": carry, "mask": mask, "reset": reset, "key": decoder_key}
        return teacher_forced(decoder(carry), params.decoder, xs, **options)

    def written(
        params, source, prompt, num_steps, *, source_mask=None, source_reset=None, **choice
    ):
        check_pair(source, source_reset, prompt, choice.get("reset"), "prompt")
        carry = encode(params, source, mask=source_mask, reset=source_reset)
        return generate(decoder(carry), params.decoder, prompt, num_steps, carry=carry, **choice)

    def searched(params, source, start, *, source_mask=None, **search):
        check_rows(source, checks.array(start, "start")[..., None], "start")
        carry = encode(params, source, mask=source_mask)
        return beam_search(decoder(carry), params.decoder, carry, start, **search)

    def check_rows(source, xs, name):
        wanted, came = _rows(reader.layer, source, "source"), _rows(without_source, xs, name)
        if came != wanted:
            raise ValueError(f"{name} must have the batch axes {wanted} of source, got {came}.")

    def check_pair(source, source_reset, xs, reset, name):
        check_rows(source, xs, name)
        if (source_reset is None) != (reset is None):
            given = "reset" if source_reset is None else "source_reset"
            raise ValueError(
                "source_reset and reset must be given together, because sequence k of a row is "
                f"written from source k of that row; got {given} alone."
            )

    bridge_roles = reader.bridge.roles if isinstance(reader.bridge, Bridge) else None
    roles = EncoderDecoderParams(reader.layer.roles, without_source.roles, bridge_roles)
    return EncoderDecoder(whole.init, encode, decoder, forced, written, searched, roles)


def _start(reader, writer, params, steps, key):
    """What the stack starts from, where a row is one source."""
    batch_shape = _rows(reader.layer, steps.xs, "source")
    rollout = unroll(
        reader.layer, params.encoder, steps.xs, mask=steps.mask, reverse=reader.reverse, key=key
    )
    initial = writer.stack(0, 1).initial_carry(params.decoder, batch_shape)
    own, _ = writer.parts.found(initial)
    bridge = _bridge(reader, writer, params, len(batch_shape))
    start = received(rollout.carry, bridge, own, writer.receiver)
    mask = steps.mask if rollout.flags is None else rollout.flags.mask
    memory = _memory(writer, params, rollout.outputs, mask)
    return writer.parts.placed(initial, start, memory)


def _packed_start(reader, writer, params, steps, key):
    """What the packed stack starts from, where a row is several sources."""
    batch_shape = _rows(reader.layer, steps.xs, "source")
    hands_on = _hands_on(reader, params.encoder, batch_shape)
    read = read_sources(reader.layer, params.encoder, steps, reader.reverse, hands_on, key)
    many = *batch_shape, read.index.shape[-1] + 1
    initial, after_each = (
        writer.stack(0, 1).initial_carry(params.decoder, shape) for shape in (batch_shape, many)
    )
    starts, _ = writer.parts.found(after_each)
    if hands_on:
        bridge = _bridge(reader, writer, params, len(batch_shape), of_many=True)
        starts = received(read.carries, bridge, starts, writer.receiver)
    return PackedCarry(
        index=jnp.full(batch_shape, -1, jnp.int32),
        source_index=read.index,
        starts=starts,
        memory=_memory(writer, params, read.outputs, read.mask),
        carry=without_memory(initial, writer.parts),
    )


def _bridge(reader, writer, params, num_batch_axes, of_many=False):
    """`carry -> carry`, or None; for many carries of a row, which have an axis after the batch."""
    if isinstance(reader.bridge, Bridge):
        initial = _own_initial(writer, params)
        return batched(reader.bridge, params.bridge, initial, num_batch_axes + of_many)
    if not of_many or reader.bridge is None:
        return reader.bridge
    return jax.vmap(reader.bridge, in_axes=num_batch_axes, out_axes=num_batch_axes)


def _own_initial(writer, params):
    """The initial carry of what starts from the encoder's, without batch axes."""
    return writer.parts.found(writer.stack(0, 1).initial_carry(params.decoder))[0]


def _hands_on(reader, params, batch_shape):
    """Whether the receiver is given the encoder's carry after each source."""
    bridge = None if isinstance(reader.bridge, Bridge) else reader.bridge
    if bridge and bridge(reader.layer.initial_carry(params, batch_shape)) is None:
        return False
    if not reader.layer.causal:
        raise ValueError(
            "encoder must be causal for resets in the source, unless bridge gives None: a layer "
            "that reads a row from both ends has no carry after each of its sources."
        )
    return True


def _stack_for(writer, carry):
    """The layer that runs from a carry that `encode` made."""
    is_packed = isinstance(carry, PackedCarry)
    own = carry.carry if is_packed else carry
    num_parts = 2 if writer.score is None else 3
    if type(own) is not tuple or len(own) != num_parts:
        raise TypeError(
            f"carry must be the tuple of {num_parts} that encode makes, got {_kind(own)}."
        )
    if writer.score is None:
        stack = writer.stack(0, 1)
    else:
        stack = writer.stack(*_memory_in(writer, carry, is_packed).values.shape[-2:])
    return packed_stack(stack, writer.parts, carry.source_index.shape[-1]) if is_packed else stack


def _memory_in(writer, carry, is_packed):
    """The memory of the source; TypeError where a model of another kind made the carry."""
    try:
        memory = carry.memory if is_packed else writer.parts.found(carry)[1]
    except (IndexError, TypeError):
        memory = None
    if not isinstance(memory, Memory):
        raise TypeError(
            "carry must be one that encode of this model makes, with the Memory of a source, got "
            f"{_kind(carry.memory if is_packed else carry[1])} in its place."
        )
    return memory


def _memory(writer, params, outputs, mask):
    if writer.score is None:
        return None
    return source_memory(writer.score, writer.parts.found(params.decoder)[1], outputs, mask)


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
