import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.engine.evaluators.newton.newton import newton
from jaxrnn.testing import check_cell

D, H, HEADS, T = 3, 6, 2, 11


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def oracle(params, xs, exponential_forget_gate=False):
    """One row, gate after gate and head after head, without a stabiliser."""
    num_heads, width, _ = params.recurrent_kernel.shape
    num_units = num_heads * width
    kernels = np.split(np.asarray(params.kernel), 4, axis=1)
    biases = np.split(np.asarray(params.bias), 4)
    blocks = np.zeros((4, num_units, num_units))
    for head in range(num_heads):
        rows = slice(head * width, (head + 1) * width)
        for gate in range(4):
            columns = slice(gate * width, (gate + 1) * width)
            blocks[gate][rows, rows] = params.recurrent_kernel[head][:, columns]
    h = c = n = np.zeros(num_units)
    outputs = []
    for x in np.asarray(xs):
        i, f, g, o = (x @ kernels[k] + h @ blocks[k] + biases[k] for k in range(4))
        f = np.exp(f) if exponential_forget_gate else sigmoid(f)
        c = f * c + np.exp(i) * np.tanh(g)
        n = f * n + np.exp(i)
        h = sigmoid(o) * c / n
        outputs.append(h)
    return np.array(outputs), c, n


def random_params(cell, seed=0, num_inputs=D):
    params = cell.init(jax.random.key(seed), num_inputs)
    return params._replace(bias=params.bias + jax.random.normal(jax.random.key(9), (4 * H,)))


def started_at(cell, m):
    """The cell with another start of the stabiliser."""

    def initial_carry(params, batch_shape=()):
        carry = cell.initial_carry(params, batch_shape)
        return carry._replace(m=jnp.full_like(carry.m, m))

    return cell._replace(initial_carry=initial_carry)


def test_worked_numbers():
    # One unit, R = 0: exp(i) = 1, 2; sigmoid(f) = 1/2; tanh(g) = 1, 0 and o open.
    # c = 1 then 1/2 * 1 + 2 * 0 = 1/2;  n = 1 then 1/2 + 2 = 5/2;  h = 1 then 1/5.
    cell = jr.slstm(1)
    xs = jnp.array([[0.0, 0.0, 50.0, 50.0], [jnp.log(2.0), 0.0, 0.0, 50.0]])
    params = jr.cells.SLSTMParams(jnp.eye(4), jnp.zeros((1, 1, 4)), jnp.zeros(4))
    rollout = jr.unroll(cell, params, xs)
    np.testing.assert_allclose(rollout.outputs[:, 0], [1.0, 0.2], rtol=1e-6)
    scale = np.exp(rollout.carry.m)
    np.testing.assert_allclose(rollout.carry.c * scale, [0.5], rtol=1e-6)
    np.testing.assert_allclose(rollout.carry.n * scale, [2.5], rtol=1e-6)


@pytest.mark.parametrize("exponential_forget_gate", [False, True])
@pytest.mark.parametrize("num_heads", [1, HEADS, H])
def test_against_the_unstabilised_equations(x64, num_heads, exponential_forget_gate):
    cell = jr.slstm(
        H, num_heads, exponential_forget_gate=exponential_forget_gate, param_dtype=jnp.float64
    )
    params = random_params(cell)
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    rollout = jr.unroll(cell, params, xs)
    outputs, c, n = oracle(params, xs, exponential_forget_gate)
    scale = np.exp(rollout.carry.m)
    np.testing.assert_allclose(rollout.outputs, outputs, rtol=1e-10)
    np.testing.assert_allclose(rollout.carry.c * scale, c, rtol=1e-10)
    np.testing.assert_allclose(rollout.carry.n * scale, n, rtol=1e-10)


def test_the_start_of_the_stabiliser_changes_no_output_and_no_gradient(x64):
    cell = jr.slstm(H, HEADS, param_dtype=jnp.float64)
    params = random_params(cell)
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)

    def run(m):
        def loss(params, xs):
            outputs = jr.unroll(started_at(cell, m), params, xs).outputs
            return jnp.sum(jnp.sin(outputs)), outputs

        return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(params, xs)

    want = run(-1e30)
    for m in (0.0, -3.0, 2.0):
        jax.tree.map(
            lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12),
            run(m),
            want,
        )


