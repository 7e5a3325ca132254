import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

KEY = jax.random.key(5)
PROMPTS = np.array([[3, 1, 4, 1], [5, 2, 6, 5], [2, 0, 0, 1]])
LENGTHS = np.array([4, 2, 3])
N = 6


def loop(layer, params, prompt, num_steps=N, stop_token=None, carry=None):
    """One row, greedily, token after token: tokens, and the carry in front of the last one."""
    carry = layer.initial_carry(params) if carry is None else carry
    for token in prompt:
        carry, logits = jr.step(layer, params, carry, jnp.asarray(token))
    tokens = [int(logits.argmax())]
    while len(tokens) < num_steps and tokens[-1] != stop_token:
        carry, logits = jr.step(layer, params, carry, jnp.asarray(tokens[-1]))
        tokens.append(int(logits.argmax()))
    return tokens, carry


def unpadded(layer, params, **arguments):
    rows = zip(PROMPTS, LENGTHS, strict=True)
    return [loop(layer, params, prompt[:length], **arguments) for prompt, length in rows]


def padded(side):
    """The prompts with tokens that are none in the padding, and the mask."""
    prompts, mask = np.full((3, 6), 99), np.zeros((3, 6), bool)
    for row, length in enumerate(LENGTHS):
        places = {"right": slice(0, length), "left": slice(6 - length, 6)}
        place = np.arange(6)[places[side]] if side != "both" else np.arange(length) + 1
        prompts[row, place], mask[row, place] = PROMPTS[row, :length], True
    return prompts, mask


def stacked(rows):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def assert_close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), got, want)


@pytest.mark.parametrize("side", ["right", "left", "both"])
def test_greedy_is_a_loop_of_steps_wherever_the_padding_is(writer, side):
    layer, params = writer
    prompts, mask = padded(side)
    got = jr.generate(layer, params, prompts, N, mask=mask)
    rows = unpadded(layer, params)
    np.testing.assert_array_equal(got.tokens, [tokens for tokens, _ in rows])
    assert got.tokens.dtype == prompts.dtype
    assert got.mask.all() and not got.stopped.any()
    assert_close(got.carry, stacked([carry for _, carry in rows]))


def test_rows_that_stop_stay_where_they_are(writer):
    layer, params = writer
    prompts, mask = padded("right")
    everything = [tokens for tokens, _ in unpadded(layer, params, num_steps=10)]
    stop = everything[0][3]
    rows = unpadded(layer, params, num_steps=10, stop_token=stop)
    lengths = np.array([len(tokens) for tokens, _ in rows])
    assert lengths.min() < lengths.max(), "rows must stop at steps of their own"
    got = jr.generate(layer, params, prompts, 10, mask=mask, stop_token=stop, pad=-7)
    for row, (tokens, _) in enumerate(rows):
        wanted = tokens + [-7] * (10 - len(tokens))
        np.testing.assert_array_equal(got.tokens[row], wanted)
    np.testing.assert_array_equal(got.mask, np.arange(10) < lengths[:, None])
    np.testing.assert_array_equal(got.stopped, [tokens[-1] == stop for tokens, _ in rows])
    assert_close(got.carry, stacked([carry for _, carry in rows]))


def test_several_stop_tokens_and_one_at_once(writer):
    layer, params = writer
    free = np.asarray(jr.generate(layer, params, PROMPTS, N).tokens)
    stops = (int(free[0, 0]), int(free[1, 2]))
    got = jr.generate(layer, params, PROMPTS, N, stop_token=stops)
    ends = [next((i for i in range(N) if row[i] in stops), N - 1) for row in free]
    assert ends[0] == 0
    np.testing.assert_array_equal(got.mask.sum(-1), np.array(ends) + 1)


def test_a_stop_at_the_last_step_counts(writer):
    layer, params = writer
    first = jr.generate(layer, params, PROMPTS[0], 1).tokens
    got = jr.generate(layer, params, PROMPTS[0], 1, stop_token=int(first[0]))
    assert got.stopped and got.mask.all()
    assert not jr.generate(layer, params, PROMPTS[0], 1, stop_token=int(first[0]) + 1).stopped


