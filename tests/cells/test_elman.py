import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

D, H, T = 3, 4, 7


def test_one_linear_unit():
    # h = x + h / 2: 1, then 2 + 1/2, then 0 + 5/4.
    params = jr.cells.ElmanParams(jnp.ones((1, 1)), jnp.full((1, 1), 0.5), jnp.zeros(1))
    cell = jr.elman(1, activation=lambda u: u)
    rollout = jr.unroll(cell, params, jnp.array([[1.0], [2.0], [0.0]]))
    np.testing.assert_array_equal(rollout.outputs[:, 0], [1, 5 / 2, 5 / 4])
    np.testing.assert_array_equal(rollout.carry.h, [5 / 4])


def test_one_tanh_unit(x64):
    # h = tanh(x / 2 + h / 2) of 1, 2, 0.
    half = jnp.full((1, 1), 0.5, jnp.float64)
    params = jr.cells.ElmanParams(half, half, jnp.zeros(1, jnp.float64))
    states = [0.46211715726000974, 0.8428861033202313, 0.3981454286562773]
    xs = jnp.array([[1.0], [2.0], [0.0]], jnp.float64)
    rollout = jr.unroll(jr.elman(1), params, xs)
    np.testing.assert_allclose(rollout.outputs[:, 0], states, rtol=1e-14)


def step(x, h, Wxh, Whh, bh):
    return np.tanh(Wxh @ x + Whh @ h + bh)


def unroll(xs, Wxh, Whh, bh, h0=None):
    h = np.zeros(Whh.shape[0]) if h0 is None else h0
    states = []
    for x in xs:
        h = step(x, h, Wxh, Whh, bh)
        states.append(h)
    return np.stack(states)


@pytest.mark.parametrize("from_zero", [True, False])
def test_against_the_loop(x64, from_zero):
    cell = jr.elman(H, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)._replace(bias=jnp.linspace(-1.0, 1.0, H))
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    h0 = None if from_zero else jnp.linspace(0.5, -0.5, H)
    states = unroll(xs, np.transpose(params.kernel), np.transpose(params.recurrent_kernel),
                    params.bias, h0)  # fmt: skip
    rollout = jr.unroll(cell, params, xs, carry=None if from_zero else jr.cells.ElmanCarry(h0))
    np.testing.assert_allclose(rollout.outputs, states, rtol=1e-10)
    np.testing.assert_allclose(rollout.carry.h, states[-1], rtol=1e-10)


@pytest.mark.parametrize(
    ("activation", "in_numpy"),
    [(jax.nn.relu, lambda u: np.maximum(u, 0)), (jnp.sin, np.sin), (lambda u: u, lambda u: u)],
)
def test_any_activation(x64, activation, in_numpy):
    cell = jr.elman(H, activation, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    h, states = np.zeros(H), []
    for x in xs:
        h = in_numpy(x @ params.kernel + h @ params.recurrent_kernel + params.bias)
        states.append(h)
    np.testing.assert_allclose(jr.unroll(cell, params, xs).outputs, states, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(("num_inputs", "num_units"), [(1, 1), (3, 5), (10, 4)])
def test_parameter_count(num_inputs, num_units):
    params = jr.elman(num_units).init(jax.random.key(0), num_inputs)
    count = num_inputs * num_units + num_units**2 + num_units
    assert num_numbers(params) == count
    assert not params.bias.any()


def num_numbers(params):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(("num_inputs", "num_units", "num_classes"), [(1, 1, 1), (10, 4, 3)])
def test_parameter_count_of_a_classifier(num_inputs, num_units, num_classes):
    """flax#3746: a second bias is H parameters more that add nothing."""
    model = jr.serial(jr.elman(num_units), jr.dense(num_classes))
    recurrence = num_inputs * num_units + num_units**2 + num_units
    readout = num_classes * num_units + num_classes
    params = model.init(jax.random.key(0), num_inputs)
    assert num_numbers(params) == recurrence + readout
    of_torch = num_units * (num_inputs + num_units + 2)
    assert of_torch - num_numbers(params[0]) == num_units


def test_the_gradient_reaches_back_by_the_product_of_jacobians(x64):
    # dh_3 / dh_0 = J_3 J_2 J_1 with J_t = diag(1 - h_t^2) Uᵀ; the factors do not commute.
    cell = jr.elman(H, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (3, D), jnp.float64)
    h0 = jnp.linspace(-0.5, 0.5, H)

    def last(h0):
        return jr.unroll(cell, params, xs, carry=jr.cells.ElmanCarry(h0)).carry.h

    product, turned = np.eye(H), np.eye(H)
    for h in jr.unroll(cell, params, xs, carry=jr.cells.ElmanCarry(h0)).outputs:
        jacobian = np.diag(1 - h**2) @ np.transpose(params.recurrent_kernel)
        product, turned = jacobian @ product, turned @ jacobian
    got = jax.jit(jax.jacobian(last))(h0)
    np.testing.assert_allclose(got, product, rtol=1e-10, atol=1e-14)
    assert np.abs(got - turned).max() > 1e-3


def test_two_kernels_are_one_kernel_of_the_concatenated_vector(x64):
    cell = jr.elman(4, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 3)
    x, h = jax.random.normal(jax.random.key(1), (3,)), jax.random.normal(jax.random.key(2), (4,))
    folded = jnp.concatenate([params.kernel, params.recurrent_kernel])
    want = jnp.tanh(jnp.concatenate([x, h]) @ folded + params.bias)
    carry = cell.initial_carry(params)._replace(h=h)
    np.testing.assert_allclose(jr.step(cell, params, carry, x)[1], want, rtol=1e-13)
