import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

S, M, A, D, T, BATCH = 5, 4, 3, 2, 6, 3
SOURCE_MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
SCORES = {
    name: getattr(jr, name)(A, param_dtype=jnp.float64) for name in ("dot_score", "additive_score")
}


def setting(name):
    score = SCORES[name]
    layer = jr.cross_attention(score, S, M)
    params = layer.init(jax.random.key(0), D)
    if name == "additive_score":
        params = params._replace(bias=jnp.array([0.3, -0.2, 0.1]))
    generator = np.random.default_rng(0)
    values, xs = generator.standard_normal((BATCH, S, M)), generator.standard_normal((BATCH, T, D))
    return score, layer, params, values, xs


def oracle(name, params, values, mask, x):
    """One query against one source: [x, c] and the weights, number after number."""
    weights, context = np.zeros(S), np.zeros(M)
    for j in np.flatnonzero(mask):
        query, key = x @ params.query_kernel, values[j] @ params.key_kernel
        if name == "dot_score":
            weights[j] = np.exp(np.dot(query, key) / np.sqrt(A))
        else:
            weights[j] = np.exp(np.dot(np.tanh(query + key + params.bias), params.score_kernel))
    weights = weights / weights.sum() if mask.any() else weights
    for j in np.flatnonzero(mask):
        context += weights[j] * values[j]
    return np.concatenate([x, context]), weights


def poisoned(values):
    return np.where(SOURCE_MASK[..., None], values, np.nan)


@pytest.mark.parametrize("name", SCORES)
def test_against_a_loop_over_pairs_of_steps(x64, name):
    score, layer, params, values, xs = setting(name)
    memory = jr.source_memory(score, params, poisoned(values), SOURCE_MASK)
    mask = np.ones((BATCH, T), bool)
    mask[0, 2:4] = False
    rollout = jr.unroll(
        layer, params, np.where(mask[..., None], xs, np.nan), carry=memory, mask=mask
    )
    weights = jr.attention_weights(rollout)
    arrays = jax.device_get(params)
    for row in range(BATCH):
        for t in range(T):
            y, alpha = oracle(name, arrays, values[row], SOURCE_MASK[row], xs[row, t])
            y, alpha = (y, alpha) if mask[row, t] else (0 * y, 0 * alpha)
            np.testing.assert_allclose(rollout.outputs[row, t], y, rtol=1e-10, atol=1e-14)
            np.testing.assert_allclose(weights[row, t], alpha, rtol=1e-10, atol=1e-14)
    jax.tree.map(np.testing.assert_array_equal, rollout.carry, memory)


def test_worked_numbers():
    # Scores 0 and ln 3 give weights 1/4 and 3/4 on values 2 and 6: c = 5.
    params = jr.seq2seq.DotScoreParams(jnp.array([[1.0]]), jnp.array([[np.log(3.0) / 4]]))
    score = jr.dot_score(1)
    memory = jr.source_memory(score, params, jnp.array([[2.0], [6.0]]))
    rollout = jr.unroll(jr.cross_attention(score, 2, 1), params, jnp.array([[1.0]]), carry=memory)
    np.testing.assert_allclose(rollout.outputs, [[1.0, 5.0]], rtol=1e-6)
    np.testing.assert_allclose(jr.attention_weights(rollout), [[0.25, 0.75]], rtol=1e-6)


def test_it_keeps_the_laws():
    # The law checks know no source: what is checked here is the empty one.
    check_layer(jr.cross_attention(jr.additive_score(A), S, M))


@pytest.mark.parametrize("name", SCORES)
def test_step_and_chunks_agree_with_unroll_in_values_and_gradients(x64, name):
    score, layer, params, values, xs = setting(name)
    reset = np.zeros((BATCH, T), bool)
    reset[1, 3] = True
    mask = np.ones((BATCH, T), bool)
    mask[0, 1] = False

    def run(params, values, xs, cuts):
        carry = jr.source_memory(score, params, values, SOURCE_MASK)
        ys = []
        for start, stop in zip([0, *cuts], [*cuts, T], strict=True):
            piece = np.s_[:, start:stop]
            rollout = jr.unroll(
                layer, params, xs[piece], carry=carry, mask=mask[piece], reset=reset[piece]
            )
            carry = rollout.carry
            ys.append(rollout.outputs)
        ys = jnp.concatenate(ys, axis=1)
        return (ys**3).sum() + (carry.values**2).sum() + (carry.keys**3).sum(), ys

    gradient = jax.jit(jax.value_and_grad(run, argnums=(0, 1, 2), has_aux=True), static_argnums=3)
    whole = gradient(params, poisoned(values), xs, ())
    assert jax.tree.all(jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), whole))
    assert not np.asarray(whole[1][1])[~SOURCE_MASK].any()
    for cuts in ((2,), tuple(range(1, T))):
        got = gradient(params, values, xs, cuts)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), got, whole
        )
    step = 1e-6
    ends = [run(params, values + shift, xs, ())[0] for shift in (step * E, -step * E)]
    np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), whole[1][1][1, 3, 2], rtol=1e-6)


E = np.zeros((BATCH, S, M))
E[1, 3, 2] = 1