def test_it_goes_on_from_a_carry(writer):
    layer, params = writer
    prompts, mask = padded("left")
    stop = int(jr.generate(layer, params, prompts, 7, mask=mask).tokens[1, 2])
    whole = jr.generate(layer, params, prompts, 7, mask=mask, stop_token=stop)
    one = jr.generate(layer, params, prompts, 3, mask=mask, stop_token=stop)
    go_on = one.mask[:, -1:] & ~one.stopped[:, None]
    assert one.stopped.any() and go_on.any()
    two = jr.generate(
        layer, params, one.tokens[:, -1:], 4, mask=go_on, carry=one.carry, stop_token=stop
    )
    np.testing.assert_array_equal(jnp.concatenate([one.tokens, two.tokens], 1), whole.tokens)
    np.testing.assert_array_equal(jnp.concatenate([one.mask, two.mask], 1), whole.mask)
    assert_close(two.carry, whole.carry)


def test_an_empty_prompt_writes_nothing(writer):
    layer, params = writer
    mask = np.ones(PROMPTS.shape, bool)
    mask[1] = False
    got = jr.generate(layer, params, PROMPTS, N, mask=mask, pad=-3, stop_token=-3)
    np.testing.assert_array_equal(got.mask.any(-1), [True, False, True])
    np.testing.assert_array_equal(got.tokens[1], [-3] * N)
    assert not got.stopped[1]
    kept = jax.tree.map(lambda leaf: leaf[1], got.carry)
    assert_close(kept, layer.initial_carry(params))
    run = jr.free_run(layer, params, PROMPTS, 2, feed=likeliest, mask=mask)
    assert not run.outputs[1].any() and not run.xs[1].any() and run.outputs[0].all()


def test_a_reset_in_the_prompt(writer):
    layer, params = writer
    reset = np.zeros(PROMPTS.shape, bool)
    reset[0, 2] = True
    mask = np.ones(PROMPTS.shape, bool)
    mask[1, 2:] = False
    reset[1, 3] = True  # behind the last real step: nothing of the new sequence is read yet
    got = jr.generate(layer, params, PROMPTS, N, mask=mask, reset=reset)
    np.testing.assert_array_equal(got.tokens[0], loop(layer, params, PROMPTS[0, 2:])[0])
    np.testing.assert_array_equal(got.mask.all(-1), [True, False, True])
    assert not got.mask[1].any()


def test_rows_are_drawn_apart_and_a_key_gives_the_same_again(writer):
    layer, params = writer
    prompts = np.zeros((64, 1), int)

    def write(seed):
        key = jax.random.key(seed)
        return np.asarray(jr.generate(layer, params, prompts, 5, temperature=3.0, key=key).tokens)

    assert len(np.unique(write(0), axis=0)) > 32
    np.testing.assert_array_equal(write(0), write(0))
    assert (write(0) != write(1)).any()


def test_draws_have_the_probabilities_of_the_model(writer):
    layer, params = writer
    prompts = np.full((4000, 2), 3)
    got = jr.generate(layer, params, prompts, 2, temperature=0.7, key=KEY).tokens
    _, logits = jr.step(layer, params, jr.step(layer, params, None, jnp.array(3))[0], jnp.array(3))
    wanted = np.asarray(jax.nn.softmax(logits / 0.7))
    shares = np.bincount(got[:, 0], minlength=7) / 4000
    np.testing.assert_allclose(shares, wanted, atol=4 * 0.5 / np.sqrt(4000))
    after = got[got[:, 0] == wanted.argmax(), 1]
    one, logits = jr.generate(layer, params, prompts[0], 1), None
    _, logits = jr.step(layer, params, one.carry, one.tokens[0])
    shares = np.bincount(after, minlength=7) / len(after)
    atol = 4 * 0.5 / np.sqrt(len(after))
    np.testing.assert_allclose(shares, jax.nn.softmax(logits / 0.7), atol=atol)


