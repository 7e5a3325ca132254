import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr

T, BATCH = 6, 4
KEY = jax.random.key(3)
MASK = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 0, 1, 0, 1, 1], [0] * 6], bool)
RESET = np.array([[0, 0, 0, 1, 0, 0], [0] * 6, [0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0]], bool)
OWN = np.array([[1, 0, 1, 1, 1, 0], [0, 1, 1, 0, 1, 1], [1] * 6, [1] * 6], bool)


def double(y, x, key):
    del key
    return 2 * y - x


def numbers():
    return np.random.default_rng(0).standard_normal((BATCH, T, 2))


def loop(layer, params, row):
    """One row of numbers, step after step; the last output is a plain variable."""
    xs, mask, reset, own = row
    carry, last, ys, inputs = layer.initial_carry(params), None, [], []
    for t in range(T):
        if reset[t]:
            carry, last = layer.initial_carry(params), None
        if not mask[t]:
            ys.append(jnp.zeros(2))
            inputs.append(jnp.zeros(2))
            continue
        x = double(last, xs[t], None) if own[t] and last is not None else xs[t]
        carry, y = jr.step(layer, params, carry, x)
        last = y
        ys.append(y)
        inputs.append(x)
    return carry, jnp.stack(ys), jnp.stack(inputs)


def assert_close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), got, want)


def poisoned(xs):
    return np.where(MASK[..., None], xs, np.nan)


def test_scheduled_sampling_is_a_loop_of_steps(forecaster):
    layer, params = forecaster
    xs = numbers()
    got = jr.scheduled_sampling(
        layer, params, poisoned(xs), OWN * 1.0, key=KEY, feed=double, mask=MASK, reset=RESET
    )
    rows = [loop(layer, params, (xs[row], MASK[row], RESET[row], OWN[row])) for row in range(BATCH)]
    want = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    assert_close((got.carry, got.outputs, got.info), want)


def test_gradients_of_scheduled_sampling_pass_through_the_feed(forecaster):
    layer, params = forecaster
    xs = numbers()

    def scanned(params, xs):
        rollout = jr.scheduled_sampling(
            layer, params, xs, OWN[:2] * 1.0, key=KEY, feed=double, mask=MASK[:2], reset=RESET[:2]
        )
        return (rollout.outputs**2).sum()

    def looped(params, xs):
        rows = [loop(layer, params, (xs[row], MASK[row], RESET[row], OWN[row])) for row in (0, 1)]
        return sum((ys**2).sum() for _, ys, _ in rows)

    got = jax.jit(jax.grad(scanned, argnums=(0, 1)))(params, poisoned(xs)[:2])
    want = jax.jit(jax.grad(looped, argnums=(0, 1)))(params, jnp.asarray(xs)[:2])
    assert_close(got, want)


def test_the_steps_that_are_missing_are_a_loop_of_steps(forecaster):
    layer, params = forecaster
    xs = numbers()
    arguments = {"feed": double, "mask": MASK, "reset": RESET}
    got = jr.impute(layer, params, poisoned(xs), OWN, **arguments)
    want = jr.scheduled_sampling(layer, params, xs, OWN * 1.0, key=KEY, **arguments)
    assert_close(got, want)


SUM = jr.simple_cell(lambda key, n: (), lambda p, c, z: z[..., :1] + 10 * z[..., 1:], 1)
"""The first feature plus ten times the second, which is known of every step."""


def keep(y, x, key):
    del key
    return jnp.concatenate([y, x[..., 1:]], -1)


def test_the_feed_gets_the_step_that_it_replaces():
    xs = jnp.stack([jnp.array([1.0, 0, 0, 0]), jnp.arange(4.0)], -1)
    unknown = xs.at[1:, 0].set(jnp.nan)
    want = [1, 11, 31, 61]
    rate = jnp.array([0.0, 1, 1, 1])
    got = jr.scheduled_sampling(SUM, (), xs, rate, key=KEY, feed=keep)
    np.testing.assert_array_equal(got.outputs[:, 0], want)
    np.testing.assert_array_equal(jr.impute(SUM, (), unknown, rate, feed=keep).outputs[:, 0], want)
    run = jr.free_run(SUM, (), xs[:1], future=jnp.append(unknown[1:], xs[:1], 0), feed=keep)
    np.testing.assert_array_equal(run.outputs[:, 0], want)
    np.testing.assert_array_equal(run.xs[:3], got.info[1:])

    # d outputs[3] / d covariates = 10, and none to what was not observed.
    def last(xs):
        return jr.impute(SUM, (), xs, rate, feed=keep).outputs[3, 0]

    np.testing.assert_array_equal(jax.grad(last)(unknown), [[1, 10], [0, 10], [0, 10], [0, 10]])

    def last_free(future):
        return jr.free_run(SUM, (), xs[:1], future=future, feed=keep).outputs[2, 0]

    np.testing.assert_array_equal(jax.grad(last_free)(unknown[1:]), [[0, 10], [0, 10], [0, 0]])


