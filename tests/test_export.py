"""A whole training step lowers for every platform, and low precision stays out of the carry."""

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr

CELLS = {
    "elman": lambda **options: jr.elman(8, **options),
    "lstm": lambda **options: jr.lstm(8, **options),
    "gru": lambda **options: jr.gru(8, **options),
    "mgu": lambda **options: jr.mgu(8, **options),
}


@pytest.mark.parametrize("checkpoint", [None, "sqrt"])
def test_lstm_training_step_exports(checkpoint):
    cell = jr.lstm(8)
    evaluator = jr.sequential(checkpoint=checkpoint)

    def loss_fn(params, batch, key):
        outputs = jr.unroll(
            cell,
            params,
            batch["xs"],
            mask=batch["mask"],
            reset=batch["reset"],
            evaluator=evaluator,
        ).outputs
        return jr.mean_over_steps((outputs**2).sum(-1), batch["mask"]), {}

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    state = jr.TrainState.create(cell.init(jax.random.key(0), 3), optimizer)
    batch = {
        "xs": jnp.ones((2, 12, 3)),
        "mask": jr.mask_from_lengths(jnp.array([12, 5]), 12),
        "reset": jnp.zeros((2, 12), bool).at[0, 6].set(True),
    }
    train_step = jax.jit(jr.make_train_step(loss_fn, optimizer))
    platforms = ("cpu", "cuda", "tpu")
    exported = jax.export.export(train_step, platforms=platforms)(state, batch)
    assert exported.platforms == platforms
    called, direct = exported.call(state, batch), train_step(state, batch)
    chex.assert_trees_all_close(called, direct, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CELLS)
def test_bfloat16_inputs_run_in_a_float32_carry(name):
    cell = CELLS[name]()
    params = cell.init(jax.random.key(0), 4)
    xs = jax.random.normal(jax.random.key(1), (3, 20, 4), jnp.bfloat16)
    rollout = jr.unroll(cell, params, xs)
    assert rollout.outputs.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(rollout.carry)} == {jnp.dtype("float32")}
    exact = jr.unroll(cell, params, xs.astype(jnp.float32)).outputs
    np.testing.assert_allclose(rollout.outputs.astype(jnp.float32), exact, atol=4e-3)


@pytest.mark.parametrize("name", CELLS)
def test_bfloat16_parameters_are_drawn_in_float32(name):
    cell = CELLS[name](param_dtype=jnp.bfloat16)
    params = cell.init(jax.random.key(0), 4)
    exact = CELLS[name]().init(jax.random.key(0), 4)
    for leaf, wide in zip(jax.tree.leaves(params), jax.tree.leaves(exact), strict=True):
        assert leaf.dtype == jnp.bfloat16
        np.testing.assert_array_equal(leaf, wide.astype(jnp.bfloat16))
    rollout = jr.unroll(cell, params, jnp.ones((2, 5, 4), jnp.bfloat16))
    assert {leaf.dtype for leaf in jax.tree.leaves(rollout.carry)} == {jnp.dtype("float32")}
    assert jnp.isfinite(rollout.outputs).all()


def test_a_state_beyond_float16_stays_finite():
    """A relu state that grows by 5 % a step leaves float16 (65,504) within 400 steps."""
    cell = jr.elman(1, activation=jax.nn.relu)
    params = jr.cells.ElmanParams(jnp.ones((1, 1)), jnp.full((1, 1), 1.05), jnp.zeros(1))
    xs = jnp.ones((400, 1), jnp.bfloat16)
    rollout = jr.unroll(cell, params, xs)
    expected = (1.05**400 - 1) / 0.05
    assert expected > float(np.finfo(np.float16).max)
    np.testing.assert_allclose(rollout.carry.h[0], expected, rtol=1e-3)
    assert jnp.isfinite(rollout.outputs).all()

    def half(h, x):
        return (h * jnp.float16(1.05) + x).astype(jnp.float16), None

    naive, _ = jax.lax.scan(half, jnp.float16(0), jnp.ones(400, jnp.float16))
    assert not jnp.isfinite(naive)