def test_top_k_1_is_greedy_and_nucleus_1_the_plain_draw(writer):
    layer, params = writer

    def write(**choice):
        return jr.generate(layer, params, PROMPTS, N, **choice).tokens

    np.testing.assert_array_equal(write(temperature=9.0, top_k=1, key=KEY), write())
    plain = write(temperature=9.0, key=KEY)
    np.testing.assert_array_equal(write(temperature=9.0, top_p=1.0, key=KEY), plain)
    assert (plain != write()).any()


def test_another_temperature_does_not_compile_again(writer):
    layer, params = writer
    traces = []

    def watch(params, carry, steps, key):
        traces.append(steps)
        return jr.Rollout(carry, steps.xs)

    watched = jr.serial(layer, jr.dropout(0.0)._replace(unroll=watch))
    counts = []
    for temperature, top_p, stop in ((0.5, 0.9, 1), (1.0, 0.5, 2), (0.0, 1.0, 3)):
        choice = {"temperature": temperature, "top_p": top_p, "stop_token": stop}
        jr.generate(watched, (params, ()), PROMPTS, N, key=KEY, **choice)
        counts.append(len(traces))
    assert counts[0] > 0 and counts == counts[:1] * 3


def test_logits_that_are_nan_show(writer):
    layer, params = writer
    prompts = PROMPTS.copy()
    prompts[1, 2] = 7  # no token: its embedding is NaN
    got = jr.generate(layer, params, prompts, 3)
    np.testing.assert_array_equal(got.tokens[1], [-1, -1, -1])
    np.testing.assert_array_equal(got.tokens[0], loop(layer, params, PROMPTS[0], 3)[0])


HALVE = jr.simple_cell(lambda key, n: (), lambda params, carry, z: 0.5 * z, 1)


def test_a_free_run_of_numbers_is_a_loop_of_steps(forecaster):
    layer, params = forecaster
    xs = np.random.default_rng(0).standard_normal((3, 6, 2))
    _, mask = padded("left")
    got = jr.free_run(layer, params, np.where(mask[..., None], xs, np.nan), N, feed=grow, mask=mask)
    for row in range(3):
        carry = layer.initial_carry(params)
        for x in xs[row][mask[row]]:
            carry, y = jr.step(layer, params, carry, x)
        for n in range(N):
            np.testing.assert_allclose(got.outputs[row, n], y, rtol=1e-10)
            x = grow(y, x, None)
            np.testing.assert_allclose(got.xs[row, n], x, rtol=1e-10)
            before, (carry, y) = carry, jr.step(layer, params, carry, x)
        assert_close(jax.tree.map(lambda leaf, row=row: leaf[row], got.carry), before)


def grow(y, x, key):
    del key
    return x + 0.1 * y


def likeliest(logits, token, key):
    del key
    return logits.argmax(-1).astype(token.dtype)


def test_a_free_run_goes_on(forecaster):
    layer, params = forecaster
    xs = np.random.default_rng(1).standard_normal((3, 4, 2))
    whole = jr.free_run(layer, params, xs, 5)
    one = jr.free_run(layer, params, xs, 2)
    two = jr.free_run(layer, params, one.xs[:, -1:], 3, carry=one.carry)
    assert_close(jnp.concatenate([one.outputs, two.outputs], 1), whole.outputs)
    assert_close(two.carry, whole.carry)


def test_gradients_flow_to_the_prompt_and_not_from_its_padding(forecaster):
    layer, params = forecaster
    xs = np.random.default_rng(1).standard_normal((3, 6, 2))
    _, mask = padded("right")

    def loss(params, xs):
        return (jr.free_run(layer, params, xs, 4, mask=mask).outputs ** 2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    got = gradient(params, np.where(mask[..., None], xs, np.nan))
    assert_close(got, gradient(params, xs))
    assert (np.asarray(got[1] != 0).any(-1) == mask).all()
    step = 1e-6
    ends = [loss(params, jnp.asarray(xs).at[1, 0, 1].add(sign * step)) for sign in (1, -1)]
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), got[1][1, 0, 1], rtol=1e-5)


