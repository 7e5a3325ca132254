"""Attention whose result is an input of the next step, against loops over rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

S, M, A, H, D, T, BATCH = 5, 4, 3, 3, 2, 6, 3
SOURCE_MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
MASK = np.array([[1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0]], bool)
RESET = np.zeros((BATCH, T), bool)
RESET[0, 4] = True
f64 = {"param_dtype": jnp.float64}
SCORE = jr.dot_score(A, **f64)
LAYER = jr.input_feeding(jr.elman(H, **f64), SCORE, S, M)
SUM = jr.simple_cell(
    lambda key, n: (), lambda params, carry, x: carry + x.sum(-1, keepdims=True), 1
)


def setting():
    params = jax.tree.map(lambda leaf: 1.5 * leaf, LAYER.init(jax.random.key(0), D))
    generator = np.random.default_rng(0)
    values, xs = generator.standard_normal((BATCH, S, M)), generator.standard_normal((BATCH, T, D))
    values[~SOURCE_MASK], xs[~MASK] = np.nan, np.nan
    return params, values, xs


def start(params, values):
    memory = jr.source_memory(SCORE, params.score, values, SOURCE_MASK)
    return LAYER.initial_carry(params, (BATCH,))._replace(memory=memory)


def loop(params, values, source_mask, xs, mask, reset):
    """One row, step after step: the outputs and the weights at real steps, and the last state."""
    cell, score = params.cell, params.score
    h, fed, ys, maps, real = np.zeros(H), np.zeros(H), [], [], np.flatnonzero(source_mask)
    for x, is_real, is_new in zip(xs, mask, reset, strict=True):
        if is_new:
            h, fed, real = np.zeros(H), np.zeros(H), real[:0]
        if not is_real:
            continue
        read = np.concatenate([x, fed])
        h = np.tanh(read @ cell.kernel + h @ cell.recurrent_kernel + cell.bias)
        query, sizes = h @ score.query_kernel, np.zeros(S)
        for j in real:
            sizes[j] = np.exp(query @ (values[j] @ score.key_kernel) / np.sqrt(A))
        weights = sizes / sizes.sum() if len(real) else sizes
        context = sum((weights[j] * values[j] for j in real), np.zeros(M))
        fed = np.tanh(np.concatenate([context, h]) @ params.kernel)
        ys.append(fed)
        maps.append(weights)
    return np.array(ys), np.array(maps), h, fed


def test_worked_numbers():
    # One source step, so c = 2. d = 1 + 2 + 0.5 and tanh(0.1 c + 0.2 d) is an input after it.
    score = jr.dot_score(1)
    layer = jr.input_feeding(SUM, score, 1, 1)
    score_params = jr.seq2seq.DotScoreParams(jnp.ones((1, 1)), jnp.ones((1, 1)))
    params = jr.seq2seq.InputFeedingParams((), score_params, jnp.array([[0.1], [0.2]]))
    memory = jr.source_memory(score, score_params, jnp.array([[2.0]]))
    carry = jr.seq2seq.InputFeedingCarry(jnp.array([1.0]), memory, jnp.array([0.5]))
    rollout = jr.unroll(layer, params, jnp.array([[2.0], [1.0]]), carry=carry)
    first = np.tanh(0.2 + 0.2 * 3.5)
    second = np.tanh(0.2 + 0.2 * (3.5 + 1 + first))
    np.testing.assert_allclose(rollout.outputs, [[first], [second]], rtol=1e-6)
    np.testing.assert_allclose(rollout.carry.attended, [second], rtol=1e-6)


def test_against_a_loop_in_which_what_was_attended_to_is_an_input(x64):
    params, values, xs = setting()
    rollout = jr.unroll(LAYER, params, xs, carry=start(params, values), mask=MASK, reset=RESET)
    weights, arrays = jr.attention_weights(rollout), jax.device_get(params)
    for row in range(BATCH):
        of_row = (part[row] for part in (values, SOURCE_MASK, xs, MASK, RESET))
        ys, maps, h, fed = loop(arrays, *of_row)
        mask = MASK[row]
        np.testing.assert_allclose(rollout.outputs[row][mask], ys, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(weights[row][mask], maps, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(rollout.carry.cell.h[row], h, rtol=1e-10)
        np.testing.assert_allclose(rollout.carry.attended[row], fed, rtol=1e-10)
        assert not rollout.outputs[row][~mask].any() and not weights[row][~mask].any()
    np.testing.assert_array_equal(rollout.carry.memory.mask, SOURCE_MASK & ~RESET.any(1)[:, None])


def test_it_keeps_the_laws():
    check_layer(jr.input_feeding(jr.gru(H), jr.additive_score(A), S, M))


def test_a_stack_keeps_the_laws():
    check_layer(jr.input_feeding(jr.serial(jr.lstm(2), jr.elman(H)), jr.dot_score(A), S, M))


def test_chunks_and_steps_agree_and_padding_reaches_no_gradient(x64):
    params, values, xs = setting()

    def run(params, values, xs, cuts):
        carry, ys = start(params, values), []
        for first, stop in zip([0, *cuts], [*cuts, T], strict=True):
            piece = np.s_[:, first:stop]
            rollout = jr.unroll(
                LAYER, params, xs[piece], carry=carry, mask=MASK[piece], reset=RESET[piece]
            )
            carry = rollout.carry
            ys.append(rollout.outputs)
        ys = jnp.concatenate(ys, axis=1)
        return (ys**3).sum() + (carry.memory.values**2).sum() + (carry.cell.h**3).sum(), ys

    gradient = jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2), has_aux=True), static_argnums=3)
    whole = gradient(params, values, xs, ())
    assert jax.tree.all(jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), whole))
    assert jax.tree.all(jax.tree.map(lambda leaf: leaf.any(), whole[1][0]))
    _, of_values, of_xs = whole[1]
    assert (np.asarray(of_values != 0).all(-1) == SOURCE_MASK).all()
    assert (np.asarray(of_xs != 0).all(-1) == MASK).all()
    for cuts in ((2, 3), tuple(range(1, T))):
        got = gradient(params, values, xs, cuts)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), got, whole
        )


def test_half_precision_runs_in_float32():
    score = jr.dot_score(A, param_dtype=jnp.bfloat16)
    layer = jr.input_feeding(jr.elman(H, param_dtype=jnp.bfloat16), score, S, M)
    params = layer.init(jax.random.key(0), D)
    assert params.kernel.dtype == jnp.bfloat16
    memory = jr.source_memory(score, params.score, jnp.ones((S, M), jnp.bfloat16))
    carry = layer.initial_carry(params)._replace(memory=memory)
    rollout = jr.unroll(layer, params, jnp.ones((T, D), jnp.bfloat16), carry=carry)
    assert rollout.carry.attended.dtype == jnp.float32 and rollout.outputs.dtype == jnp.bfloat16


def test_errors_name_the_argument():
    score = jr.dot_score(A)
    with pytest.raises(TypeError, match="^cell must be a Cell or a Layer"):
        jr.input_feeding("gru", score, S, M)
    with pytest.raises(ValueError, match="^cell must be causal"):
        jr.input_feeding(jr.bidirectional(jr.gru(3)), score, S, M)
    with pytest.raises(ValueError, match="^cell must draw no noise"):
        jr.input_feeding(jr.recurrent_dropout(jr.gru(3), 0.5), score, S, M)
    with pytest.raises(ValueError, match="^cell must read one vector a step.*axes 0"):
        jr.input_feeding(jr.embed(3), score, S, M)
    with pytest.raises(TypeError, match="^score must be a Score"):
        jr.input_feeding(jr.gru(3), "dot", S, M)
    layer = jr.input_feeding(jr.dropout(0.1), score, S, M)
    with pytest.raises(ValueError, match="^cell must have as many outputs .* got 2 and 4"):
        layer.init(jax.random.key(0), 2)
