import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

D, T, BATCH = 3, 9, 4


def oracle(params, xs, mask, reset):
    """One row, from the list of the real steps of the sequence so far."""
    kernel = np.asarray(params.kernel)
    seen, outputs = [], []
    for x, real, new in zip(np.asarray(xs), mask, reset, strict=True):
        if new:
            seen = []
        if real:
            seen.append(x)
        last = seen[-len(kernel) :]
        terms = [row * step for row, step in zip(kernel[::-1], last[::-1], strict=False)]
        outputs.append(np.sum(terms, 0) + params.bias if real else 0 * x)
    return np.array(outputs), seen


def flags(seed=0):
    generator = np.random.default_rng(seed)
    return generator.random((BATCH, T)) < 0.7, generator.random((BATCH, T)) < 0.25


def test_a_worked_number():
    params = jr.mixers.CausalConvParams(jnp.array([[1.0], [10.0], [100.0]]), jnp.array([0.5]))
    xs = jnp.array([[1.0], [2.0], [3.0], [4.0]])
    ys = jr.unroll(jr.causal_conv(3), params, xs).outputs
    np.testing.assert_array_equal(ys[:, 0], [100.5, 210.5, 321.5, 432.5])
    ys = jr.unroll(jr.causal_conv(3), params, xs, mask=jnp.array([1, 0, 1, 1])).outputs
    np.testing.assert_array_equal(ys[:, 0], [100.5, 0, 310.5, 431.5])


@pytest.mark.parametrize("width", [1, 2, 4, T + 3])
def test_masks_and_resets_anywhere(x64, width):
    layer = jr.causal_conv(width, param_dtype=jnp.float64)
    params = layer.init(jax.random.key(0), D)
    params = params._replace(bias=jnp.arange(1.0, D + 1))
    xs = jax.random.normal(jax.random.key(1), (BATCH, T, D), jnp.float64)
    mask, reset = flags()
    rollout = jr.unroll(layer, params, xs, mask=mask, reset=reset)
    for row in range(BATCH):
        want, seen = oracle(params, xs[row], mask[row], reset[row])
        np.testing.assert_allclose(rollout.outputs[row], want, rtol=1e-12, atol=1e-14)
        kept = seen[max(0, len(seen) - width + 1) :]
        steps, count = np.asarray(rollout.carry.steps[row]), int(rollout.carry.count[row])
        assert count == len(kept)
        np.testing.assert_array_equal(steps[width - 1 - count :], np.reshape(kept, (count, D)))
        assert not steps[: width - 1 - count].any()


@pytest.mark.parametrize("width", [1, 3, pytest.param(12, marks=pytest.mark.slow)])
def test_the_laws(width):
    check_layer(jr.causal_conv(width, jax.nn.silu))


def test_without_a_bias():
    layer = jr.causal_conv(2, use_bias=False)
    params = layer.init(jax.random.key(0), D)
    assert params.bias is None
    assert jr.unroll(layer, params, jnp.ones((T, D))).outputs.shape == (T, D)


def test_a_mask_of_ones_changes_no_bit():
    layer = jr.causal_conv(3)
    params = layer.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (BATCH, T, D))
    plain = jr.unroll(layer, params, xs)
    masked = jr.unroll(layer, params, xs, mask=jnp.ones((BATCH, T), bool))
    for got, want in zip(*map(jax.tree.leaves, (masked, plain)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_nan_leaves_the_window_after_width_steps():
    layer = jr.causal_conv(3)
    params = layer.init(jax.random.key(0), D)
    ys = jr.unroll(layer, params, jnp.ones((T, D)).at[4].set(jnp.nan)).outputs
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(ys[:, 0])), [4, 5, 6])


def test_sums_of_bfloat16_inputs_run_in_float32():
    layer = jr.causal_conv(2)
    params = jr.mixers.CausalConvParams(jnp.array([[1.0], [256.0]]), jnp.array([-255.0]))
    xs = jnp.ones((2, 1), jnp.bfloat16)
    rollout = jr.unroll(layer, params, xs)
    # 1 + 256 is no bfloat16.
    np.testing.assert_array_equal(rollout.outputs[:, 0], [1, 2])
    assert rollout.outputs.dtype == jnp.bfloat16
    assert rollout.carry.steps.dtype == jnp.float32


def test_the_kernel_starts_in_its_range():
    kernel = jr.causal_conv(4).init(jax.random.key(0), 1000).kernel
    assert 0.49 < jnp.abs(kernel).max() <= 0.5
    assert abs(kernel.std() - 0.5 / np.sqrt(3)) < 0.01


def test_errors():
    with pytest.raises(ValueError, match="width must be at least 1"):
        jr.causal_conv(0)
    with pytest.raises(TypeError, match="activation must be a function"):
        jr.causal_conv(2, "silu")
    layer = jr.causal_conv(2)
    params = layer.init(jax.random.key(0), D)
    match = r"params.kernel must have the shape \(2, 1\) .* inputs of width 1, got \(2, 3\)"
    with pytest.raises(ValueError, match=match):
        jr.unroll(layer, params, jnp.ones((T, 1)))