def test_packed_rows_are_each_completed_alone():
    xs = np.array([[5, 0], [np.nan, 1], [np.nan, 2], [7, 1], [np.nan, np.nan], [np.nan, 3.0]])
    missing = [0, 1, 1, 0, 1, 1]
    arguments = {"mask": [1, 1, 1, 1, 0, 1], "reset": [1, 0, 0, 1, 0, 0]}
    run = jr.impute(SUM, (), xs, missing, feed=keep, **arguments)
    np.testing.assert_array_equal(run.outputs[:, 0], [5, 15, 35, 17, 0, 47])
    np.testing.assert_array_equal(run.info[:, 0], [5, 5, 15, 7, 0, 17])


def test_what_was_missing_first_is_read_as_it_is_and_a_batch_is_its_rows():
    xs = np.array([[[2, 1], [np.nan, 1]], [[np.nan, 1], [1, 1.0]]])
    run = jr.impute(SUM, (), xs, np.array([[1, 1], [1, 0]]), feed=keep)
    np.testing.assert_array_equal(run.outputs[..., 0], [[12, 22], [np.nan, 11]])


def test_rate_0_is_teacher_forced(forecaster):
    layer, params = forecaster
    arguments = {"mask": MASK, "reset": RESET}
    got = jr.scheduled_sampling(layer, params, numbers(), 0, key=KEY, **arguments)
    want = jr.teacher_forced(layer, params, numbers(), **arguments)
    assert_close(got[:2], want[:2])
    assert_close(got.info, jnp.where(MASK[..., None], numbers(), 0))


def test_rate_1_is_a_free_run_from_the_first_step(forecaster):
    layer, params = forecaster
    xs = numbers()
    got = jr.scheduled_sampling(layer, params, xs, 1.0, key=KEY)
    want = jr.free_run(layer, params, xs[:, :1], T)
    assert_close(got[:2], (want.carry, want.outputs))
    assert_close(got.info[:, 1:], want.xs[:, :-1])


def test_rate_1_is_a_free_run_of_tokens(writer):
    layer, params = writer

    def likeliest(logits, token, key):
        del key
        return logits.argmax(-1).astype(token.dtype)

    tokens = np.array([[3, 1, 4, 1], [5, 0, 2, 6]])
    rollout = jr.scheduled_sampling(layer, params, tokens, 1.0, key=KEY, feed=likeliest)
    free = jr.free_run(layer, params, tokens[:, :1], 4, feed=likeliest)
    assert_close(rollout.outputs, free.outputs)
    np.testing.assert_array_equal(rollout.info[:, 1:], free.xs[:, :-1])
    np.testing.assert_array_equal(free.xs, jr.generate(layer, params, tokens[:, :1], 4).tokens)


ECHO = jr.simple_cell(lambda key, n: (), lambda params, carry, z: z, 1)


def minus_one(y, x, key):
    del x, key
    return jnp.full_like(y, -1)


def test_the_share_of_own_inputs_is_the_rate_and_each_row_has_its_own():
    xs = jnp.ones((50, 41, 1))
    for rate in (0.0, 0.2, 0.7):
        read = jr.scheduled_sampling(ECHO, (), xs, rate, key=KEY, feed=minus_one).info[..., 0]
        assert (read[:, 0] == 1).all()
        own = np.asarray(read[:, 1:] == -1)
        assert abs(own.mean() - rate) < 4 * 0.5 / np.sqrt(own.size)
    assert not (own[0] == own[1]).all()


def test_the_feed_gets_a_key_for_every_step():
    def draw(y, x, key):
        del x
        return jax.random.normal(key, y.shape)

    read = jr.scheduled_sampling(ECHO, (), jnp.ones((3, 9, 1)), 1, key=KEY, feed=draw).info
    assert len(np.unique(read[:, 1:])) == 3 * 8


def test_noise_is_drawn_for_every_step():
    layer = jr.serial(ECHO, jr.dropout(0.5))
    run = jr.scheduled_sampling(layer, ((), ()), jnp.ones((200, 1)), 0.0, key=KEY)
    assert {0.0, 2.0} == set(np.unique(run.outputs).tolist())


def test_a_schedule_compiles_once(forecaster):
    layer, params = forecaster
    traces = []

    def feed(y, x, key):
        traces.append(y)
        return y

    for rate in (0.0, 0.25, 1):
        jr.scheduled_sampling(layer, params, numbers(), float(rate), key=KEY, feed=feed)
    assert len(traces) == 1


def test_a_partial_feed_takes_data_without_compiling_again():
    traces = []

    def scaled(scale, y, x, key):
        traces.append(y)
        return scale * y

    for scale in (2.0, 3.0):
        feed = jax.tree_util.Partial(scaled, scale)
        run = jr.free_run(ECHO, (), jnp.ones((1, 1)), 3, feed=feed)
        np.testing.assert_allclose(run.xs[:, 0], scale ** np.arange(1, 4))
    assert len(traces) == 2  # in front of the scan and in it


