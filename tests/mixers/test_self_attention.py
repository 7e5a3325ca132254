import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiler import temporary_bytes

import jaxrnn as jr
from jaxrnn.testing import check_layer

D, HEADS, T, BATCH = 8, 2, 13, 3


def rotation(position, width, base):
    """The block-diagonal matrix of the paper, its equation 15."""
    matrix = np.zeros((width, width))
    for i in range(width // 2):
        angle = position * base ** (-2 * i / width)
        pair = slice(2 * i, 2 * i + 2)
        matrix[pair, pair] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return matrix


def oracle(params, xs, mask, reset, window, base=10000.0):
    """One row, step after step and head after head, from a list of what was seen."""
    blocks = np.split(np.asarray(params.kernel), 3, axis=1)
    width = blocks[0].shape[1] // HEADS
    seen, outputs = [], []
    for x, real, new in zip(np.asarray(xs), mask, reset, strict=True):
        seen = [] if new else seen
        if not real:
            outputs.append(np.zeros(len(params.output_kernel.T)))
            continue
        seen.append(x)
        heads = []
        for head in range(HEADS):
            columns = slice(head * width, (head + 1) * width)
            rotated = [rotation(place, width, base) for place in range(len(seen))]
            q = rotated[-1] @ (x @ blocks[0][:, columns])
            k = [turn @ (s @ blocks[1][:, columns]) for turn, s in zip(rotated, seen, strict=True)]
            v = np.array(seen[-window:]) @ blocks[2][:, columns]
            weights = np.exp(np.array(k[-window:]) @ q / np.sqrt(width))
            heads.append(weights @ v / weights.sum())
        outputs.append(np.concatenate(heads) @ np.asarray(params.output_kernel))
    return np.array(outputs)


def inputs(num_steps=T, dtype=jnp.float64):
    xs = jax.random.normal(jax.random.key(1), (BATCH, num_steps, D), dtype)
    generator = np.random.default_rng(0)
    mask = generator.random((BATCH, num_steps)) < 0.8
    return 2 * xs, mask, generator.random((BATCH, num_steps)) < 0.2


@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("window", [1, 2, 5, T, T + 7])
def test_against_a_loop_over_steps(x64, window, flags):
    layer = jr.self_attention(HEADS, window=window, rotary_base=50.0, param_dtype=jnp.float64)
    params = layer.init(jax.random.key(0), D)
    xs, mask, reset = inputs()
    given = {"mask": mask, "reset": reset} if flags else {}
    got = jr.unroll(layer, params, xs, **given).outputs
    if not flags:
        mask, reset = np.ones_like(mask), np.zeros_like(reset)
    for row in range(BATCH):
        want = oracle(params, xs[row], mask[row], reset[row], window, 50.0)
        np.testing.assert_allclose(got[row], want, rtol=1e-10, atol=1e-12)


def test_worked_numbers():
    # One head of width 2 with q = k = (x, 0): a step turns by one radian, s = x_t x_j cos(t - j).
    kernel = jnp.array([[np.sqrt(np.sqrt(2.0)), 0, np.sqrt(np.sqrt(2.0)), 0, 1, 0]])
    params = jr.mixers.SelfAttentionParams(kernel, jnp.array([[1.0], [0.0]]))
    xs = jnp.array([[1.0], [2.0]])
    ys = jr.unroll(jr.self_attention(1, window=2), params, xs).outputs
    weights = np.exp([2 * np.cos(1.0), 4.0])
    np.testing.assert_allclose(ys[:, 0], [1.0, weights @ [1, 2] / weights.sum()], rtol=1e-6)
    ys = jr.unroll(jr.self_attention(1, window=1), params, xs).outputs
    np.testing.assert_allclose(ys[:, 0], [1.0, 2.0], rtol=1e-6)


def test_the_laws():
    check_layer(jr.self_attention(HEADS, head_width=2, window=3))
    check_layer(
        jr.self_attention(
            HEADS, head_width=4, window=3, num_kv_heads=1, rotary_width=2, use_output_bias=True
        )
    )


def test_shared_heads_are_the_same_keys_and_values_for_neighbours(x64):
    options = {"window": 4, "rotary_width": 2, "param_dtype": jnp.float64}
    shared = jr.self_attention(4, head_width=4, num_kv_heads=2, **options)
    params = shared.init(jax.random.key(0), D)
    q, k, v = jnp.split(params.kernel, [16, 24], axis=1)
    k, v = (jnp.repeat(part.reshape(D, 2, 4), 2, axis=1).reshape(D, 16) for part in (k, v))
    expanded = params._replace(kernel=jnp.concatenate([q, k, v], axis=1))
    xs, mask, reset = inputs()
    want = jr.unroll(
        jr.self_attention(4, head_width=4, **options), expanded, xs, mask=mask, reset=reset
    ).outputs
    got = jr.unroll(shared, params, xs, mask=mask, reset=reset)
    np.testing.assert_allclose(got.outputs, want, atol=1e-12)
    assert got.carry.steps.k.shape == (BATCH, 3, 2, 4)
    with pytest.raises(ValueError, match="num_kv_heads must divide num_heads = 4, got 3"):
        jr.self_attention(4, window=2, num_kv_heads=3)
    with pytest.raises(ValueError, match="rotary_width must be even"):
        jr.self_attention(4, window=2, rotary_width=3)
    with pytest.raises(ValueError, match="rotary_width must be at most K = 2, got 4"):
        jr.self_attention(4, window=2, rotary_width=4).init(jax.random.key(0), D)


def test_the_cache_holds_the_last_keys_and_values_of_the_sequence(x64):
    layer = jr.self_attention(HEADS, window=4, param_dtype=jnp.float64)
    params = layer.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.float64)
    reset = jnp.arange(T) == T - 2
    carry = jr.unroll(layer, params, xs, reset=reset).carry
    _, k, v = np.split(xs[-2:] @ params.kernel, 3, axis=1)
    assert carry.count == 2
    np.testing.assert_allclose(carry.steps.k[1:].reshape(2, D), k, rtol=1e-12)
    np.testing.assert_allclose(carry.steps.v[1:].reshape(2, D), v, rtol=1e-12)
    assert not carry.steps.k[0].any()


