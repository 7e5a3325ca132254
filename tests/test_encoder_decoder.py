import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, V, S, T, BATCH = 2, 4, 6, 5, 4, 3
LENGTHS = np.array([5, 2, 0])
SOURCE_MASK = np.arange(S) < LENGTHS[:, None]
MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]], bool)
SCORES = {
    "fixed": None,
    "dot": jr.dot_score(3, param_dtype=jnp.float64),
    "additive": jr.additive_score(3, param_dtype=jnp.float64),
}
f64 = {"param_dtype": jnp.float64}


@functools.cache
def model(kind, reverse_source=False):
    return jr.encoder_decoder(
        jr.gru(H, **f64),
        jr.serial(jr.embed(3, **f64), jr.gru(H, **f64)),
        jr.dense(V, **f64),
        attention=SCORES[kind],
        reverse_source=reverse_source,
        bridge=lambda carry: ((), carry),
    )


@functools.cache
def setting(kind, reverse_source=False):
    """The model, its parameters, sources with NaN in their padding, and targets."""
    with jax.enable_x64(True):
        built = model(kind, reverse_source)
        params = jax.tree.map(lambda leaf: 1.5 * leaf, built.init(jax.random.key(0), D, V))
    generator = np.random.default_rng(0)
    source = np.where(SOURCE_MASK[..., None], generator.standard_normal((BATCH, S, D)), np.nan)
    return built, params, source, generator.integers(0, V, (BATCH, T))


@functools.cache
def stepper(cell_or_layer):
    return jax.jit(functools.partial(jr.step, cell_or_layer))


def softmax(scores):
    weights = np.exp(scores - np.max(scores))
    return weights / weights.sum()


def scores_of(kind, params, query, memory):
    if kind == "dot":
        return [
            (query @ params.query_kernel) @ (m @ params.key_kernel) / np.sqrt(3) for m in memory
        ]
    hidden = [query @ params.query_kernel + m @ params.key_kernel + params.bias for m in memory]
    return [np.tanh(h) @ params.score_kernel for h in hidden]


def loop(kind, params, source, xs, reverse_source=False, num_written=0):
    """One unpadded row, step after step: logits, attention weights, tokens written greedily."""
    cell, embed = jr.gru(H, **f64), params.decoder[0][0].table
    carry, memory = cell.initial_carry(params.encoder), []
    for x in source[::-1] if reverse_source else source:
        carry, m = STEP(params.encoder, carry, x)
        memory.append(np.asarray(m))
    memory = memory[::-1] if reverse_source else memory
    logits, maps, tokens, xs = [], [], [], list(xs)
    for t in range(len(xs) + num_written):
        if t >= len(xs):
            tokens.append(int(np.argmax(logits[-1])))
        token = xs[t] if t < len(xs) else tokens[-1]
        carry, d = STEP(params.decoder[0][1], carry, embed[token])
        d = np.asarray(d)
        if kind != "fixed":
            weights = softmax(scores_of(kind, params.decoder[1], d, memory)) if memory else []
            context = sum((w * m for w, m in zip(weights, memory, strict=True)), np.zeros(H))
            d = np.concatenate([d, context])
            maps.append(weights)
        logits.append(d @ params.decoder[-1].kernel + params.decoder[-1].bias)
    return np.array(logits), maps, tokens


STEP = jax.jit(functools.partial(jr.step, jr.gru(H, **f64)))
KINDS = pytest.mark.parametrize(
    ("kind", "reverse_source"),
    [("fixed", False), ("fixed", True), ("dot", False), ("additive", True)],
)


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
    ended = built.generate(params, source, xs[:, :1], 5, source_mask=SOURCE_MASK, stop=stop, pad=-1)
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


@functools.cache
def bahdanau():
    built = jr.encoder_decoder(
        jr.gru(H, **f64),
        jr.embed(3, **f64),
        jr.dense(V, **f64),
        attention=SCORES["additive"],
        attending_cell=jr.gru(H, **f64),
    )
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: 1.5 * leaf, built.init(jax.random.key(0), D, V))
    return built, params, *setting("additive")[2:]


