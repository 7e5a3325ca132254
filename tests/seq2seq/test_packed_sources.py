"""Several sources in a row and a sequence written from each, against each pair in a row alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, V, S, T = 2, 4, 6, 9, 9
# For each row the numbers of steps of its sources and of what is written from them. An empty one is
# a masked step.
SOURCES, TARGETS = [(3, 2, 1), (0, 4, 2)], [(2, 3, 2), (2, 1, 3)]
f64 = {"param_dtype": jnp.float64}
DOT, ADDITIVE = jr.dot_score(3, **f64), jr.additive_score(3, **f64)
GRU, EMBED = jr.gru(H, **f64), jr.embed(3, **f64)
LAST = jr.serial(EMBED, GRU)


def decoder_carry(carry):
    return (), carry


def no_carry(carry):
    del carry


MODELS = {
    "fixed": (GRU, LAST, {"bridge": decoder_carry}),
    "reversed": (GRU, LAST, {"bridge": decoder_carry, "reverse_source": True}),
    "attention": (GRU, LAST, {"bridge": decoder_carry, "attention": DOT}),
    "attention reversed": (
        jr.lstm(H, **f64),
        jr.serial(EMBED, jr.lstm(H, **f64)),
        {"bridge": decoder_carry, "attention": ADDITIVE, "reverse_source": True},
    ),
    "attention cell": (GRU, EMBED, {"attention": ADDITIVE, "attention_cell": GRU}),
    "input feeding": (GRU, LAST, {"attention": DOT, "input_feeding": GRU}),
    "both directions": (
        jr.bidirectional(GRU),
        LAST,
        {"bridge": no_carry, "attention": DOT},
    ),
}


@functools.cache
def model(name):
    encoder, decoder, options = MODELS[name]
    return jr.encoder_decoder(encoder, decoder, jr.dense(V, **f64), **options)


class Rows:
    """Sequences end to end in rows, each with a masked step after it."""

    def __init__(self, lengths, row_length, flag_first=True):
        shape = len(lengths), row_length
        self.reset, self.number = np.zeros(shape, bool), np.full(shape, -1)
        for row, of_row in enumerate(lengths):
            start = 0
            for number, length in enumerate(of_row):
                self.reset[row, start] = flag_first or number > 0 or length == 0
                self.number[row, start : start + length] = number
                start += max(length, 1) + (number == 0)
        self.mask = self.number >= 0

    def steps_of(self, row, number):
        return np.flatnonzero(self.number[row] == number)


READ, WRITTEN = Rows(SOURCES, S, flag_first=False), Rows(TARGETS, T)
PAIRS = [(row, number) for row in range(2) for number in range(3)]


@functools.cache
def setting(name):
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: 1.5 * leaf, model(name).init(jax.random.key(0), D, V))
    generator = np.random.default_rng(0)
    source = np.where(READ.mask[..., None], generator.standard_normal((2, S, D)), np.nan)
    return params, source, generator.integers(0, V, (2, T))


@functools.cache
def run(name, alone):
    """A loss, the rollout and the gradients, of packed rows or of a row for each pair."""

    def loss(params, source, xs):
        if not alone:
            flags = {"source_reset": READ.reset, "reset": WRITTEN.reset, "mask": WRITTEN.mask}
            mask = READ.mask
        else:
            source, mask = taken(source, READ)
            xs, target_mask = taken(xs, WRITTEN)
            flags = {"mask": target_mask}
        rollout = model(name).teacher_forced(params, source, xs, source_mask=mask, **flags)
        return (rollout.outputs**3).sum(), rollout

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(*setting(name))


def taken(xs, rows):
    """A row for each pair, and its mask."""
    steps = [np.pad(rows.steps_of(*pair), (0, 9))[:4] for pair in PAIRS]
    mask = [np.arange(4) < len(rows.steps_of(*pair)) for pair in PAIRS]
    return jnp.stack([xs[row][steps[i]] for i, (row, _) in enumerate(PAIRS)]), np.array(mask)


@pytest.mark.parametrize("name", MODELS)
def test_a_packed_pair_is_the_pair_alone_in_values_and_gradients(x64, name):
    (value, packed), gradient = run(name, alone=False)
    (want, alone), want_gradient = run(name, alone=True)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    for index, (row, number) in enumerate(PAIRS):
        steps, read = WRITTEN.steps_of(row, number), READ.steps_of(row, number)
        own = alone.outputs[index, : len(steps)]
        np.testing.assert_allclose(packed.outputs[row, steps], own, rtol=1e-10, atol=1e-13)
        if "attention" in MODELS[name][2]:
            weights = np.asarray(jr.attention_weights(packed)[row, steps])
            own = jr.attention_weights(alone)[index, : len(steps), : len(read)]
            np.testing.assert_allclose(weights[:, read], own, rtol=1e-10)
            assert not np.delete(weights, read, axis=1).any()
    assert not packed.outputs[~WRITTEN.mask].any()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12),
        gradient,
        want_gradient,
    )
    assert (np.asarray(gradient[1] != 0).all(-1) == READ.mask).all()


@pytest.mark.parametrize("name", ["fixed", "attention", "attention cell", "input feeding"])
def test_steps_and_chunks_of_a_packed_row_are_the_row(x64, name):
    params, source, xs = setting(name)
    built, (_, whole) = model(name), run(name, alone=False)[0]
    start = built.encode(params, source, mask=READ.mask, reset=READ.reset)
    layer = built.decoder(start)
    assert layer == model(name).decoder(start)
    for cuts in ([4], range(1, T)):
        carry, ys = start, []
        for first, stop in zip([0, *cuts], [*cuts, T], strict=True):
            piece = np.s_[:, first:stop]
            flags = {"mask": WRITTEN.mask[piece], "reset": WRITTEN.reset[piece]}
            carry, y, *_ = jr.unroll(layer, params.decoder, xs[piece], carry=carry, **flags)
            ys.append(y)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12),
            (carry, jnp.concatenate(ys, 1)),
            whole[:2],
        )


@pytest.mark.parametrize("name", ["fixed", "attention", "attention cell", "input feeding"])
def test_generating_goes_on_with_the_sequence_that_the_prompt_ends_in(x64, name):
    params, source, xs = setting(name)
    prompt, reset, mask = xs[:, :7], WRITTEN.reset[:, :7], WRITTEN.mask[:, :7]
    flags = {"source_mask": READ.mask, "source_reset": READ.reset, "reset": reset, "mask": mask}
    got = model(name).generate(params, source, prompt, 4, **flags)
    for row in range(2):
        numbers = np.where(mask[row], WRITTEN.number[row, :7], -1)
        number = numbers.max()
        own, read = prompt[row, numbers == number], source[row, READ.steps_of(row, number)]
        alone = model(name).generate(params, read, own, 4)
        np.testing.assert_array_equal(got.tokens[row], alone.tokens)


def test_what_is_wrong_with_one_pair_does_not_reach_another(x64):
    for name in ("attention", "attention cell", "input feeding"):
        params, source, xs = setting(name)
        source = source.copy()
        source[0, READ.steps_of(0, 1)[0], 0] = np.nan
        flags = {"source_mask": READ.mask, "source_reset": READ.reset, "mask": WRITTEN.mask}
        rollout = model(name).teacher_forced(params, source, xs, reset=WRITTEN.reset, **flags)
        is_nan = np.isnan(rollout.outputs).any(-1)
        np.testing.assert_array_equal(is_nan[0], WRITTEN.number[0] == 1)
        assert not is_nan[1].any()


@pytest.mark.parametrize("name", ["reversed", "attention", "attention cell"])
def test_a_sequence_without_a_source_is_written_from_a_source_without_a_step(x64, name):
    params, source, xs = setting(name)
    steps = WRITTEN.steps_of(0, 2)
    first_two = np.s_[:1, : READ.steps_of(0, 2)[0]]
    rollout = model(name).teacher_forced(
        params,
        source[first_two],
        xs[:1],
        source_mask=READ.mask[first_two],
        source_reset=READ.reset[first_two],
        mask=WRITTEN.mask[:1],
        reset=WRITTEN.reset[:1],
    )
    alone = model(name).teacher_forced(params, source[:1, :0], xs[:1, steps])
    np.testing.assert_allclose(rollout.outputs[0, steps], alone.outputs[0], rtol=1e-10)
    assert alone.outputs.any()


def test_rows_of_pack_hold_pairs(x64):
    params = setting("attention")[0]
    generator = np.random.default_rng(1)
    lengths = [(3, 2), (1, 4), (2, 2), (0, 1)]
    pairs = [
        (generator.standard_normal((read, D)), generator.integers(0, V, written))
        for read, written in lengths
    ]

    def padded(xs, num_steps):
        return np.pad(xs, [(0, num_steps - len(xs))] + [(0, 0)] * (xs.ndim - 1))

    packed = jr.pack(
        [
            tuple(
                padded(xs, max(len(source), len(target)))
                for xs in (source, np.ones(len(source), bool), target, np.ones(len(target), bool))
            )
            for source, target in pairs
        ],
        row_length=7,
    )
    source, source_mask, xs, mask = packed.xs
    rollout = model("attention").teacher_forced(
        params,
        source,
        xs,
        source_mask=source_mask,
        source_reset=packed.reset,
        mask=mask,
        reset=packed.reset,
    )
    for got, (source, target) in zip(jr.unpack(rollout.outputs, packed), pairs, strict=True):
        alone = model("attention").teacher_forced(params, source, target)
        np.testing.assert_allclose(got[: len(target)], alone.outputs, rtol=1e-10)


def test_noise_is_drawn_for_every_step_of_a_packed_row():
    noisy = jr.serial(jr.dropout(0.5), jr.gru(H))
    built = jr.encoder_decoder(noisy, noisy, jr.dense(V))
    params, xs = built.init(jax.random.key(0), D, D), jnp.ones((2, S, D))
    reset = np.broadcast_to(np.arange(S) % 3 == 0, (2, S))
    flags = {"source_reset": reset, "reset": reset}
    quiet = built.teacher_forced(params, xs, xs, **flags).outputs
    loud = built.teacher_forced(params, xs, xs, key=jax.random.key(1), **flags).outputs
    assert (quiet[0, 0] == quiet[0, 3]).all() and (loud[0, 0] != loud[0, 3]).any()


def test_errors_say_what_belongs_together(x64):
    params, source, xs = setting("attention")
    built = model("attention")
    with pytest.raises(ValueError, match="^source_reset and reset must be.*got reset alone"):
        built.teacher_forced(params, source, xs, reset=WRITTEN.reset)
    with pytest.raises(ValueError, match="^source_reset and reset must be.*got source_reset alone"):
        built.generate(params, source, xs, 2, source_reset=READ.reset)
    with pytest.raises(ValueError, match=r"^reset must have the shape \(2, 9\)"):
        built.encode(params, source, reset=READ.reset[:, 1:])
    both = jr.encoder_decoder(jr.bidirectional(GRU), GRU, jr.dense(V), attention=DOT)
    both_params = both.init(jax.random.key(0), D, V)
    with pytest.raises(ValueError, match="^encoder must be causal for resets in the source"):
        both.encode(both_params, source, reset=READ.reset)
    wide = jr.encoder_decoder(jr.gru(3), jr.gru(H), jr.dense(V))
    with pytest.raises(ValueError, match=r"^the last carry of encoder, .*the shape \(2, 10, 4\)"):
        wide.encode(wide.init(jax.random.key(0), D, V), source, reset=READ.reset)