def test_no_steps(forecaster):
    layer, params = forecaster
    run = jr.scheduled_sampling(layer, params, numbers()[:, :0], 0.5, key=KEY)
    assert run.outputs.shape == (BATCH, 0, 2)
    assert_close(run.carry, layer.initial_carry(params, (BATCH,)))


def test_under_vmap_rows_are_rows(forecaster):
    layer, params = forecaster
    xs = numbers()
    rates = np.broadcast_to(OWN[0], (BATCH, T)) * 1.0
    whole = jr.scheduled_sampling(layer, params, xs, rates, key=KEY, feed=double)

    def one(xs):
        return jr.scheduled_sampling(layer, params, xs, rates[0], key=KEY, feed=double)

    assert_close(jax.vmap(one)(xs)[:2], whole[:2])


@pytest.mark.parametrize("rate", [-0.1, 1.5, np.nan, np.ones(3)])
def test_rates_that_are_none(rate):
    with pytest.raises(ValueError, match="^rate must"):
        jr.scheduled_sampling(ECHO, (), jnp.ones((4, 1)), rate, key=KEY)


def test_errors_name_the_argument():
    xs = jnp.ones((4, 1))
    with pytest.raises(TypeError, match="^rate must be a number"):
        jr.scheduled_sampling(ECHO, (), xs, "half", key=KEY)
    with pytest.raises(ValueError, match="^key must be a PRNG key"):
        jr.scheduled_sampling(ECHO, (), xs, 0.5, key=None)
    with pytest.raises(TypeError, match="^feed must be a function"):
        jr.scheduled_sampling(ECHO, (), xs, 0.5, key=KEY, feed=3)
    with pytest.raises(ValueError, match=r"^feed\(y, x, key\) must have the shape \(1,\)"):
        jr.scheduled_sampling(ECHO, (), xs, 0.5, key=KEY, feed=lambda y, x, key: y[None])
    with pytest.raises(TypeError, match=r"^feed\(y, x, key\) must have the dtype float32"):
        jr.scheduled_sampling(ECHO, (), xs, 0.5, key=KEY, feed=lambda y, x, key: y > 0)
    with pytest.raises(TypeError, match="must be a Cell or a Layer, got int"):
        jr.teacher_forced(3, (), xs)


def test_errors_name_the_steps_to_come():
    prompt, future = jnp.ones((2, 1, 2)), jnp.ones((2, 3, 2))
    cases = [
        ({}, ValueError, "^num_steps or future must be given, and not both, got neither"),
        ({"num_steps": 3, "future": future}, ValueError, "^num_steps or future .* got both"),
        ({"future": future[:, :0]}, ValueError, "^future must have at least one step"),
        ({"future": future[:1]}, ValueError, r"^future must have the shape \(2, 3, 2\)"),
        ({"future": future[..., :1]}, ValueError, r"^future must have the shape \(2, 3, 2\)"),
        ({"future": future.astype(int)}, TypeError, "^future must have the dtype float32"),
        ({"future": (future,)}, TypeError, "^future must have the structure"),
    ]
    for arguments, error, message in cases:
        with pytest.raises(error, match=message):
            jr.free_run(SUM, (), prompt, feed=keep, **arguments)
    with pytest.raises(ValueError, match="^feed must be given with future"):
        jr.free_run(ECHO, (), prompt, future=future)
    for missing in (jnp.ones((2, 2)), 2 * jnp.ones((2, 3))):
        with pytest.raises(ValueError, match="^missing must"):
            jr.impute(SUM, (), future, missing, feed=keep)


def test_what_sees_the_future_does_not_generate():
    layer = jr.bidirectional(jr.gru(2), jr.gru(2))
    params = layer.init(KEY, 1)
    for run in (
        lambda: jr.teacher_forced(layer, params, jnp.ones((4, 1))),
        lambda: jr.scheduled_sampling(layer, params, jnp.ones((4, 1)), 0.5, key=KEY),
        lambda: jr.impute(layer, params, jnp.ones((4, 1)), jnp.ones(4)),
        lambda: jr.free_run(layer, params, jnp.ones((4, 1)), 3),
        lambda: jr.generate(layer, params, jnp.ones(4, int), 3),
    ):
        with pytest.raises(ValueError, match="model must be causal"):
            run()


def test_a_training_step_without_a_key_raises():
    def loss_fn(params, batch, key):
        return jr.scheduled_sampling(ECHO, params, batch, 0.5, key=key).outputs.sum(), {}

    step = jr.make_train_step(loss_fn, optax.sgd(0.1))
    state = jr.TrainState.create(jnp.zeros(()), optax.sgd(0.1))
    with pytest.raises(ValueError, match="scheduled_sampling draws noise but train_step got no"):
        step(state, jnp.ones((4, 1)))
