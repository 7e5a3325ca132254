"""Encoder and decoder with a cell that attends, and carries that a decoder does not take."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.encoder_decoders import (
    BATCH,
    INSIDE,
    LENGTHS,
    MASK,
    SOURCE_MASK,
    WORDS,
    D,
    H,
    S,
    T,
    V,
    attending,
    attending_loop,
    bahdanau_of_words,
    setting,
    stepper,
)

import jaxrnn as jr


@pytest.mark.parametrize("kind", INSIDE)
def test_the_context_enters_the_recurrence(x64, kind):
    built, params, source, xs = attending(kind)
    rollout = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK, mask=MASK)
    got = built.generate(params, source, xs[:, :1], 5, source_mask=SOURCE_MASK)
    weights, arrays = np.asarray(jr.attention_weights(rollout)), jax.device_get(params)
    for row in range(BATCH):
        length, num_real = LENGTHS[row], MASK[row].sum()
        seen = source[row, :length]
        logits, maps, _ = attending_loop(kind, arrays, seen, xs[row, :num_real])
        np.testing.assert_allclose(rollout.outputs[row, :num_real], logits, rtol=1e-10, atol=1e-12)
        assert not weights[row, :, length:].any() and not weights[row, num_real:].any()
        if length:
            np.testing.assert_allclose(weights[row, :num_real, :length], maps, rtol=1e-10)
        _, _, written = attending_loop(kind, arrays, seen, xs[row, :1], 5)
        np.testing.assert_array_equal(got.tokens[row], written[1:])


@pytest.mark.parametrize("kind", INSIDE)
def test_padding_gets_no_gradient_and_steps_are_the_whole(x64, kind):
    built, params, source, xs = attending(kind)

    def loss(params, source):
        rollout = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK, mask=MASK)
        return (rollout.outputs**2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    of_params, of_source = gradient(params, source)
    assert (np.asarray(of_source != 0).all(-1) == SOURCE_MASK).all()
    clean = gradient(params, np.nan_to_num(source) + 7 * ~SOURCE_MASK[..., None])
    jax.tree.map(np.testing.assert_array_equal, (of_params, of_source), clean)

    whole = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK, mask=MASK)
    carry = built.encode(params, source, mask=SOURCE_MASK)
    layer, ys = built.decoder(carry), []
    for t in range(T):
        carry, y = stepper(layer)(params.decoder, carry, xs[:, t], mask=MASK[:, t])
        ys.append(y)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12),
        (carry, jnp.stack(ys, 1)),
        whole[:2],
    )


@pytest.mark.parametrize(
    ("bridge", "error", "message"),
    [
        (
            None,
            TypeError,
            "^the last carry of encoder, which attention_cell starts from without a bridge "
            r"\(bridge=lambda carry: carry\[-1\] takes that of its last layer\), must have the str",
        ),
        (
            lambda carry: carry,
            TypeError,
            "^the carry that bridge gives to attention_cell must have the structure",
        ),
        (
            lambda carry: jax.tree.map(lambda leaf: leaf[..., 1:], carry[-1]),
            ValueError,
            r"^the carry that bridge gives to attention_cell\.h must have the shape \(2, 4\)",
        ),
    ],
)
def test_what_passes_to_the_attention_cell_is_checked(bridge, error, message):
    built, params = bahdanau_of_words(bridge)
    with pytest.raises(error, match=message):
        jax.eval_shape(built.encode, params, jnp.zeros((2, S), int))


@pytest.mark.parametrize("encoder", [WORDS, jr.embed(5)])
def test_no_bridge_is_hinted_at_that_would_not_fit(encoder):
    built = jr.encoder_decoder(encoder, jr.lstm(H), jr.dense(V))
    params = built.init(jax.random.key(0), V, D)
    with pytest.raises(TypeError, match="^the last carry of encoder, which decoder .* a bridge, "):
        jax.eval_shape(built.encode, params, jnp.zeros((2, S), int))


def test_a_stateful_decoder_in_front_of_the_attention_cell_starts_from_its_own_carry():
    decoder = jr.serial(jr.embed(3), jr.lstm(2))
    built, params = bahdanau_of_words(lambda carry: carry[-1], decoder)
    source, xs = jnp.array([[1, 2, 3, 0, 4], [5, 5, 0, 0, 0]]), jnp.array([[1, 2, 3], [4, 5, 0]])
    start = built.encode(params, source)
    own, attends, _ = start
    encoded = jr.unroll(WORDS, params.encoder, source)
    jax.tree.map(np.testing.assert_array_equal, attends.cell, encoded.carry[-1])
    np.testing.assert_array_equal(attends.memory.values, encoded.outputs)
    jax.tree.map(np.testing.assert_array_equal, own, decoder.initial_carry(params.decoder[0], (2,)))
    # The parts one after another are the whole.
    looking = jr.attention_cell(jr.gru(H), jr.additive_score(3), S, H)
    read = jr.unroll(decoder, params.decoder[0], xs).outputs
    seen = jr.unroll(looking, params.decoder[1], read, carry=attends).outputs
    want = jr.unroll(jr.dense(V), params.decoder[2], seen).outputs
    got = built.teacher_forced(params, source, xs)
    np.testing.assert_allclose(got.outputs, want, rtol=1e-5, atol=1e-6)
    assert got.carry[0][1].c.any()


@pytest.mark.parametrize("kind", ["dot", *INSIDE])
def test_a_source_without_a_step_is_one_without_a_real_step(x64, kind):
    built, params, source, xs = attending(kind) if kind in INSIDE else setting(kind)
    none = built.teacher_forced(params, source[:, :0], xs, mask=MASK)
    hidden = np.zeros_like(SOURCE_MASK)
    want = built.teacher_forced(params, source, xs, source_mask=hidden, mask=MASK)
    np.testing.assert_array_equal(none.outputs, want.outputs)
    assert none.outputs.any() and jr.attention_weights(none).shape == (BATCH, T, 0)


@pytest.mark.parametrize("kind", ["fixed", "dot", *INSIDE])
def test_decoder_refuses_what_is_no_carry(x64, kind):
    built, params, *_ = attending(kind) if kind in INSIDE else setting(kind)
    for wrong in ((), None, params, {"memory": 1}, (1, 2, 3, 4)):
        with pytest.raises(TypeError, match="^carry must be the tuple of [23] that encode makes"):
            built.decoder(wrong)
    if kind != "fixed":
        for wrong in (params.decoder, (1, (), ()), (1, 2, 3)):
            with pytest.raises(TypeError, match="^carry must be one that encode of this model"):
                built.decoder(wrong)


@pytest.mark.parametrize("attention_cell", [None, jr.gru(H)])
def test_a_decoder_that_attends_itself_keeps_its_own_source(attention_cell):
    score = jr.dot_score(3)
    built = jr.encoder_decoder(
        jr.gru(H),
        jr.attention_cell(jr.gru(H), score, S + 2, 2),
        jr.dense(V),
        attention=jr.additive_score(3),
        attention_cell=attention_cell,
        bridge=lambda carry: carry if attention_cell else None,
    )
    params, xs = built.init(jax.random.key(0), D, D), jnp.ones((2, S, D))
    own, ours, _ = jax.eval_shape(built.teacher_forced, params, xs, xs).info
    assert own.weights.shape == (S, 2, S + 2) and ours.weights.shape == (S, 2, S)


def test_what_is_written_is_what_teacher_forcing_says_of_it(x64):
    built, params, source, xs = attending("fed")
    written = built.generate(params, source, xs[:, :1], 5, source_mask=SOURCE_MASK).tokens
    read = jnp.concatenate([xs[:, :1], written[:, :-1]], axis=1)
    forced = built.teacher_forced(params, source, read, source_mask=SOURCE_MASK)
    np.testing.assert_array_equal(forced.outputs.argmax(-1), written)


def test_a_stack_is_fed_and_starts_from_the_carry_of_a_stack():
    stack = jr.serial(jr.lstm(3), jr.lstm(H))
    built = jr.encoder_decoder(
        stack, jr.embed(2), jr.dense(V), attention=jr.dot_score(3), input_feeding=stack
    )
    params = built.init(jax.random.key(0), D, V)
    source, xs = jnp.ones((2, 5, D)), jnp.ones((2, 4), int)
    carry = built.encode(params, source)
    encoded = jr.unroll(stack, params.encoder, source)
    jax.tree.map(np.testing.assert_array_equal, carry[1].cell, encoded.carry)
    assert built.teacher_forced(params, source, xs).outputs.shape == (2, 4, V)


def test_errors_name_what_attends():
    cell, readout, score = jr.gru(H), jr.dense(V), jr.dot_score(3)
    make = functools.partial(jr.encoder_decoder, cell, cell, readout)
    with pytest.raises(ValueError, match="^attention must be a Score for .* input_feeding, got No"):
        make(input_feeding=cell)
    with pytest.raises(ValueError, match="^input_feeding must be None where there is an attention"):
        make(attention=score, attention_cell=cell, input_feeding=cell)
    with pytest.raises(TypeError, match="^input_feeding must be a Cell or a Layer, got bool"):
        make(attention=score, input_feeding=True)
    with pytest.raises(ValueError, match="^input_feeding must be causal"):
        make(attention=score, input_feeding=jr.bidirectional(cell))
    with pytest.raises(ValueError, match="^input_feeding must draw no noise"):
        make(attention=score, input_feeding=jr.recurrent_dropout(cell, 0.5))
    built = make(attention=score, input_feeding=jr.lstm(H))
    params = built.init(jax.random.key(0), D, D)
    with pytest.raises(TypeError, match="^the last carry of encoder, which input_feeding starts"):
        built.encode(params, jnp.ones((2, 5, D)))