def test_inputs_of_several_arrays_know_the_calendar():
    # h = last value + 1 in month 0, else the same; the feed knows which month comes next.
    cell = jr.simple_cell(
        lambda key, n: (),
        lambda params, carry, z: z["value"] + (z["month"] == 0)[..., None],
        1,
        num_feature_axes={"value": 1, "month": 0},
    )

    def feed(y, x, key):
        del key
        return {"value": y, "month": (x["month"] + 1) % 3}

    prompt = {"value": jnp.array([[5.0]]), "month": jnp.array([1])}
    got = jr.free_run(cell, (), prompt, 7, feed=feed)
    np.testing.assert_array_equal(got.outputs[:, 0], [5, 5, 6, 6, 6, 7, 7])
    np.testing.assert_array_equal(got.xs["month"], [2, 0, 1, 2, 0, 1, 2])
    known = {"value": jnp.full((7, 1), jnp.nan), "month": jnp.array([2, 0, 1, 2, 0, 1, 2])}

    def keep(y, x, key):
        del key
        return x | {"value": y}

    again = jr.free_run(cell, (), prompt, future=known, feed=keep)
    assert_close(again, got)


def test_one_step_reads_nothing_of_its_own():
    run = jr.free_run(HALVE, (), jnp.array([[8.0], [6.0]]), 1)
    np.testing.assert_array_equal(run.outputs, [[3.0]])
    np.testing.assert_array_equal(run.carry, [3.0])


def test_errors_name_the_argument(writer):
    layer, params = writer
    cases = [
        ({"num_steps": 0}, ValueError, "^num_steps must be at least 1"),
        ({"prompt": PROMPTS[:, :0]}, ValueError, "^prompt must have at least one step"),
        ({"prompt": PROMPTS.astype(np.uint8)}, TypeError, "^prompt must be signed ints"),
        ({"prompt": PROMPTS * 1.0}, TypeError, "^prompt must be signed ints"),
        ({"temperature": 1.0}, ValueError, "^key must be a PRNG key to sample"),
        ({"temperature": 1.0, "key": 3}, TypeError, "^key must be one PRNG key"),
        ({"temperature": 1.0, "key": KEY, "top_k": 0}, ValueError, "^top_k must be at least 1"),
        ({"temperature": 1.0, "key": KEY, "top_k": 8}, ValueError, "^top_k must be at most 7"),
        ({"stop_token": 0.5}, TypeError, "^stop_token must be integer tokens"),
        ({"pad": 0.5}, TypeError, "^pad must be integer tokens"),
        ({"mask": np.ones(2)}, ValueError, "^mask must have the shape"),
        ({"carry": ()}, TypeError, "^carry must have the structure"),
    ]
    for changed, error, message in cases:
        arguments = {"prompt": PROMPTS, "num_steps": 2} | changed
        with pytest.raises(error, match=message):
            jr.generate(layer, params, **arguments)
    with pytest.raises(ValueError, match=r"must read tokens.*has 1 feature axes"):
        jr.generate(HALVE, (), jnp.ones((3, 1)), 2)


def test_a_dtype_that_cannot_hold_the_tokens_is_refused():
    layer = jr.serial(jr.embed(1), jr.dense(200))
    params, prompt = layer.init(KEY, 200), jnp.array([[3]], jnp.int8)
    with pytest.raises(ValueError, match="^prompt must have a dtype that holds 199, .*int8"):
        jr.generate(layer, params, prompt, 1)
    with pytest.raises(ValueError, match="^prompt must have a dtype that holds 300, pad, got int8"):
        jr.generate(layer, params, prompt, 1, pad=300)
    search = {"beams": 1, "max_steps": 1, "stop_token": None}
    with pytest.raises(ValueError, match="^start must have a dtype that holds 199, .*int8"):
        jr.beam_search(layer, params, None, prompt[0], **search)
