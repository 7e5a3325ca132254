"""What the classical cells have in common."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, P = 3, 5, 2
KEY = jax.random.key(0)

EVERYTHING = {"peephole": True, "projection": P, "coupled": True, "layer_norm": True}
# The factory, its options, and the number of gates.
CELLS = {
    "elman": (jr.elman, {}, 1),
    "mgu": (jr.mgu, {}, 2),
    "gru": (jr.gru, {}, 3),
    "gru before": (jr.gru, {"reset_after": False}, 3),
    "lstm": (jr.lstm, {}, 4),
    "lstm coupled": (jr.lstm, {"coupled": True}, 3),
    "lstm projection": (jr.lstm, {"projection": P}, 4),
    "lstm everything": (jr.lstm, EVERYTHING, 3),
}
each_cell = pytest.mark.parametrize("name", CELLS)


def make(name, dtype=jnp.float32):
    factory, options, num_gates = CELLS[name]
    cell = factory(H, **options, param_dtype=dtype)
    return cell, cell.init(KEY, D), num_gates


@each_cell
def test_every_gate_starts_orthogonal(name):
    """keras#9149: an orthogonal matrix of all gates has blocks that are not."""
    _, params, num_gates = make(name)
    for gate in np.split(np.asarray(params.recurrent_kernel), num_gates, axis=1):
        product = gate.T @ gate if gate.shape[0] == H else gate @ gate.T
        assert np.abs(product - np.eye(len(product))).max() < 1e-5


@each_cell
def test_shapes(name):
    """trax#1078: the state had the width of the input."""
    cell, params, num_gates = make(name)
    width = cell.num_outputs(D)
    assert params.kernel.shape == (D, num_gates * H)
    assert params.recurrent_kernel.shape == (width, num_gates * H)
    assert params.bias.shape == (num_gates * H,)
    assert cell.initial_carry(params, (4, 2)).h.shape == (4, 2, width)
    assert not any(leaf.any() for leaf in jax.tree.leaves(cell.initial_carry(params, (4,))))


@each_cell
def test_same_key_same_params_and_another_key_others(name):
    cell, params, _ = make(name)
    again, other = cell.init(KEY, D), cell.init(jax.random.key(1), D)
    jax.tree.map(np.testing.assert_array_equal, params, again)
    assert not np.array_equal(params.kernel, other.kernel)
    assert not np.array_equal(params.recurrent_kernel, other.recurrent_kernel)


@each_cell
def test_bfloat16_params_run_in_float32(name):
    cell, params, _ = make(name, jnp.bfloat16)
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(params))
    xs = jnp.ones((2, D), jnp.bfloat16)
    rollout = jax.jit(lambda params: jr.unroll(cell, params, xs))(params)
    assert rollout.outputs.dtype == jnp.bfloat16
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(rollout.carry))


@each_cell
def test_in_float64_split_is_advance_and_all_parameters_are_learned(name, x64):
    cell, params, _ = make(name, jnp.float64)
    assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(params))
    # Peepholes and biases start at zero.
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    carry = jax.tree.map(lambda leaf: leaf + 0.3, cell.initial_carry(params, (4,)))
    x = jax.random.normal(jax.random.key(1), (4, D), jnp.float64)

    def step(params, x):
        carry_after = cell.advance(params, carry, cell.project(params, x))
        y = cell.emit(params, carry_after, x)
        return jnp.sum(jnp.sin(y)), (y, carry_after)

    gradients, (y, carry_after) = jax.jit(jax.grad(step, argnums=(0, 1), has_aux=True))(params, x)
    assert y.dtype == jnp.float64 and y.shape == (4, cell.num_outputs(D))
    assert all(jnp.all(jnp.abs(leaf) > 0) for leaf in jax.tree.leaves(gradients))
    assert isinstance(cell.advance, jr.Split) == ("projection" not in CELLS[name][1])


@pytest.mark.parametrize("factory", [jr.elman, jr.lstm, jr.gru, jr.mgu])
@pytest.mark.parametrize(
    ("num_units", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)]
)
def test_a_wrong_width_raises(factory, num_units, error):
    with pytest.raises(error, match=rf"num_units must be .*, got {num_units}"):
        factory(num_units)


@pytest.mark.parametrize("factory", [jr.elman, jr.lstm, jr.gru, jr.mgu])
def test_a_wrong_dtype_raises(factory):
    with pytest.raises(TypeError, match="param_dtype.* must be real and floating, got"):
        factory(H, param_dtype=jnp.int32).init(KEY, D)


@pytest.mark.parametrize(
    ("factory", "options", "error", "message"),
    [
        (jr.elman, {"activation": "tanh"}, TypeError, "activation must be a function, got 'tanh'"),
        (jr.gru, {"reset_after": "no"}, TypeError, "reset_after must be True or False, got 'no'"),
        (jr.lstm, {"peephole": 1}, TypeError, "peephole must be True or False, got 1"),
        (jr.lstm, {"coupled": None}, TypeError, "coupled must be True or False, got None"),
        (jr.lstm, {"layer_norm": jnp.tanh}, TypeError, "layer_norm must be True or False, got"),
        (jr.lstm, {"projection": 0}, ValueError, "projection must be at least 1, got 0"),
        (jr.lstm, {"projection": True}, TypeError, "projection must be an int, got True"),
        (jr.lstm, {"chrono": 2}, ValueError, "chrono must be at least 3 steps, got 2"),
        (jr.lstm, {"chrono": 10.0}, TypeError, "chrono must be an int, got 10.0"),
        (jr.lstm, {"forget_bias": "1"}, TypeError, "forget_bias must be a float, got '1'"),
        (jr.lstm, {"forget_bias": jnp.inf}, ValueError, "forget_bias must be finite, got inf"),
        (
            jr.lstm,
            {"forget_bias": 1.0, "chrono": 10},
            ValueError,
            "forget_bias must be left out when chrono is given, got 1.0",
        ),
    ],
)
def test_a_wrong_option_raises(factory, options, error, message):
    with pytest.raises(error, match=message):
        factory(H, **options)
