import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

KEY = jax.random.key(0)
WEIGHTLESS = jr.cells.ElmanParams(jnp.ones((1, 1)), jnp.zeros((1, 1)), jnp.zeros(1))


def test_tanh_is_one_beyond_roughly_nine(x64):
    """1 - tanh² in the precision asked about; the run itself may be wider."""
    arguments = jnp.arange(-25.0, 25.25, 0.25)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), WEIGHTLESS)
    cell = jr.elman(1, param_dtype=jnp.float64)
    flat = {}
    for dtype in (jnp.float64, jnp.float32, jnp.bfloat16):
        shares = jr.saturation(cell, params, arguments[:, None], dtype=dtype)
        flat[dtype] = float(jnp.abs(arguments)[shares == 1].min())
        assert ((shares == 1) == (jnp.abs(arguments) >= flat[dtype])).all()
    assert 7.5 <= flat[jnp.float32] <= 9.5
    assert 2 < flat[jnp.bfloat16] < 5
    assert 18 < flat[jnp.float64] < 25


def test_gates_are_counted_one_by_one():
    """Three of four gates pinned; a forget gate at a carry of zero passes nothing either."""
    cell = jr.lstm(2)
    params = cell.init(KEY, 1)
    mask = jnp.array([1, 1, 0, 1])
    reset = jnp.array([0, 0, 0, 1])
    xs = jnp.ones((4, 1)).at[2].set(jnp.nan)
    shares = jax.jit(lambda params: jr.saturation(cell, params, xs, mask=mask, reset=reset))
    np.testing.assert_allclose(shares(params), [0.25, 0, 0, 0.25])
    pinned = jnp.repeat(jnp.array([200.0, 200.0, 0.1, 200.0]), 2)
    np.testing.assert_allclose(shares(params._replace(bias=pinned)), [0.75, 0.75, 0, 0.75])


def test_relu_units_below_zero_and_linear_cells():
    relu = jr.elman(4, jax.nn.relu)
    params = relu.init(KEY, 3)
    xs = jax.random.normal(KEY, (2, 5, 3))
    below = (jr.unroll(relu, params, xs).outputs == 0).mean(-1)
    np.testing.assert_allclose(jr.saturation(relu, params, xs), below)
    first = jr.saturation(relu, params, jnp.moveaxis(xs, 1, 0), time_major=True)
    np.testing.assert_allclose(first.T, below)
    average = jr.ema(0.5)
    assert (jr.saturation(average, average.init(KEY, 3), xs) == 0).all()


def test_noise_of_a_cell_is_left_out():
    cell, params = jr.elman(2), jr.elman(2).init(KEY, 3)
    xs = 20 * jax.random.normal(KEY, (6, 3))
    expected = jr.saturation(cell, params, xs)
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(jr.saturation(jr.zoneout(cell, 0.2), params, xs), expected)


def test_only_cells_have_units():
    with pytest.raises(TypeError, match="cell must be a Cell"):
        jr.saturation(jr.dense(2), (), jnp.ones((3, 2)))  # pyright: ignore
    with pytest.raises(TypeError, match="dtype must be a real floating dtype"):
        jr.saturation(jr.elman(1), WEIGHTLESS, jnp.ones((3, 1)), dtype=jnp.int32)
