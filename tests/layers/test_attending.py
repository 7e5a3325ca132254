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
SCORE = jr.additive_score(A, **f64)
LAYER = jr.attending(jr.elman(H, **f64), SCORE, S, M)


def setting():
    params = jax.tree.map(lambda leaf: 1.5 * leaf, LAYER.init(jax.random.key(0), D))
    generator = np.random.default_rng(0)
    values, xs = generator.standard_normal((BATCH, S, M)), generator.standard_normal((BATCH, T, D))
    values[~SOURCE_MASK], xs[~MASK] = np.nan, np.nan
    return params, values, xs


def start(params, values, source_mask=SOURCE_MASK):
    memory = jr.source_memory(SCORE, params.score, values, source_mask)
    return LAYER.initial_carry(params, values.shape[:1])._replace(memory=memory)


def looked(params, query, values):
    """The context and the weights, pair by pair."""
    hidden = [query @ params.query_kernel + m @ params.key_kernel + params.bias for m in values]
    sizes = np.exp([np.tanh(h) @ params.score_kernel for h in hidden])
    weights = sizes / sizes.sum()
    return sum((w * m for w, m in zip(weights, values, strict=True)), np.zeros(M)), weights


def loop(params, values, source_mask, xs, mask, reset):
    """One row, step after step: the outputs and the weights at real steps."""
    cell, h, ys, maps = params.cell, np.zeros(H), [], []
    real = np.flatnonzero(source_mask)
    for x, is_real, is_new in zip(xs, mask, reset, strict=True):
        if is_new:
            h, real = np.zeros(H), real[:0]
        if not is_real:
            continue
        weights, context = np.zeros(S), np.zeros(M)
        if len(real):
            context, weights[real] = looked(params.score, h, values[real])
        read = np.concatenate([x, context])
        h = np.tanh(read @ cell.kernel + h @ cell.recurrent_kernel + cell.bias)
        ys.append(np.concatenate([h, context]))
        maps.append(weights)
    return np.array(ys), np.array(maps), h


def test_against_a_loop_in_which_the_context_enters_the_recurrence(x64):
    params, values, xs = setting()
    rollout = jr.unroll(LAYER, params, xs, carry=start(params, values), mask=MASK, reset=RESET)
    weights, arrays = jr.attention_weights(rollout), jax.device_get(params)
    for row in range(BATCH):
        of_row = (part[row] for part in (values, SOURCE_MASK, xs, MASK, RESET))
        ys, maps, h = loop(arrays, *of_row)
        mask = MASK[row]
        np.testing.assert_allclose(rollout.outputs[row][mask], ys, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(weights[row][mask], maps, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(rollout.carry.cell.h[row], h, rtol=1e-10)
        assert not rollout.outputs[row][~mask].any() and not weights[row][~mask].any()
    np.testing.assert_array_equal(rollout.carry.memory.mask, SOURCE_MASK & ~RESET.any(1)[:, None])


def test_worked_numbers():
    # From h = 1 the scores are 0 and ln 3, so the weights 1/4 and 3/4, c = 5 and h = 1 + 2 + 5.
    cell = jr.simple_cell(
        lambda key, n: (), lambda params, carry, x: carry + x.sum(-1, keepdims=True), 1
    )
    score = jr.dot_score(1)
    layer = jr.attending(cell, score, 2, 1)
    score_params = jr.DotScoreParams(jnp.array([[1.0]]), jnp.array([[np.log(3.0) / 4]]))
    memory = jr.source_memory(score, score_params, jnp.array([[2.0], [6.0]]))
    # The keys are made zero and 4 · ln 3 / 4 by moving the first one.
    memory = memory._replace(keys=memory.keys - memory.keys[0])
    carry = jr.AttendingCarry(jnp.array([1.0]), memory)
    params = jr.AttendingParams((), score_params)
    rollout = jr.unroll(layer, params, jnp.array([[2.0]]), carry=carry)
    np.testing.assert_allclose(rollout.outputs, [[8.0, 5.0]], rtol=1e-6)


def test_it_keeps_the_laws():
    check_layer(jr.attending(jr.gru(H), jr.dot_score(A), S, M))


def test_chunks_agree_and_padding_reaches_no_gradient(x64):
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
    _, of_values, of_xs = whole[1]
    assert (np.asarray(of_values != 0).all(-1) == SOURCE_MASK).all()
    assert (np.asarray(of_xs != 0).all(-1) == MASK).all()
    got = gradient(params, values, xs, (2, 3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), got, whole)


def test_errors_name_the_argument():
    score = jr.dot_score(A)
    with pytest.raises(TypeError, match="^cell must be a Cell"):
        jr.attending(jr.dense(3), score, S, M)
    with pytest.raises(TypeError, match="^score must be a Score"):
        jr.attending(jr.gru(3), "dot", S, M)
    with pytest.raises(ValueError, match="^num_source_steps must be"):
        jr.attending(jr.gru(3), score, 0, M)
    with pytest.raises(ValueError, match="^cell must read one vector a step and draw no noise"):
        jr.attending(jr.recurrent_dropout(jr.gru(3), 0.5), score, S, M)
