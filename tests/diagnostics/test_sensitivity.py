import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

KEY = jax.random.key(0)
MASK = jnp.array([[1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1]], bool)
RESET = jnp.array([[0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0]], bool)


def by_finite_differences(run, xs):
    """S[t, k, row] from every entry of the inputs moved both ways, in all rows at once."""
    num_steps, num_rows, num_inputs = xs.shape
    moved = np.zeros((num_steps, num_steps, num_rows))
    for k in range(num_steps):
        for d in range(num_inputs):
            change = np.zeros(xs.shape)
            change[k, :, d] = 1e-6
            slope = (np.asarray(run(xs + change)) - np.asarray(run(xs - change))) / 2e-6
            moved[:, k] += (slope**2).sum(-1)
    return np.sqrt(moved)


def test_an_average_forgets_by_powers(x64):
    """An input m steps old has the weight (1 - α) αᵐ, and padding does not age it."""
    cell = jr.ema(0.75, param_dtype=jnp.float64)
    params = cell.init(KEY, 1)
    xs = jnp.where(MASK[..., None], 1.0, jnp.nan)
    found = jax.jit(lambda xs: jr.input_sensitivity(cell, params, xs, mask=MASK, reset=RESET))(xs)
    expected = np.zeros((2, 6, 6))
    for row in range(2):
        for t in range(6):
            age = 0
            for k in range(t, -1, -1):
                if MASK[row, k]:
                    expected[row, t, k] = 0.25 * 0.75**age * MASK[row, t]
                    age += 1
                if RESET[row, k]:
                    break
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    last = jr.last_output_sensitivity(cell, params, xs, mask=MASK, reset=RESET)
    np.testing.assert_allclose(last, expected[[0, 1], [4, 5]], rtol=1e-12, atol=1e-15)


def test_finite_differences_in_both_directions(x64):
    gru = jr.gru(2, param_dtype=jnp.float64)
    layer = jr.bidirectional(gru, gru)
    params = layer.init(KEY, 2)
    xs = jax.random.normal(KEY, (6, 2, 2))
    flags = {"mask": MASK.T, "reset": RESET.T}
    run = jax.jit(lambda xs: jr.unroll(layer, params, xs, time_major=True, **flags).outputs)
    found = jr.input_sensitivity(layer, params, xs, time_major=True, **flags)
    np.testing.assert_allclose(found, by_finite_differences(run, xs), atol=1e-8)
    assert (np.triu(found[..., 0], 1) != 0).any() and (np.tril(found[..., 0], -1) != 0).any()


def test_tiny_sensitivities_do_not_underflow():
    cell = jr.ema(0.5)
    row = jr.last_output_sensitivity(cell, cell.init(KEY, 2), jnp.ones((100, 2)))
    np.testing.assert_allclose(row[0], np.sqrt(2) * 0.5**100, rtol=1e-4)


def test_half_precision_inputs_are_looked_at_in_float32():
    cell = jr.ema(0.9)
    row = jr.last_output_sensitivity(cell, cell.init(KEY, 1), jnp.ones((3, 1), jnp.bfloat16))
    np.testing.assert_allclose(row, [0.081, 0.09, 0.1], rtol=1e-6)


@pytest.mark.parametrize(("tau", "threshold", "expected"), [(9.5, np.exp(-1), 9), (9.5, 0.01, 43)])
def test_the_horizon_of_an_average(x64, tau, threshold, expected):
    cell = jr.ema(float(np.exp(-1 / tau)), param_dtype=jnp.float64)
    params = cell.init(KEY, 1)
    mask = jnp.arange(70) % 10 != 3
    xs = jnp.where(mask[:, None], 1.0, jnp.nan)
    assert jr.memory_horizon(cell, params, xs, mask=mask, threshold=threshold) == expected
    # A reset 4 steps before the end, then 5 real steps.
    reset = jnp.arange(70) == 65
    assert jr.memory_horizon(cell, params, xs, mask=mask, reset=reset, threshold=threshold) == 4


def test_no_horizon_without_a_dependence():
    cell = jr.ema(0.5)
    params = cell.init(KEY, 1)
    mask = jnp.array([[1, 1, 1], [0, 0, 0]])
    horizons = jr.memory_horizon(cell, params, jnp.ones((2, 3, 1)), mask=mask)
    np.testing.assert_array_equal(horizons, [1, np.nan])
    with pytest.raises(ValueError, match="threshold must lie in"):
        jr.memory_horizon(cell, params, jnp.ones((3, 1)), threshold=0)


def test_tokens_have_no_derivative():
    layer = jr.serial(jr.embed(3), jr.elman(2))
    with pytest.raises(TypeError, match="xs must have a floating leaf.*int32"):
        jr.input_sensitivity(layer, layer.init(KEY, 5), jnp.array([1, 2, 3]))


def test_no_steps_have_no_sensitivity():
    cell = jr.gru(2)
    params, xs = cell.init(KEY, 3), jnp.ones((4, 0, 3))
    assert jr.input_sensitivity(cell, params, xs).shape == (4, 0, 0)
    assert jr.last_output_sensitivity(cell, params, xs).shape == (4, 0)
    assert jr.carry_norms(cell, params, xs).h.shape == (4, 0)
