import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr


def test_the_average_of_2_0_4_and_its_sensitivity_to_the_start():
    # h = 1/2 h + 1/2 x from 0: 1, then 1/2, then 2.25; ∂h₃/∂h₀ = (1/2)³.
    cell = jr.ema(0.5)
    params = cell.init(jax.random.key(0), 1)
    xs = jnp.array([[2.0], [0.0], [4.0]])

    def last(h):
        rollout = jr.unroll(cell, params, xs, carry=jr.cells.LinearCarry(h))
        return rollout.carry.h[0], rollout.outputs[:, 0]

    (_, outputs), slope = jax.value_and_grad(last, has_aux=True)(jnp.zeros(1))
    np.testing.assert_array_equal(outputs, [1.0, 0.5, 2.25])
    np.testing.assert_array_equal(slope, [0.125])


def test_weights_of_old_observations(x64):
    decays = [0.2, 0.9, 0.999]
    cell = jr.ema(decays, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 3)
    xs = np.random.default_rng(0).standard_normal((50, 3))
    ages = np.arange(50)[:, None] - np.arange(50)
    weights = [np.where(ages >= 0, (1 - a) * a ** np.maximum(ages, 0), 0) for a in decays]
    want = np.stack([weights[d] @ xs[:, d] for d in range(3)], axis=1)
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, want, rtol=1e-11)


def test_a_constant_input_is_reached_by_the_share_that_is_not_the_start(x64):
    cell = jr.ema(0.7, param_dtype=jnp.float64)
    outputs = jr.unroll(cell, cell.init(jax.random.key(0), 2), jnp.full((30, 2), 3.0)).outputs
    want = np.broadcast_to(3 * (1 - 0.7 ** np.arange(1, 31))[:, None], (30, 2))
    np.testing.assert_allclose(outputs, want, rtol=1e-12)


def test_a_decay_near_one_does_not_cancel():
    cell = jr.ema(1 - 1e-6)
    params = cell.init(jax.random.key(0), 1)
    gain = cell.project(params, jnp.ones(1)).b.h
    np.testing.assert_allclose(gain, [1e-6], rtol=1e-5)


def test_wrong_decays_raise():
    for decay in (0.0, 1.0, 1.5, -0.1):
        with pytest.raises(ValueError, match="decay must"):
            jr.ema(decay)
    with pytest.raises(TypeError, match="decay must be a float"):
        jr.ema([0.5, "slow"])
    with pytest.raises(ValueError, match="one number for each of the 3 features, got 2"):
        jr.ema([0.5, 0.9]).init(jax.random.key(0), 3)
