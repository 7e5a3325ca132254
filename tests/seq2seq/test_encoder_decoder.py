"""Encoder and decoder against loops over rows: a fixed vector, and attention behind the cell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.encoder_decoders import (
    BATCH,
    KINDS,
    LENGTHS,
    MASK,
    SOURCE_MASK,
    D,
    H,
    S,
    T,
    V,
    loop,
    model,
    setting,
    stepper,
)

import jaxrnn as jr


@KINDS
def test_teacher_forcing_is_a_loop_over_unpadded_rows(x64, kind, reverse_source):
    built, params, source, xs = setting(kind, reverse_source)
    rollout = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK, mask=MASK)
    arrays = jax.device_get(params)
    for row in range(BATCH):
        length, num_real = LENGTHS[row], MASK[row].sum()
        logits, maps, _ = loop(
            kind, arrays, source[row, :length], xs[row, :num_real], reverse_source
        )
        np.testing.assert_allclose(rollout.outputs[row, :num_real], logits, rtol=1e-10, atol=1e-12)
        assert not rollout.outputs[row, num_real:].any()
        if kind != "fixed":
            weights = np.asarray(jr.attention_weights(rollout)[row])
            assert not weights[:, length:].any() and not weights[num_real:].any()
            if length:
                np.testing.assert_allclose(weights[:num_real, :length], maps, rtol=1e-10)


@KINDS
def test_greedy_writing_is_a_loop_over_unpadded_rows(x64, kind, reverse_source):
    built, params, source, xs = setting(kind, reverse_source)
    got = built.generate(params, source, xs[:, :1], 5, source_mask=SOURCE_MASK)
    arrays = jax.device_get(params)
    rows = [
        loop(kind, arrays, source[row, : LENGTHS[row]], xs[row, :1], reverse_source, 5)[2]
        for row in range(BATCH)
    ]
    np.testing.assert_array_equal(got.tokens, rows)
    stop = rows[0][2]
    ended = built.generate(
        params, source, xs[:, :1], 5, source_mask=SOURCE_MASK, stop_token=stop, pad=-1
    )
    ends = [row.index(stop) + 1 if stop in row else 5 for row in rows]
    np.testing.assert_array_equal(ended.mask.sum(-1), ends)


def test_gradients_are_finite_and_those_of_the_rows_apart(x64):
    built, params, source, xs = setting("additive")

    def loss(params, source, xs, source_mask, mask):
        rollout = built.teacher_forced(params, source, xs, source_mask=source_mask, mask=mask)
        return (rollout.outputs**2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    of_params, of_source = gradient(params, source, xs, SOURCE_MASK, MASK)
    assert (np.asarray(of_source != 0).all(-1) == SOURCE_MASK).all()
    clean = gradient(
        params, np.nan_to_num(source) + 7 * ~SOURCE_MASK[..., None], xs, SOURCE_MASK, MASK
    )
    jax.tree.map(np.testing.assert_array_equal, (of_params, of_source), clean)

    def apart(params):
        rows = [
            loss(params, source[row, :length][None], xs[row, :real][None], None, None)
            for row, (length, real) in enumerate(zip(LENGTHS, MASK.sum(1), strict=True))
            if length
        ]
        return sum(rows) + loss(params, source[2:], xs[2:], SOURCE_MASK[2:], MASK[2:])

    want = jax.jit(jax.grad(apart))(params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11), of_params, want
    )


def test_streaming_and_chunks_agree_with_teacher_forcing(x64):
    built, params, source, xs = setting("additive")
    start = built.encode(params, source, mask=SOURCE_MASK)
    layer = built.decoder(start)
    assert layer == built.decoder(start)
    whole = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK, mask=MASK)
    step, carry, ys = stepper(layer), start, []
    for t in range(T):
        carry, y = step(params.decoder, carry, xs[:, t], mask=MASK[:, t])
        ys.append(y)
    first = jr.unroll(layer, params.decoder, xs[:, :1], carry=start, mask=MASK[:, :1])
    rest = jr.unroll(layer, params.decoder, xs[:, 1:], carry=first.carry, mask=MASK[:, 1:])
    chunked = jnp.concatenate([first.outputs, rest.outputs], axis=1)
    for got in ((carry, jnp.stack(ys, 1)), (rest.carry, chunked)):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), got, whole[:2]
        )
    jax.tree.map(np.testing.assert_array_equal, carry[1], start[1])


def test_one_row_needs_no_batch_axis(x64):
    built, params, source, xs = setting("dot")
    batched = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK)
    for row in (0, 2):
        one = built.teacher_forced(params, source[row], xs[row], source_mask=SOURCE_MASK[row])
        np.testing.assert_allclose(one.outputs, batched.outputs[row], rtol=1e-10)


def test_a_free_run_of_numbers_from_a_source():
    built = jr.encoder_decoder(jr.lstm(H), jr.lstm(H), jr.dense(D), attention=jr.dot_score(3))
    params = built.init(jax.random.key(0), D, D)
    carry = built.encode(params, jnp.ones((2, S, D)))
    layer = built.decoder(carry)
    run = jr.free_run(layer, params.decoder, jnp.zeros((2, 1, D)), 7, carry=carry)
    assert run.outputs.shape == (2, 7, D)
    forced = built.teacher_forced(
        params, jnp.ones((2, S, D)), jnp.concatenate([jnp.zeros((2, 1, D)), run.xs[:, :-1]], 1)
    )
    np.testing.assert_allclose(forced.outputs, run.outputs, rtol=1e-5)


def test_a_bridge_joins_what_does_not_fit():
    encoder = jr.bidirectional(jr.gru(2), jr.gru(2))

    def join(carry):
        return jr.cells.GRUCarry(jnp.concatenate([carry.forward.h, carry.backward.h], -1))

    for bridge in (join, lambda carry: None):
        built = jr.encoder_decoder(
            encoder, jr.gru(4), jr.dense(V), attention=jr.additive_score(3), bridge=bridge
        )
        params = built.init(jax.random.key(0), D, D)
        source = jnp.ones((2, S, D))
        start = built.encode(params, source)[0]
        assert (start.h != 0).any() == (bridge is join)
        assert built.teacher_forced(params, source, source).outputs.shape == (2, S, V)


def test_noise_needs_its_key_and_each_part_draws_its_own():
    built = jr.encoder_decoder(
        jr.serial(jr.dropout(0.5), jr.gru(H)),
        jr.serial(jr.dropout(0.5), jr.gru(H)),
        jr.dense(V),
        bridge=lambda carry: carry,
    )
    params = built.init(jax.random.key(0), D, D)
    xs = jnp.ones((2, S, D))
    quiet = built.teacher_forced(params, xs, xs).outputs
    loud = built.teacher_forced(params, xs, xs, key=jax.random.key(1)).outputs
    assert (quiet[0] == quiet[1]).all() and (loud[0] != loud[1]).any()


def test_one_compilation_for_one_size_of_source():
    traces = []

    def watch(params, carry, steps, key):
        traces.append(steps)
        return jr.Rollout(carry, steps.xs)

    built = jr.encoder_decoder(
        jr.gru(H),
        jr.serial(jr.gru(H), jr.dropout(0.0)._replace(unroll=watch)),
        jr.dense(V),
        attention=jr.dot_score(3),
        bridge=lambda carry: (carry, ()),
    )
    params = built.init(jax.random.key(0), D, D)
    xs = jnp.ones((2, S, D))
    for scale in (1.0, 2.0):
        built.teacher_forced(params, scale * xs, xs)
    assert len(traces) == 1
    built.teacher_forced(params, xs[:, :3], xs)
    assert len(traces) == 2


@KINDS
def test_models_made_twice_write_by_equal_layers(x64, kind, reverse_source):
    built, params, source, _ = setting(kind, reverse_source)
    again = model.__wrapped__(kind, reverse_source)
    for reset in (None, np.zeros_like(SOURCE_MASK)):
        carry = built.encode(params, source, mask=SOURCE_MASK, reset=reset)
        layers = built.decoder(carry), again.decoder(carry)
        assert layers[0] == layers[1] and hash(layers[0]) == hash(layers[1])


def test_errors_name_the_argument():
    cell, readout = jr.gru(H), jr.dense(V)
    both = jr.bidirectional(cell, cell)
    with pytest.raises(TypeError, match="^encoder must be a Cell or a Layer"):
        jr.encoder_decoder(3, cell, readout)
    with pytest.raises(ValueError, match="^decoder must be causal"):
        jr.encoder_decoder(cell, both, readout)
    with pytest.raises(ValueError, match="^readout must be causal"):
        jr.encoder_decoder(cell, cell, both)
    with pytest.raises(TypeError, match="^attention must be a Score"):
        jr.encoder_decoder(cell, cell, readout, attention="dot")
    with pytest.raises(TypeError, match="^bridge must be a function"):
        jr.encoder_decoder(cell, cell, readout, bridge=3)
    with pytest.raises(TypeError, match="^attention_cell must be a Cell or None"):
        jr.encoder_decoder(cell, cell, readout, attention=jr.dot_score(3), attention_cell=readout)
    noisy, matrix = jr.recurrent_dropout(cell, 0.5), cell._replace(num_feature_axes=2)
    for wrong, message in ((noisy, "draw no noise"), (matrix, "read one vector a step")):
        with pytest.raises(ValueError, match=f"^attention_cell must {message}"):
            jr.encoder_decoder(cell, cell, readout, attention=jr.dot_score(3), attention_cell=wrong)
    with pytest.raises(ValueError, match="^attention must be a Score for an attention_cell"):
        jr.encoder_decoder(cell, cell, readout, attention_cell=cell)
    with pytest.raises(TypeError, match="^reverse_source must be True or False"):
        jr.encoder_decoder(cell, cell, readout, reverse_source=1)


@pytest.mark.parametrize(
    ("decoder", "bridge", "error", "message"),
    [
        (
            jr.gru(3),
            None,
            ValueError,
            r"^the last carry of encoder.*\.h must have the shape \(2, 3\)",
        ),
        (jr.lstm(H), None, TypeError, "^the last carry of encoder.*must have the structure"),
        (jr.gru(3), lambda carry: carry, ValueError, "^the carry that bridge gives"),
    ],
)
def test_what_passes_to_the_decoder_is_checked(decoder, bridge, error, message):
    built = jr.encoder_decoder(jr.gru(H), decoder, jr.dense(V), bridge=bridge)
    params = built.init(jax.random.key(0), D, D)
    with pytest.raises(error, match=message):
        built.encode(params, jnp.ones((2, S, D)))


def test_rows_of_the_source_are_rows_of_the_target():
    built = jr.encoder_decoder(jr.gru(H), jr.gru(H), jr.dense(V))
    params = built.init(jax.random.key(0), D, D)
    with pytest.raises(
        ValueError, match=r"^xs must have the batch axes \(2,\) of source, got \(3,"
    ):
        built.teacher_forced(params, jnp.ones((2, S, D)), jnp.ones((3, T, D)))