def bahdanau_loop(params, source, xs, num_written=0):
    """One unpadded row: the last state looks, and the context is read with the token."""
    embedding, attends, readout = params.decoder
    carry, memory = jr.gru(H, **f64).initial_carry(params.encoder), []
    for x in source:
        carry, m = STEP(params.encoder, carry, x)
        memory.append(np.asarray(m))
    logits, maps, xs = [], [], list(xs)
    for t in range(len(xs) + num_written):
        if t == len(xs):
            xs.append(int(np.argmax(logits[-1])))
        query, context, weights = np.asarray(carry.h), np.zeros(H), []
        if memory:
            weights = softmax(scores_of("additive", attends.score, query, memory))
            context = sum(w * m for w, m in zip(weights, memory, strict=True))
        read = np.concatenate([embedding.table[xs[t]], context])
        carry, d = STEP(attends.cell, carry, read)
        logits.append(np.concatenate([d, context]) @ readout.kernel + readout.bias)
        maps.append(weights)
    return np.array(logits), maps, xs


def test_in_bahdanau_order_the_context_enters_the_recurrence(x64):
    built, params, source, xs = bahdanau()
    rollout = built.teacher_forced(params, source, xs, source_mask=SOURCE_MASK, mask=MASK)
    got = built.generate(params, source, xs[:, :1], 5, source_mask=SOURCE_MASK)
    weights, arrays = np.asarray(jr.attention_weights(rollout)), jax.device_get(params)
    for row in range(BATCH):
        length, num_real = LENGTHS[row], MASK[row].sum()
        seen = source[row, :length]
        logits, maps, _ = bahdanau_loop(arrays, seen, xs[row, :num_real])
        np.testing.assert_allclose(rollout.outputs[row, :num_real], logits, rtol=1e-10, atol=1e-12)
        assert not weights[row, :, length:].any() and not weights[row, num_real:].any()
        if length:
            np.testing.assert_allclose(weights[row, :num_real, :length], maps, rtol=1e-10)
        _, _, written = bahdanau_loop(arrays, seen, xs[row, :1], 5)
        np.testing.assert_array_equal(got.tokens[row], written[1:])


def test_bahdanau_order_gives_padding_no_gradient_and_streams(x64):
    built, params, source, xs = bahdanau()

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


def test_streaming_and_chunks_agree_with_teacher_forcing(x64):
    built, params, source, xs = setting("additive")
    start = built.encode(params, source, mask=SOURCE_MASK)
    layer = built.decoder(start)
    assert layer is built.decoder(start)
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
        return jr.GRUCarry(jnp.concatenate([carry.forward.h, carry.backward.h], -1))

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

    def watch(params, carry, xs, mask, reset, key):
        traces.append(xs)
        return jr.Rollout(carry, xs)

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
    with pytest.raises(TypeError, match="^attending_cell must be a Cell or None"):
        jr.encoder_decoder(cell, cell, readout, attention=jr.dot_score(3), attending_cell=readout)
    noisy, matrix = jr.recurrent_dropout(cell, 0.5), cell._replace(num_feature_axes=2)
    for wrong, message in ((noisy, "draw no noise"), (matrix, "read one vector a step")):
        with pytest.raises(ValueError, match=f"^attending_cell must {message}"):
            jr.encoder_decoder(cell, cell, readout, attention=jr.dot_score(3), attending_cell=wrong)
    with pytest.raises(ValueError, match="^attention must be a Score for an attending_cell"):
        jr.encoder_decoder(cell, cell, readout, attending_cell=cell)
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


WORDS = jr.serial(jr.embed(5), jr.gru(H))


def bahdanau_of_words(bridge, decoder=None):
    built = jr.encoder_decoder(
        WORDS,
        decoder or jr.embed(5),
        jr.dense(V),
        attention=jr.additive_score(3),
        attending_cell=jr.gru(H),
        bridge=bridge,
    )
    return built, built.init(jax.random.key(0), V, V)


