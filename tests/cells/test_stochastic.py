"""Zoneout and recurrent dropout: what is kept, when it is drawn, and what happens without a key."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr
from jaxrnn.engine.keys import MissingKey

KEY = jax.random.key(0)
H = 200


def counter():
    """h + 1 for every unit, so that the carry tells how often it was not kept."""
    return jr.simple_cell(
        lambda key, num_inputs: (), lambda params, carry, z: carry + 1, num_outputs=H
    )


def test_zoneout_keeps_a_unit_as_it_was():
    outputs = jr.unroll(jr.zoneout(counter(), 0.25), (), jnp.zeros((4, 20, 1)), key=KEY).outputs
    moved = np.diff(outputs, axis=1, prepend=0)
    assert set(moved.ravel().tolist()) == {0, 1}
    sigma = np.sqrt(0.25 * 0.75 / moved.size)
    assert abs(moved.mean() - 0.75) < 5 * sigma
    assert len({step.tobytes() for step in moved.reshape(-1, H)}) == 80


def test_zoneout_without_a_key_is_its_expectation():
    outputs = jr.unroll(jr.zoneout(counter(), 0.25), (), jnp.zeros((4, 1))).outputs
    np.testing.assert_allclose(outputs[:, 0], [0.75, 1.5, 2.25, 3.0], rtol=1e-6)


def test_zoneout_has_a_rate_for_every_leaf():
    """h is never kept and c nearly always: h follows the gates, c stays near 0."""
    inner = jr.lstm(H)
    cell = jr.zoneout(inner, jr.cells.LSTMCarry(h=0.0, c=0.99))
    params = inner.init(KEY, 3)
    carry = jr.unroll(cell, params, jnp.ones((1, 3)), key=KEY).carry
    plain = jr.unroll(inner, params, jnp.ones((1, 3))).carry
    np.testing.assert_array_equal(carry.h, plain.h)
    assert (carry.c == 0).mean() > 0.9


def test_zoneout_of_nothing_is_the_cell():
    cell = jr.lstm(3)
    params = cell.init(KEY, 2)
    xs = jax.random.normal(KEY, (2, 5, 2))
    want = jr.unroll(cell, params, xs)
    for key in (None, KEY):
        got = jr.unroll(jr.zoneout(cell, 0.0), params, xs, key=key)
        np.testing.assert_allclose(got.outputs, want.outputs, rtol=1e-6, atol=1e-7)


def identity(u):
    return u


def accumulator():
    """hₜ = 1 + hₜ₋₁: in the recurrent product each unit reads itself."""
    cell = jr.elman(H, activation=identity)
    return cell, jr.cells.ElmanParams(jnp.zeros((1, H)), jnp.eye(H), jnp.ones(H))


def dropped(reset=None, rate=0.5, key=KEY, batch=2, num_steps=6):
    """Which units a step reads: hₜ = 1 + m hₜ₋₁ / (1 - rate)."""
    cell, params = accumulator()
    xs = jnp.zeros((batch, num_steps, 1))
    h = jr.unroll(jr.recurrent_dropout(cell, rate), params, xs, reset=reset, key=key).outputs
    before, after = np.asarray(h[:, :-1]), np.asarray(h[:, 1:])
    kept = after != 1
    np.testing.assert_allclose(after, 1 + kept * before / (1 - rate), rtol=1e-6)
    return kept


def test_recurrent_dropout_has_one_mask_for_a_sequence():
    kept = dropped(rate=0.25)
    np.testing.assert_array_equal(kept, np.broadcast_to(kept[:, :1], kept.shape))
    assert (kept[0] != kept[1]).any()
    assert abs(kept[:, 0].mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / (2 * H))


def test_recurrent_dropout_draws_anew_at_a_reset():
    reset = np.zeros((2, 6), bool)
    reset[0, 3] = True
    kept = dropped(reset)
    # kept[:, t] belongs to step t + 1; at step 3 of row 0 the carry is the initial one.
    np.testing.assert_array_equal(kept[0, 0], kept[0, 1])
    np.testing.assert_array_equal(kept[0, 3], kept[0, 4])
    assert (kept[0, 0] != kept[0, 3]).any()
    np.testing.assert_array_equal(kept[1], np.broadcast_to(kept[1, :1], kept[1].shape))


def test_flags_that_reset_nothing_draw_what_no_flags_draw():
    np.testing.assert_array_equal(dropped(np.zeros((2, 6), bool)), dropped())


def test_keys_make_the_difference():
    """keras#19395 and tensorflow#29391: a rate without effect, masks not redrawn between calls."""
    np.testing.assert_array_equal(dropped(), dropped())
    assert (dropped() != dropped(key=jax.random.key(1))).any()
    assert not dropped(rate=0.5).all() and dropped(rate=0.0).all()