def test_any_chunks_give_the_whole(x64):
    layer = jr.self_attention(HEADS, window=4, param_dtype=jnp.float64)
    params = layer.init(jax.random.key(0), D)
    xs, mask, reset = inputs(40)
    whole = jr.unroll(layer, params, xs, mask=mask, reset=reset)
    carry, parts = None, []
    for start, stop in ((0, 1), (1, 3), (3, 6), (6, 17), (17, 17), (17, 40)):
        span = np.s_[:, start:stop]
        rollout = jr.unroll(
            layer, params, xs[span], carry=carry, mask=mask[span], reset=reset[span]
        )
        carry = rollout.carry
        parts.append(rollout.outputs)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole.outputs, rtol=1e-11, atol=1e-13)
    for got, want in zip(*map(jax.tree.leaves, (carry, whole.carry)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_memory_grows_with_the_window_and_not_with_the_square_of_time():
    layer = jr.self_attention(1, window=32, head_width=2)
    params = layer.init(jax.random.key(0), 2)

    def temporary(num_steps):
        xs = jax.ShapeDtypeStruct((num_steps, 2), jnp.float32)
        loss = jax.grad(lambda params, xs: jr.unroll(layer, params, xs).outputs.sum())
        return temporary_bytes(loss, params, xs)

    # All pairs of 4096 steps would take 64 MiB.
    assert temporary(4096) < 8 * 2**20
    assert temporary(4096) < 2.5 * temporary(2048)


def test_nan_leaves_the_window():
    layer = jr.self_attention(HEADS, window=3)
    params = layer.init(jax.random.key(0), D)
    xs = jnp.ones((T, D)).at[4].set(jnp.nan)
    rollout = jr.unroll(layer, params, xs[:6])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(rollout.outputs[:, 0])), [4, 5])
    assert jnp.isnan(rollout.carry.steps.k).any()
    rest = jr.unroll(layer, params, xs[6:], carry=rollout.carry)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(rest.outputs[:, 0])), [0])
    assert jnp.isfinite(rest.carry.steps.k).all()


def test_scores_that_overflow_stay_in_their_sequence():
    layer = jr.self_attention(HEADS, window=4)
    params = layer.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (6, D))
    # Keys and queries are finite and their products are not.
    dirty = xs.at[:3].multiply(1e25)
    reset = jnp.array([0, 0, 0, 1, 0, 0])

    def loss(xs):
        ys = jr.unroll(layer, params, xs, reset=reset).outputs
        return ys[3:].sum(), ys

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    ((_, ys), gradient), ((_, want), wanted) = run(dirty), run(xs)
    assert not jnp.isfinite(ys[:3]).all()
    np.testing.assert_allclose(ys[3:], want[3:], rtol=1e-6)
    np.testing.assert_allclose(gradient[3:], wanted[3:], rtol=1e-5, atol=1e-6)


def test_bfloat16_parameters_and_inputs_run_in_float32():
    layer = jr.self_attention(HEADS, window=5, param_dtype=jnp.bfloat16)
    params = layer.init(jax.random.key(0), D)
    xs = jax.random.normal(jax.random.key(1), (BATCH, T, D), jnp.bfloat16)

    def loss(params, xs):
        rollout = jr.unroll(layer, params, xs)
        return rollout.outputs.astype(jnp.float32).sum(), rollout

    run = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, rollout), gradients = run(params, xs)
    assert rollout.outputs.dtype == jnp.bfloat16
    assert rollout.carry.steps.k.dtype == jnp.float32
    for leaf in jax.tree.leaves((rollout, gradients)):
        assert jnp.isfinite(leaf.astype(jnp.float32)).all()


def test_errors():
    with pytest.raises(ValueError, match="window must be at least 1"):
        jr.self_attention(1, window=0)
    with pytest.raises(ValueError, match="head_width must be even"):
        jr.self_attention(1, window=2, head_width=3)
    with pytest.raises(ValueError, match="rotary_base must be above 0"):
        jr.self_attention(1, window=2, rotary_base=0.0)
    with pytest.raises(ValueError, match="num_heads must divide the width of x"):
        jr.self_attention(3, window=2).init(jax.random.key(0), D)
    with pytest.raises(ValueError, match="head_width must be even"):
        jr.self_attention(8, window=2).init(jax.random.key(0), D)
