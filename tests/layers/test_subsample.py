"""Windows of steps in padded and packed rows, against loops over each sequence alone."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

# A character is a step: a letter is real, a capital starts a sequence, "." is padding and ","
# padding that starts a sequence.
ROWS = ("abcdefg", "abcdef.", "..abcde", ".a.bc.d", "abCdeF.", ".a,.bCd", ".......", "A,.B.cd")
SIGNS = np.array([list(row) for row in ROWS])
MASK = np.char.isalpha(SIGNS)
RESET = np.char.isupper(SIGNS) | (SIGNS == ",")
SEQUENCES = [
    [np.flatnonzero(MASK[row] & (RESET[row].cumsum() == n)) for n in range(RESET[row].sum() + 1)]
    for row in range(len(ROWS))
]


def merged(xs, stride, merge):
    """The windows of one sequence, one after another."""
    ys = []
    for start in range(0, len(xs), stride):
        window = xs[start : start + stride]
        short = np.zeros((stride - len(window), xs.shape[1]))
        concatenated = np.concatenate([*window, *short])
        ys.append({"concat": concatenated, "mean": window.mean(0), "last": window[-1]}[merge])
    return np.stack(ys) if ys else np.zeros((0, xs.shape[1] * (stride if merge == "concat" else 1)))


def made_alone(run, xs, row):
    """What every sequence of a row gives alone, one after another."""
    return np.concatenate([run(xs[row, steps]) for steps in SEQUENCES[row]])


def assert_rows(rollout, run, xs):
    assert rollout.flags.mask.shape == rollout.flags.reset.shape == rollout.outputs.shape[:2]
    for row, text in enumerate(ROWS):
        mask, ys = (np.asarray(leaf[row]) for leaf in (rollout.flags.mask, rollout.outputs))
        want = made_alone(run, xs, row)
        np.testing.assert_allclose(ys[mask], want, rtol=1e-9, atol=1e-12, err_msg=text)
        assert not ys[~mask].any()
        numbers = np.cumsum(rollout.flags.reset[row])[mask]
        counts = [len(run(xs[row, steps])) for steps in SEQUENCES[row]]
        np.testing.assert_array_equal(numbers, np.repeat(np.arange(len(counts)), counts))


@pytest.mark.parametrize(
    ("stride", "merge", "max_sequences"),
    [(2, "concat", 4), (3, "mean", None), (2, "last", None), (1, "concat", None)],
)
def test_every_sequence_of_a_row_gives_what_it_gives_alone(x64, stride, merge, max_sequences):
    layer = jr.subsample(stride, merge, max_sequences=max_sequences)
    xs = np.random.default_rng(0).standard_normal((*MASK.shape, 2))
    dirty = np.where(MASK[..., None], xs, np.nan)
    rollout = jr.unroll(layer, (), dirty, mask=MASK, reset=RESET)
    assert rollout.outputs.shape[1] == ((7 + 4) // 2 if max_sequences else 7)
    assert_rows(rollout, lambda xs: merged(xs, stride, merge), xs)


def test_the_number_of_windows_depends_on_shapes_alone():
    xs, flags = jnp.ones((2, 7, 3)), jnp.ones((2, 7))
    rollout = jr.unroll(jr.subsample(3), (), xs)
    assert rollout.outputs.shape == (2, 3, 9) and rollout.flags == jr.Flags(None, None)
    assert not rollout.outputs[:, 2, 3:].any()
    rollout = jr.unroll(jr.subsample(3), (), xs, mask=flags)
    assert rollout.flags.mask.shape == (2, 3) and rollout.flags.reset is None
    for num_steps in (0, 1):
        few = jr.unroll(
            jr.subsample(3, max_sequences=2), (), xs[:, :num_steps], reset=flags[:, :num_steps]
        )
        assert few.outputs.shape == (2, num_steps, 9)
    major = jr.unroll(jr.subsample(3, "mean"), (), xs, mask=flags, time_major=True)
    assert major.outputs.shape == (1, 7, 3) and major.flags.mask.shape == (1, 7)


def test_a_symbolic_number_of_steps_exports():
    layer = jr.serial(jr.subsample(2, max_sequences=2), jr.repeat(jr.elman(4), 2))
    params = layer.init(jax.random.key(0), 2)

    @jax.jit
    def run(xs, mask, reset):
        return jr.unroll(layer, params, xs, mask=mask, reset=reset)[1:]

    sizes = jax.export.symbolic_shape("b, t")
    flags = jax.ShapeDtypeStruct(sizes, bool)
    exported = jax.export.export(run)(jax.ShapeDtypeStruct((*sizes, 2), jnp.float32), flags, flags)
    xs, reset = jnp.ones((2, 7, 2)), jnp.zeros((2, 7), bool).at[0, 3].set(True)
    got, want = (call(xs, ~reset, reset) for call in (exported.call, run))
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert got[0].shape == (2, 4, 4)


def test_too_many_sequences():
    layer = jr.subsample(2, "mean", max_sequences=2)
    xs, reset = jnp.ones((2, 6, 1)), jnp.array([[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 0, 0]])
    outputs = jr.unroll(layer, (), xs, reset=reset).outputs[..., 0]
    assert jnp.isnan(outputs[0]).all()
    np.testing.assert_array_equal(outputs[1], [1, 1, 1, 1])
    with pytest.raises(ValueError, match="max_sequences must be .* got 2 for rows that do not fit"):
        layer.unroll((), (), jr.Steps(xs[0][:, None], None, reset[0][:, None] > 0), None)


def lstm_loop(params, xs):
    h, c, hs = np.zeros(3), np.zeros(3), []
    for x in xs:
        i, f, g, o = np.split(x @ params.kernel + h @ params.recurrent_kernel + params.bias, 4)
        i, f, o = (1 / (1 + np.exp(-u)) for u in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        hs.append(h)
    return np.stack(hs) if hs else np.zeros((0, 3))


def test_the_pyramid_of_listen_attend_and_spell(x64):
    """Bidirectional LSTMs with pairs of steps between them, padded and packed."""
    read = jr.bidirectional(jr.lstm(3, param_dtype=jnp.float64))
    model = jr.serial(read, jr.subsample(2), read, jr.subsample(2, max_sequences=4), read)
    params = jax.device_get(model.init(jax.random.key(0), 2))
    xs = np.random.default_rng(1).standard_normal((*MASK.shape, 2))

    def both_ways(params, xs):
        backward = lstm_loop(params.backward, xs[::-1])[::-1]
        return np.concatenate([lstm_loop(params.forward, xs), backward], axis=1)

    def loop(xs):
        for layer_params in params[::2]:
            ys = both_ways(layer_params, xs)
            xs = merged(ys, 2, "concat")
        return ys

    run = jax.jit(lambda xs: jr.unroll(model, params, xs, mask=MASK, reset=RESET))
    assert_rows(run(np.where(MASK[..., None], xs, np.nan)), loop, xs)


def test_a_source_that_becomes_shorter_reaches_attention():
    """What is written from rows of sources is what is written from each source alone."""
    model = jr.encoder_decoder(
        jr.serial(jr.bidirectional(jr.elman(2)), jr.subsample(2)),
        jr.serial(jr.embed(2), jr.elman(2)),
        jr.dense(3),
        attention=jr.dot_score(2),
        bridge=lambda carry: None,
    )
    params = model.init(jax.random.key(0), 2, 3)
    source = np.random.default_rng(2).standard_normal((1, 5, 2)).astype(np.float32)
    source_mask, source_reset = np.array([[1, 1, 1, 0, 1]]), np.array([[1, 0, 0, 1, 0]])
    xs, reset = np.array([[0, 1, 2, 0]]), np.array([[1, 0, 1, 0]])
    packed = model.teacher_forced(
        params, source, xs, source_mask=source_mask, source_reset=source_reset, reset=reset
    )
    padded = np.concatenate([source[:, :3], source[:, 4:].repeat(3, 1)])
    alone = model.teacher_forced(
        params, padded, xs.reshape(2, 2), source_mask=np.array([[1, 1, 1], [1, 0, 0]])
    )
    got, want = packed.outputs.reshape(2, 2, 3), alone.outputs
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    seen = jr.attention_weights(alone)
    assert seen.shape == (2, 2, 2) and not seen[1, :, 1].any()
    np.testing.assert_allclose(seen.sum(-1), 1, rtol=1e-5)


def strided(flags):
    """Every second step, with or without flags."""

    def unroll(params, carry, steps, key):
        mask, reset = (None if flag is None else flag[::2] for flag in steps[1:])
        return jr.Rollout(carry, steps.xs[::2], (), jr.Flags(mask, reset) if flags else None)

    return jr.Layer(lambda key, num: (), lambda *_: (), unroll, lambda num: num)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: strided(False), "gave 2 outputs for 4 steps: to run with a mask"),
        (lambda: jr.serial(strided(False), jr.dropout(0.1)), "gave 2 outputs for 4 steps"),
        (lambda: jr.residual(strided(True)), "must keep the steps of its inputs to be residual"),
        (lambda: jr.residual(jr.subsample(1)), "to be residual, got subsample.1., which makes 4"),
        (
            lambda: jr.bidirectional(strided(True), jr.dropout(0.1)),
            "side by side must make the same",
        ),
    ],
)
def test_what_cannot_work_names_the_layer(build, message):
    xs, mask = jnp.ones((2, 4, 3)), jnp.ones((2, 4))
    layer = build()
    params = layer.init(jax.random.key(0), 3)
    with pytest.raises(ValueError, match=message):
        jr.unroll(layer, params, xs, mask=mask)


def test_layers_that_change_steps_and_do_not_stream():
    with pytest.raises(ValueError, match="model must be causal to stream, got subsample"):
        jr.step(jr.subsample(2), (), (), jnp.ones(3))
    with pytest.raises(ValueError, match="must keep the steps of its inputs to be run by step"):
        jr.step(strided(True), (), (), jnp.ones(3))
    # Without flags there is nothing that could be wrong.
    assert jr.unroll(strided(False), (), jnp.ones((4, 3))).outputs.shape == (2, 3)


def test_directions_that_keep_different_steps_give_nan():
    layer = jr.bidirectional(strided(True))
    params = layer.init(jax.random.key(0), 1)
    mask = jnp.array([[1, 1, 1, 1], [1, 1, 1, 0]])
    rollout = jr.unroll(layer, params, jnp.ones((2, 4, 1)), mask=mask)
    np.testing.assert_array_equal(rollout.outputs[0], np.ones((2, 2)))
    np.testing.assert_array_equal(rollout.flags.mask, [[1, 1], [1, 1]])
    assert jnp.isnan(rollout.outputs[1]).any()


def test_the_laws():
    # Windows longer than the sequences of the packed row, so that they could run on into the next.
    check_layer(jr.serial(jr.subsample(3), jr.elman(2)))


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        jr.subsample(0)
    with pytest.raises(ValueError, match=r"merge must be one of .* got 'sum'"):
        jr.subsample(2, "sum")
    with pytest.raises(TypeError, match="xs must be floating to be merged, got the dtype int32"):
        jr.unroll(jr.subsample(2), (), jnp.ones((4, 3), int))


@pytest.mark.parametrize("flags", [{"mask": MASK, "reset": RESET}, {"reset": RESET}])
def test_pictures_are_merged_and_normalised_place_by_place(x64, flags):
    xs = np.random.default_rng(0).standard_normal((*MASK.shape, 3, 2))
    pictures = jr.lift(jnp.asarray, num_outputs=2, num_feature_axes=2)
    stack = jr.serial(pictures, jr.subsample(2), jr.batch_norm(param_dtype=jnp.float64))
    rollout = jr.unroll(stack, stack.init(jax.random.key(0), 2), xs, **flags)
    merge = jax.vmap(lambda xs: jr.unroll(jr.subsample(2), (), xs, **flags), 2)
    windows, real = merge(xs).outputs, np.asarray(rollout.flags.mask)
    seen = np.moveaxis(windows, 0, 2)[real].reshape(-1, 4)
    want = (seen - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-5)
    np.testing.assert_allclose(rollout.outputs[real].reshape(-1, 4), want, rtol=1e-9)
    assert rollout.info[2].count == len(seen) and not rollout.outputs[~real].any()
