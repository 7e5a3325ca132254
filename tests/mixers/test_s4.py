import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.cells._hippo import hippo_eigen, hippo_legs
from jaxrnn.testing import check_layer

D, N = 3, 8


def both(half):
    """A vector of conjugate pairs from one of each."""
    return np.concatenate([half, half.conj()])


def dense(params, feature):
    """A, B, C, Δ and skip of one feature, nothing left out."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf[feature]), params)
    low_rank = both(p.low_rank_real + 1j * p.low_rank_imag)
    eigenvalues = both(-np.exp(p.decay_log) + 1j * p.eigenvalue_imag)
    matrix = np.diag(eigenvalues) - np.outer(low_rank, low_rank.conj())
    enter = both(p.input_kernel_real + 1j * p.input_kernel_imag)
    leave = both(p.output_kernel_real + 1j * p.output_kernel_imag)
    return matrix, enter, leave, np.exp(p.step_log), p.skip


def oracle(params, xs, h=None):
    """One row by the trapezoidal rule with dense matrices, feature after feature."""
    outputs = np.zeros(xs.shape)
    last = []
    for feature in range(xs.shape[1]):
        matrix, enter, leave, step, skip = dense(params, feature)
        eye = np.eye(len(matrix))
        inverse = np.linalg.inv(eye - step / 2 * matrix)
        state = np.zeros(len(matrix), complex) if h is None else both(h[feature])
        for t, x in enumerate(xs[:, feature]):
            state = inverse @ ((eye + step / 2 * matrix) @ state + step * enter * x)
            outputs[t, feature] = (leave @ state).real + skip * x
        last.append(state[: len(state) // 2])
    return outputs, np.array(last)


def make(seed=0, **options):
    layer = jr.s4(N, param_dtype=jnp.float64, **options)
    return layer, layer.init(jax.random.key(seed), D)


def random_carry(layer, params, batch_shape=()):
    rng = np.random.default_rng(3)
    shape = layer.initial_carry(params, batch_shape).h.shape
    return jr.mixers.S4Carry(
        jnp.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape))
    )


def assert_close(got, want, rtol=1e-9):
    def leaf_close(got, want):
        np.testing.assert_allclose(got, want, rtol=0, atol=rtol * np.abs(want).max(initial=1e-3))

    jax.tree.map(leaf_close, got, want)


def test_it_starts_as_hippo_legs(x64):
    _, params = make()
    matrix, enter, _, _, _ = dense(params, 0)
    half = hippo_eigen(N)[1]
    vectors = np.concatenate([half, half.conj()], axis=1)
    hippo, root = hippo_legs(N)
    np.testing.assert_allclose(vectors @ matrix @ vectors.conj().T, hippo, atol=1e-12)
    np.testing.assert_allclose(vectors @ enter, root, atol=1e-12)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 8, 13, 16])
def test_convolution_and_recurrence_are_the_dense_recurrence(x64, num_steps):
    layer, params = make()
    carry = random_carry(layer, params)
    xs = np.random.default_rng(num_steps).standard_normal((num_steps, D))
    outputs, h = oracle(params, xs, np.asarray(carry.h))
    no_reset = np.zeros(num_steps, bool)
    for reset, path in ((None, jr.convolution()), (no_reset, jr.sequential())):
        rollout = jr.unroll(layer, params, xs, carry=carry, reset=reset)
        assert rollout.info == (jr.sequential() if num_steps == 1 else path)
        assert_close((rollout.outputs, rollout.carry.h), (outputs, h), 1e-10)


def test_the_same_params_for_every_length(x64):
    # The kernel of 30 steps begins with the kernel of 11: no length is part of the parameters.
    layer, params = make()
    impulse = np.zeros((30, D))
    impulse[0] = 1
    long = jr.unroll(layer, params, impulse).outputs
    short = jr.unroll(layer, params, impulse[:11]).outputs
    assert_close(short, long[:11], 1e-11)


def test_convolution_with_masks_carries_and_gradients(x64):
    layer, params = make()
    num_steps = 11
    mask = np.random.default_rng(1).random((5, num_steps)) < 0.5
    mask[0], mask[1] = True, False
    mask[2] = np.arange(num_steps) < 6
    mask[3] = np.arange(num_steps) >= 6
    xs = np.random.default_rng(2).standard_normal((5, num_steps, D))
    poisoned = np.where(mask[..., None], xs, np.nan)
    carry = random_carry(layer, params, (5,))

    def compiled(reset):
        def loss(params, xs, carry):
            rollout = jr.unroll(layer, params, xs, carry=carry, mask=mask, reset=reset)
            h = rollout.carry.h
            value = jnp.sum(jnp.sin(rollout.outputs)) + jnp.sum(jnp.sin(h.real) + h.imag**2)
            return value, rollout[:2]

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))

    want = compiled(np.zeros((5, num_steps), bool))(params, poisoned, carry)
    got = compiled(None)(params, poisoned, carry)
    assert_close(got, want)
    assert_close(got[1][0].h[1], carry.h[1])
    for row in range(5):
        outputs, h = oracle(params, xs[row, mask[row]], np.asarray(carry.h[row]))
        assert_close(got[1][1][row, mask[row]], outputs)
        assert_close(got[1][0].h[row], h)


def test_chunks_of_a_stream_by_convolution(x64):
    layer, params = make()
    xs = np.random.default_rng(2).standard_normal((2, 12, D))
    whole = jr.unroll(layer, params, xs)
    carry, outputs = None, []
    for start, stop in ((0, 5), (5, 6), (6, 12)):
        rollout = jr.unroll(layer, params, xs[:, start:stop], carry=carry)
        carry = rollout.carry
        outputs.append(rollout.outputs)
    assert_close((np.concatenate(outputs, axis=1), carry), (whole.outputs, whole.carry), 1e-11)


def test_nan_reaches_no_earlier_step_and_no_other_row(x64):
    layer, params = make()
    xs = np.random.default_rng(2).standard_normal((2, 8, D))
    clean = jr.unroll(layer, params, xs)
    xs[0, 5, 1] = np.nan
    dirty = jr.unroll(layer, params, xs)
    assert_close(dirty.outputs[0, :5], clean.outputs[0, :5], 1e-14)
    np.testing.assert_array_equal(dirty.outputs[1], clean.outputs[1])
    assert np.isnan(dirty.outputs[0, 5:, 1]).all() and np.isnan(dirty.carry.h[0, 1]).all()


def test_no_steps(x64):
    layer, params = make()
    carry = random_carry(layer, params)
    rollout = jr.unroll(layer, params, jnp.zeros((0, D)), carry=carry)
    assert rollout.outputs.shape == (0, D)
    np.testing.assert_array_equal(rollout.carry.h, carry.h)


def test_laws():
    check_layer(jr.s4(4))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_low_precision(dtype):
    layer = jr.s4(N, param_dtype=dtype)
    params = layer.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (2, 64, D), jnp.bfloat16)

    def loss(params, reset):
        rollout = jr.unroll(layer, params, xs, reset=reset)
        return jnp.sum(rollout.outputs.astype(jnp.float32)), rollout[:2]

    gradient = jax.jit(jax.grad(loss, has_aux=True))
    result, by_steps = gradient(params, None), gradient(params, jnp.zeros((2, 64), bool))
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(result))
    assert result[1][1].dtype == jnp.bfloat16 and result[1][0].h.dtype == jnp.complex64
    # The outputs are rounded to bfloat16 once, so they differ by one unit in the last place.
    outputs = (leaf[1][1].astype(jnp.float32) for leaf in (result, by_steps))
    np.testing.assert_allclose(*outputs, rtol=1e-2, atol=2e-2)
    assert_close(result[1][0].h, by_steps[1][0].h, 1e-3)


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="state_size must be even"):
        jr.s4(5)
    with pytest.raises(ValueError, match="step_min"):
        jr.s4(4, step_min=0.2, step_max=0.1)
    layer, params = jr.s4(4), jr.s4(4).init(jax.random.key(0), D)
    with pytest.raises(ValueError, match="init makes for inputs of width 2"):
        jr.unroll(layer, params, jnp.ones((5, 2)))