def test_the_same_memory_over_another_stabiliser(x64):
    cell = jr.slstm(H, HEADS, param_dtype=jnp.float64)
    params = random_params(cell)
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    carry = jr.unroll(cell, params, xs[:5]).carry
    shifted = carry._replace(c=carry.c * np.exp(-3), n=carry.n * np.exp(-3), m=carry.m + 3)
    want = jr.unroll(cell, params, xs[5:], carry=carry).outputs
    got = jr.unroll(cell, params, xs[5:], carry=shifted).outputs
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_laws():
    check_cell(jr.slstm(4, 2), evaluators=(jr.sequential(checkpoint="sqrt"), newton()))
    check_cell(started_at(jr.slstm(3, exponential_forget_gate=True), -20.0))


def test_masks_resets_and_newton_from_the_real_start(x64):
    cell = jr.slstm(H, HEADS, param_dtype=jnp.float64)
    params = random_params(cell)
    mask = jnp.array(
        [
            [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
            [1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
            [1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 1],
            [0] * 11,
        ],
        bool,
    )
    reset = jnp.zeros_like(mask).at[:, 4].set(True).at[2, 8].set(True)
    xs = jax.random.normal(jax.random.key(1), (4, T, D), jnp.float64)
    poisoned = jnp.where(mask[..., None], xs, jnp.nan)

    def loss(params, xs, evaluator):
        rollout = jr.unroll(cell, params, xs, mask=mask, reset=reset, evaluator=evaluator)
        return jnp.sum(jnp.sin(rollout.outputs)), rollout

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True), static_argnums=2)
    gradients, rollout = gradient(params, poisoned, None)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((gradients, rollout)))
    for row in range(3):
        start = 0
        for stop in [*np.flatnonzero(reset[row]), T]:
            real = np.flatnonzero(mask[row, start:stop]) + start
            want = oracle(params, xs[row, real])[0].reshape(-1, H)
            np.testing.assert_allclose(rollout.outputs[row, real], want, rtol=1e-10)
            start = stop
    np.testing.assert_array_equal(rollout.carry.m[3], -1e30)

    newton_gradients, newton_rollout = gradient(params, poisoned, newton())
    assert newton_rollout.info.converged
    np.testing.assert_allclose(newton_rollout.outputs, rollout.outputs, rtol=1e-9, atol=1e-12)
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10),
        newton_gradients,
        gradients,
    )


def test_an_output_is_below_one_and_gates_of_fifty_are_no_trouble():
    cell = jr.slstm(H, HEADS)
    params = cell.init(jax.random.key(0), 4 * H)
    params = params._replace(kernel=jnp.eye(4 * H), bias=jnp.zeros_like(params.bias))
    signs = jax.random.rademacher(jax.random.key(2), (40, 4 * H))
    xs = (50 * signs).astype(jnp.bfloat16)

    def loss(params):
        rollout = jr.unroll(cell, params, xs)
        return jnp.sum(rollout.outputs.astype(jnp.float32)), rollout

    gradients, rollout = jax.jit(jax.grad(loss, has_aux=True))(params)
    assert rollout.outputs.dtype == jnp.bfloat16
    assert rollout.carry.h.dtype == jnp.float32
    assert float(jnp.abs(rollout.outputs).max()) <= 1
    assert float(rollout.carry.n.min()) >= 1
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((gradients, rollout.carry)))


def test_a_head_does_not_read_another(x64):
    cell = jr.slstm(H, HEADS, param_dtype=jnp.float64)
    params = random_params(cell)
    carry = jr.unroll(cell, params, jnp.ones((3, D))).carry
    changed = carry._replace(h=carry.h.at[0].add(0.5))
    z = jnp.zeros(4 * H)
    difference = cell.advance.mix(params, changed, z) - cell.advance.mix(params, carry, z)
    touched = np.abs(difference.reshape(4, HEADS, -1)) > 0
    assert touched[:, 0].all() and not touched[:, 1].any()


def test_wrong_heads_raise():
    with pytest.raises(ValueError, match="num_heads must divide num_units = 6, got 4"):
        jr.slstm(6, 4)