@pytest.mark.parametrize(
    ("bridge", "error", "message"),
    [
        (
            None,
            TypeError,
            "^the last carry of encoder, which attending_cell starts from without a bridge "
            r"\(bridge=lambda carry: carry\[-1\] takes that of its last layer\), must have the str",
        ),
        (
            lambda carry: carry,
            TypeError,
            "^the carry that bridge gives to attending_cell must have the structure",
        ),
        (
            lambda carry: jax.tree.map(lambda leaf: leaf[..., 1:], carry[-1]),
            ValueError,
            r"^the carry that bridge gives to attending_cell\.h must have the shape \(2, 4\)",
        ),
    ],
)
def test_what_passes_to_the_attending_cell_is_checked(bridge, error, message):
    built, params = bahdanau_of_words(bridge)
    with pytest.raises(error, match=message):
        jax.eval_shape(built.encode, params, jnp.zeros((2, S), int))


@pytest.mark.parametrize("encoder", [WORDS, jr.embed(5)])
def test_no_bridge_is_hinted_at_that_would_not_fit(encoder):
    built = jr.encoder_decoder(encoder, jr.lstm(H), jr.dense(V))
    params = built.init(jax.random.key(0), V, D)
    with pytest.raises(TypeError, match="^the last carry of encoder, which decoder .* a bridge, "):
        jax.eval_shape(built.encode, params, jnp.zeros((2, S), int))


def test_a_stateful_decoder_in_front_of_the_attending_cell_starts_from_its_own_carry():
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
    looking = jr.attending(jr.gru(H), jr.additive_score(3), S, H)
    read = jr.unroll(decoder, params.decoder[0], xs).outputs
    seen = jr.unroll(looking, params.decoder[1], read, carry=attends).outputs
    want = jr.unroll(jr.dense(V), params.decoder[2], seen).outputs
    got = built.teacher_forced(params, source, xs)
    np.testing.assert_allclose(got.outputs, want, rtol=1e-5, atol=1e-6)
    assert got.carry[0][1].c.any()


@pytest.mark.parametrize("kind", ["dot", "bahdanau"])
def test_a_source_without_a_step_is_one_without_a_real_step(x64, kind):
    built, params, source, xs = bahdanau() if kind == "bahdanau" else setting(kind)
    none = built.teacher_forced(params, source[:, :0], xs, mask=MASK)
    hidden = np.zeros_like(SOURCE_MASK)
    want = built.teacher_forced(params, source, xs, source_mask=hidden, mask=MASK)
    np.testing.assert_array_equal(none.outputs, want.outputs)
    assert none.outputs.any() and jr.attention_weights(none).shape == (BATCH, T, 0)


@pytest.mark.parametrize("kind", ["fixed", "dot", "bahdanau"])
def test_decoder_refuses_what_is_no_carry(x64, kind):
    built, params, *_ = bahdanau() if kind == "bahdanau" else setting(kind)
    for wrong in ((), None, params, {"memory": 1}, (1, 2, 3, 4)):
        with pytest.raises(TypeError, match="^carry must be the tuple of [23] that encode makes"):
            built.decoder(wrong)
    if kind != "fixed":
        with pytest.raises(TypeError, match=r"^carry\[1\] must hold the Memory of a source"):
            built.decoder(params.decoder)


@pytest.mark.parametrize("attending_cell", [None, jr.gru(H)])
def test_a_decoder_that_attends_itself_keeps_its_own_source(attending_cell):
    score = jr.dot_score(3)
    built = jr.encoder_decoder(
        jr.gru(H),
        jr.attending(jr.gru(H), score, S + 2, 2),
        jr.dense(V),
        attention=jr.additive_score(3),
        attending_cell=attending_cell,
        bridge=lambda carry: carry if attending_cell else None,
    )
    params, xs = built.init(jax.random.key(0), D, D), jnp.ones((2, S, D))
    own, ours, _ = jax.eval_shape(built.teacher_forced, params, xs, xs).info
    assert own.weights.shape == (S, 2, S + 2) and ours.weights.shape == (S, 2, S)