def test_a_reset_drops_the_source_and_what_is_wrong_with_it(x64):
    score, layer, params, values, xs = setting("dot_score")
    values[0, 1, 2] = np.nan
    reset = np.zeros((BATCH, T), bool)
    reset[:2, 3] = True

    def run(xs, memory, weight):
        rollout = jr.unroll(layer, params, xs, carry=memory, reset=reset)
        return (rollout.outputs * weight)[:, 3:].sum(), rollout

    memory = jr.source_memory(score, params, values, SOURCE_MASK | True)
    (_, rollout), gradient = jax.value_and_grad(run, has_aux=True)(xs, memory, 2.0)
    assert jnp.isnan(rollout.outputs[0, :3, D:]).all()
    np.testing.assert_array_equal(rollout.outputs[:2, 3:, D:], 0)
    np.testing.assert_array_equal(gradient[0], np.repeat([[0], [2]], [3, 3], 0) * [1, 1])
    assert not rollout.carry.mask[:2].any() and rollout.carry.mask[2].all()
    assert jnp.isfinite(rollout.carry.values).all()
    assert jnp.isfinite(rollout.outputs[1:]).all() and rollout.outputs[2, 3:, D:].all()
    # A query that is NaN behind the reset touches no cotangent of the source in front of it.
    xs[1, 4] = np.nan
    cotangent = jax.grad(
        lambda keys: run(xs, memory._replace(keys=keys), 1.0)[1].outputs[1, :3].sum()
    )
    assert jnp.isfinite(cotangent(memory.keys)[1]).all()


def test_half_precision_runs_in_float32():
    score = jr.additive_score(A)
    layer = jr.cross_attention(score, S, M)
    params = layer.init(jax.random.key(0), D)
    memory = jr.source_memory(score, params, jnp.ones((S, M), jnp.bfloat16))
    rollout = jr.unroll(layer, params, jnp.ones((T, D), jnp.bfloat16), carry=memory)
    assert memory.values.dtype == rollout.carry.keys.dtype == jnp.float32
    assert rollout.outputs.dtype == jnp.bfloat16
    assert jr.attention_weights(rollout).dtype == jnp.float32


def test_errors_name_the_argument():
    score = jr.dot_score(A)
    layer = jr.cross_attention(score, S, M)
    params = layer.init(jax.random.key(0), D)
    xs, values = jnp.ones((T, D)), jnp.ones((S, M))
    with pytest.raises(TypeError, match="^score must be a Score"):
        jr.cross_attention("dot", S, M)
    with pytest.raises(ValueError, match="^num_source_steps must not be below 0, got -1"):
        jr.cross_attention(score, -1, M)
    with pytest.raises(TypeError, match="^num_source_steps must be an int"):
        jr.cross_attention(score, 5.0, M)
    with pytest.raises(ValueError, match="^num_units must be at least 1"):
        jr.additive_score(0)
    with pytest.raises(ValueError, match="^values must have the width 4 of the kernel"):
        jr.source_memory(score, params, values[:, :3])
    with pytest.raises(
        ValueError, match=r"^params.query_kernel must .* inputs of width 1, got \(2, 3"
    ):
        jr.unroll(layer, params, xs[:, :1])
    with pytest.raises(ValueError, match=r"^mask must have the shape \(5,\)"):
        jr.source_memory(score, params, values, np.ones(3))
    with pytest.raises(ValueError, match=r"^carry.values must have the shape \(5, 4\)"):
        jr.unroll(layer, params, xs, carry=jr.source_memory(score, params, values[:3]))
    with pytest.raises(ValueError, match="weights of one cross_attention, .*got 0"):
        jr.attention_weights(jr.unroll(jr.gru(2), jr.gru(2).init(jax.random.key(0), D), xs))
    info = jr.unroll(layer, params, xs).info
    with pytest.raises(ValueError, match="weights of one cross_attention, .*got 2"):
        jr.attention_weights(jr.Rollout((), (), (info, info)))


def test_the_parameters_of_a_memory_are_those_of_the_score():
    score, values = jr.dot_score(A), jnp.ones((2, S, M))
    layer = jr.attention_cell(jr.gru(6), score, S, M)
    params = layer.init(jax.random.key(0), D)
    assert jr.source_memory(score, params.score, values).keys.shape == (2, S, A)
    for wrong in (params, None, ()):
        with pytest.raises(TypeError, match="^params must have the structure .*DotScoreParams"):
            jr.source_memory(score, wrong, values)
    with pytest.raises(TypeError, match="^score must be a Score"):
        jr.source_memory(layer, params.score, values)


def test_a_source_without_a_step_is_one_without_a_real_step(x64):
    score, layer, params, _, xs = setting("additive_score")
    none = jr.cross_attention(score, 0, M)

    def run(params, layer, num_source_steps):
        source = np.ones((BATCH, num_source_steps, M))
        memory = jr.source_memory(score, params, source, np.zeros(source.shape[:2], bool))
        rollout = jr.unroll(layer, params, xs, carry=memory)
        return (rollout.outputs**2).sum(), rollout

    (_, rollout), gradient = jax.value_and_grad(run, has_aux=True)(params, none, 0)
    (_, want), want_gradient = jax.value_and_grad(run, has_aux=True)(params, layer, S)
    np.testing.assert_array_equal(rollout.outputs, want.outputs)
    np.testing.assert_array_equal(rollout.outputs[..., D:], 0)
    assert jr.attention_weights(rollout).shape == (BATCH, T, 0)
    jax.tree.map(np.testing.assert_array_equal, gradient, want_gradient)