def test_recurrent_dropout_without_a_key_is_the_cell():
    cell, params = accumulator()
    want = jr.unroll(cell, params, jnp.zeros((4, 1)))
    got = jr.unroll(jr.recurrent_dropout(cell, 0.5), params, jnp.zeros((4, 1)))
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_a_gru_learns_with_recurrent_dropout():
    """keras#20276: with one mask for all gates it did not. The task is the sign of the first x."""
    cell = jr.recurrent_dropout(jr.gru(8), 0.3)
    xs = jax.random.normal(KEY, (64, 6, 1))
    signs = jnp.sign(xs[:, 0, 0])

    def loss_fn(params, key):
        return ((jr.unroll(cell, params, xs, key=key).carry.h[:, 0] - 0.8 * signs) ** 2).mean()

    optimizer, params = optax.adam(0.02), cell.init(KEY, 1)

    def update(state, key):
        params, opt_state = state
        updates, opt_state = optimizer.update(jax.grad(loss_fn)(params, key), opt_state)
        return (optax.apply_updates(params, updates), opt_state), None

    keys = jax.random.split(KEY, 300)
    (trained, _), _ = jax.jit(lambda state: jax.lax.scan(update, state, keys))(
        (params, optimizer.init(params))
    )
    assert loss_fn(params, None) > 0.5 and loss_fn(trained, None) < 0.1


def test_recurrent_dropout_leaves_the_pointwise_paths_whole():
    """The recurrent kernel is zero, so nothing may change; a dropped c would."""
    cell = jr.lstm(4)
    params = cell.init(KEY, 2)
    params = params._replace(recurrent_kernel=jnp.zeros_like(params.recurrent_kernel))
    xs = jax.random.normal(KEY, (3, 5, 2))
    got = jr.unroll(jr.recurrent_dropout(cell, 0.9), params, xs, key=KEY)
    jax.tree.map(np.testing.assert_array_equal, got, jr.unroll(cell, params, xs))


def test_noise_round_noise_draws_from_keys_of_its_own():
    """Were the keys the same, the flags of both would be the same draws."""
    inner = jr.zoneout(counter(), 0.5)
    both = jr.zoneout(inner, 0.5)
    prepared = both.prepare((), KEY, jnp.zeros((3, 1)), None)
    assert (prepared.flags != prepared.inner.flags).any()


@pytest.mark.parametrize("wrap", [jr.zoneout, jr.recurrent_dropout])
def test_a_training_step_without_a_key_raises(wrap):
    cell = wrap(jr.elman(3), 0.2)

    def loss_fn(params, batch, key):
        return (jr.unroll(cell, params, batch, key=key).outputs ** 2).mean(), {}

    optimizer = optax.sgd(0.1)
    state = jr.TrainState.create(cell.init(KEY, 2), optimizer)
    train_step = jr.make_train_step(loss_fn, optimizer)
    with pytest.raises(ValueError, match=f"{wrap.__name__} draws noise but train_step got no key"):
        train_step(state, jnp.ones((4, 2)))
    train_step(state, jnp.ones((4, 2)), KEY)


def test_a_missing_key_is_found_behind_other_wrappers():
    cell = jr.learned_initial_carry(jr.zoneout(jr.elman(3), 0.2))
    with pytest.raises(ValueError, match="zoneout draws noise"):
        jr.unroll(cell, cell.init(KEY, 2), jnp.ones((4, 2)), key=MissingKey("train_step"))


WRONG_RATES = [(1.0, ValueError), (-0.1, ValueError), ("0.1", TypeError), (True, TypeError)]


@pytest.mark.parametrize(("rate", "error"), WRONG_RATES)
def test_wrong_rates_raise(rate, error):
    with pytest.raises(error, match="rates must"):
        jr.zoneout(jr.lstm(2), jr.cells.LSTMCarry(h=0.1, c=rate))
    with pytest.raises(error, match="rate must"):
        jr.recurrent_dropout(jr.lstm(2), rate)


def test_rates_that_do_not_fit_the_carry_raise():
    cell = jr.zoneout(jr.elman(2), jr.cells.LSTMCarry(h=0.1, c=0.1))
    for key in (KEY, None):
        with pytest.raises(TypeError, match="rates must be one value or fit the carry"):
            jr.unroll(cell, cell.init(KEY, 2), jnp.ones((3, 2)), key=key)


def test_recurrent_dropout_needs_a_split():
    with pytest.raises(TypeError, match="cell must have a Split as its advance"):
        jr.recurrent_dropout(jr.lstm(2, projection=1), 0.1)
