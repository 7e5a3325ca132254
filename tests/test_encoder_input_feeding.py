"""Encoder and decoder with input feeding, against loops over unpadded rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from translators import (
    BATCH,
    LENGTHS,
    MASK,
    SCORES,
    SOURCE_MASK,
    STEP,
    D,
    H,
    T,
    V,
    f64,
    scores_of,
    setting,
    softmax,
    stepper,
)

import jaxrnn as jr


@functools.cache
def model():
    return jr.encoder_decoder(
        jr.gru(H, **f64),
        jr.embed(3, **f64),
        jr.dense(V, **f64),
        attention=SCORES["dot"],
        input_feeding=jr.gru(H, **f64),
    )


@functools.cache
def fed_setting():
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: 1.5 * leaf, model().init(jax.random.key(0), D, V))
    return model(), params, *setting("dot")[2:]


def loop(params, source, xs, num_written=0):
    """One unpadded row, step after step: logits, attention weights, and the tokens read."""
    embedding, feeding, readout = params.decoder
    carry, memory = jr.gru(H, **f64).initial_carry(params.encoder), []
    for x in source:
        carry, m = STEP(params.encoder, carry, x)
        memory.append(np.asarray(m))
    fed, logits, maps, xs = np.zeros(H), [], [], list(xs)
    for t in range(len(xs) + num_written):
        if t == len(xs):
            xs.append(int(np.argmax(logits[-1])))
        carry, d = STEP(feeding.cell, carry, np.concatenate([embedding.table[xs[t]], fed]))
        d, context, weights = np.asarray(d), np.zeros(H), []
        if memory:
            weights = softmax(scores_of("dot", feeding.score, d, memory))
            context = sum(w * m for w, m in zip(weights, memory, strict=True))
        fed = np.tanh(np.concatenate([context, d]) @ feeding.kernel)
        logits.append(fed @ readout.kernel + readout.bias)
        maps.append(weights)
    return np.array(logits), maps, xs


def test_teacher_forcing_and_writing_are_loops_over_unpadded_rows(x64):
    built, params, source, xs = fed_setting()
    rollout = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK, mask=MASK)
    got = built.generate(params, source, xs[:, :1], 5, source_mask=SOURCE_MASK)
    weights, arrays = np.asarray(jr.attention_weights(rollout)), jax.device_get(params)
    for row in range(BATCH):
        length, num_real = LENGTHS[row], MASK[row].sum()
        seen = source[row, :length]
        logits, maps, _ = loop(arrays, seen, xs[row, :num_real])
        np.testing.assert_allclose(rollout.outputs[row, :num_real], logits, rtol=1e-10, atol=1e-12)
        assert not weights[row, :, length:].any() and not weights[row, num_real:].any()
        if length:
            np.testing.assert_allclose(weights[row, :num_real, :length], maps, rtol=1e-10)
        _, _, written = loop(arrays, seen, xs[row, :1], 5)
        np.testing.assert_array_equal(got.tokens[row], written[1:])


def test_what_is_written_is_what_teacher_forcing_says_of_it(x64):
    built, params, source, xs = fed_setting()
    written = built.generate(params, source, xs[:, :1], 5, source_mask=SOURCE_MASK).tokens
    read = jnp.concatenate([xs[:, :1], written[:, :-1]], axis=1)
    forced = built.teacher_forced(params, source, read, source_mask=SOURCE_MASK)
    np.testing.assert_array_equal(forced.outputs.argmax(-1), written)


def test_it_streams_and_gives_padding_no_gradient(x64):
    built, params, source, xs = fed_setting()

    @functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    def gradient(params, source):
        rollout = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK, mask=MASK)
        return (rollout.outputs**2).sum(), rollout

    (_, whole), (of_params, of_source) = jax.jit(gradient)(params, source)
    assert (np.asarray(of_source != 0).all(-1) == SOURCE_MASK).all()
    assert jax.tree.all(jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), of_params))
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


def test_a_source_without_a_step_is_one_without_a_real_step(x64):
    built, params, source, xs = fed_setting()
    none = built.teacher_forced(params, source[:, :0], xs)
    hidden = np.zeros_like(SOURCE_MASK)
    want = built.teacher_forced(params, source, xs, source_mask=hidden)
    np.testing.assert_array_equal(none.outputs, want.outputs)
    assert none.outputs.any() and jr.attention_weights(none).shape == (BATCH, T, 0)


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


def test_errors_name_the_argument():
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
