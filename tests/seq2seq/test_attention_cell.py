"""Layers of a cell that attends, against loops over rows."""

import functools

import jax
import jax.export
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
LAYER = jr.attention_cell(jr.elman(H, **f64), SCORE, S, M)
KINDS = {
    "attention cell": LAYER,
    "input feeding": jr.input_feeding(jr.elman(H, **f64), SCORE, S, M),
}
SUM = jr.simple_cell(
    lambda key, n: (), lambda params, carry, x: carry + x.sum(-1, keepdims=True), 1
)


def setting(layer=LAYER):
    params = jax.tree.map(lambda leaf: 1.5 * leaf, layer.init(jax.random.key(0), D))
    generator = np.random.default_rng(0)
    values, xs = generator.standard_normal((BATCH, S, M)), generator.standard_normal((BATCH, T, D))
    values[~SOURCE_MASK], xs[~MASK] = np.nan, np.nan
    return params, values, xs


def start(params, values, source_mask=SOURCE_MASK, layer=LAYER):
    memory = jr.source_memory(SCORE, params.score, values, source_mask)
    return layer.initial_carry(params, values.shape[:1])._replace(memory=memory)


def looked(params, query, values):
    """The context and the weights, pair by pair."""
    hidden = [query @ params.query_kernel + m @ params.key_kernel + params.bias for m in values]
    sizes = np.exp([np.tanh(h) @ params.score_kernel for h in hidden])
    weights = sizes / sizes.sum()
    return sum((w * m for w, m in zip(weights, values, strict=True)), np.zeros(M)), weights


def loop(kind, params, values, source_mask, xs, mask, reset):
    """One row, step after step: the outputs and the weights at real steps, and the last state."""
    cell, h, fed, ys, maps = params.cell, np.zeros(H), np.zeros(H), [], []
    real = np.flatnonzero(source_mask)

    def look(query):
        weights, context = np.zeros(S), np.zeros(M)
        if len(real):
            context, weights[real] = looked(params.score, query, values[real])
        maps.append(weights)
        return context

    for x, is_real, is_new in zip(xs, mask, reset, strict=True):
        if is_new:
            h, fed, real = np.zeros(H), np.zeros(H), real[:0]
        if not is_real:
            continue
        other = look(h) if kind == "attention cell" else fed
        read = np.concatenate([x, other])
        h = np.tanh(read @ cell.kernel + h @ cell.recurrent_kernel + cell.bias)
        if kind == "attention cell":
            ys.append(np.concatenate([h, other]))
        else:
            fed = np.tanh(np.concatenate([look(h), h]) @ params.kernel)
            ys.append(fed)
    return np.array(ys), np.array(maps), h


@pytest.mark.parametrize("kind", KINDS)
def test_against_a_loop_in_which_the_context_enters_the_recurrence(x64, kind):
    layer = KINDS[kind]
    params, values, xs = setting(layer)
    carry = start(params, values, layer=layer)
    rollout = jr.unroll(layer, params, xs, carry=carry, mask=MASK, reset=RESET)
    weights, arrays = jr.attention_weights(rollout), jax.device_get(params)
    for row in range(BATCH):
        of_row = (part[row] for part in (values, SOURCE_MASK, xs, MASK, RESET))
        ys, maps, h = loop(kind, arrays, *of_row)
        mask = MASK[row]
        np.testing.assert_allclose(rollout.outputs[row][mask], ys, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(weights[row][mask], maps, rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(rollout.carry.cell.h[row], h, rtol=1e-10)
        assert not rollout.outputs[row][~mask].any() and not weights[row][~mask].any()
    np.testing.assert_array_equal(rollout.carry.memory.mask, SOURCE_MASK & ~RESET.any(1)[:, None])


def test_worked_numbers():
    # From h = 1 the scores are 0 and ln 3, so the weights 1/4 and 3/4, c = 5 and h = 1 + 2 + 5.
    score = jr.dot_score(1)
    layer = jr.attention_cell(SUM, score, 2, 1)
    score_params = jr.seq2seq.DotScoreParams(jnp.array([[1.0]]), jnp.array([[np.log(3.0) / 4]]))
    memory = jr.source_memory(score, score_params, jnp.array([[2.0], [6.0]]))
    # The keys are made zero and 4 · ln 3 / 4 by moving the first one.
    memory = memory._replace(keys=memory.keys - memory.keys[0])
    carry = jr.seq2seq.AttentionCellCarry(jnp.array([1.0]), memory)
    params = jr.seq2seq.AttentionCellParams((), score_params)
    rollout = jr.unroll(layer, params, jnp.array([[2.0]]), carry=carry)
    np.testing.assert_allclose(rollout.outputs, [[8.0, 5.0]], rtol=1e-6)


def test_it_keeps_the_laws():
    check_layer(jr.attention_cell(jr.gru(H), jr.dot_score(A), S, M))


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_agree_and_padding_reaches_no_gradient(x64, kind):
    layer = KINDS[kind]
    params, values, xs = setting(layer)

    def run(params, values, xs, cuts):
        carry, ys = start(params, values, layer=layer), []
        for first, stop in zip([0, *cuts], [*cuts, T], strict=True):
            piece = np.s_[:, first:stop]
            rollout = jr.unroll(
                layer, params, xs[piece], carry=carry, mask=MASK[piece], reset=RESET[piece]
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
        jr.attention_cell(jr.dense(3), score, S, M)
    with pytest.raises(TypeError, match="^score must be a Score"):
        jr.attention_cell(jr.gru(3), "dot", S, M)
    with pytest.raises(ValueError, match="^num_source_steps must not be below 0"):
        jr.attention_cell(jr.gru(3), score, -1, M)
    with pytest.raises(ValueError, match="^cell must draw no noise"):
        jr.attention_cell(jr.recurrent_dropout(jr.gru(3), 0.5), score, S, M)
    with pytest.raises(ValueError, match="^cell must read one vector a step.*num_feature_axes 2"):
        jr.attention_cell(jr.gru(3)._replace(num_feature_axes=2), score, S, M)


@pytest.mark.parametrize(
    ("emit", "came"),
    [
        (lambda params, carry, x: (carry, carry), r"\(\(2, 1\), \(2, 1\)\)"),
        (lambda params, carry, x: carry[..., 0], r"\(2,\)"),
        (lambda params, carry, x: carry[..., None], r"\(2, 1, 1\)"),
        (lambda params, carry, x: x, r"\(2, 6\)"),
    ],
)
def test_a_cell_that_emits_anything_but_one_vector_is_refused(emit, came):
    layer = jr.attention_cell(SUM._replace(emit=emit), jr.dot_score(A), S, M)
    params = layer.init(jax.random.key(0), D)
    message = rf"^cell must emit one vector a step \(2, 1\), to attend with, got {came}\."
    with pytest.raises(ValueError, match=message):
        jr.unroll(layer, params, jnp.ones((2, T, D)))


def test_a_source_without_a_step_is_one_without_a_real_step(x64):
    params, values, xs = setting()
    none = jr.attention_cell(jr.elman(H, **f64), SCORE, 0, M)
    memory = jr.source_memory(SCORE, params.score, np.zeros((BATCH, 0, M)))
    carry = none.initial_carry(params, (BATCH,))._replace(memory=memory)
    got = jr.unroll(none, params, xs, carry=carry, mask=MASK, reset=RESET)
    hidden = start(params, values, np.zeros_like(SOURCE_MASK))
    want = jr.unroll(LAYER, params, xs, carry=hidden, mask=MASK, reset=RESET)
    np.testing.assert_array_equal(got.outputs, want.outputs)
    np.testing.assert_array_equal(got.carry.cell.h, want.carry.cell.h)
    assert got.outputs[..., :H].any() and jr.attention_weights(got).shape == (BATCH, T, 0)


def loss(params, values, xs, source_mask, mask, reset):
    carry = start(params, values, source_mask)
    rollout = jr.unroll(LAYER, params, xs, carry=carry, mask=mask, reset=reset)
    return (rollout.outputs**3).sum() + (rollout.carry.cell.h**2).sum()


def clean_setting():
    params, values, xs = setting()
    return params, np.nan_to_num(values), np.nan_to_num(xs), SOURCE_MASK, MASK, RESET


def test_derivatives_against_finite_differences(x64):
    # Backward, and forward over backward: the slope and the curvature along a direction.
    params, *data = clean_setting()
    keys = jax.random.split(jax.random.key(1), 8)
    leaves, structure = jax.tree.flatten(params)
    direction = structure.unflatten(
        [jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=False)]
    )

    def along(step):
        moved = jax.tree.map(lambda leaf, way: leaf + step * way, params, direction)
        return loss(moved, *data)

    @jax.jit
    def derivatives(step):
        return jax.jvp(jax.value_and_grad(along), (step,), (1.0,))

    size = 1e-5
    (low, _), ((_, slope), (forward, curvature)), (high, _) = map(derivatives, (-size, 0.0, size))
    np.testing.assert_allclose(slope, (high[0] - low[0]) / (2 * size), rtol=1e-7)
    np.testing.assert_allclose(forward, slope, rtol=1e-12)
    np.testing.assert_allclose(curvature, (high[1] - low[1]) / (2 * size), rtol=1e-6)


GRADIENT = jax.jit(jax.value_and_grad(loss))


@functools.cache
def wanted():
    return GRADIENT(*clean_setting())


def test_vmap_over_rows_is_the_batch(x64):
    data = clean_setting()
    in_axes = (None, 0, 0, 0, 0, 0)

    def row(params, *data):
        return loss(params, *(leaf[None] for leaf in data))

    got = jax.jit(jax.vmap(jax.value_and_grad(row), in_axes))(*data)
    value, gradient = wanted()
    np.testing.assert_allclose(got[0].sum(), value, rtol=1e-12)
    jax.tree.map(
        lambda rows, whole: np.testing.assert_allclose(rows.sum(0), whole, rtol=1e-10, atol=1e-13),
        got[1],
        gradient,
    )


def test_shard_map_over_the_batch(x64):
    data = clean_setting()
    mesh = jax.make_mesh((1,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, whole = jax.sharding.PartitionSpec("batch"), jax.sharding.PartitionSpec()

    def run(params, values, xs, source_mask, mask, reset):
        carry = start(params, values, source_mask)
        return jr.unroll(LAYER, params, xs, carry=carry, mask=mask, reset=reset)[:2]

    sharded = jax.shard_map(run, mesh=mesh, in_specs=(whole, *[rows] * 5), out_specs=rows)

    def total(params, *data):
        carry, outputs = sharded(params, *data)
        return (outputs**3).sum() + (carry.cell.h**2).sum()

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13),
        jax.jit(jax.value_and_grad(total))(*data),
        wanted(),
    )


def test_a_gradient_exports_for_all_platforms(x64):
    data = clean_setting()
    platforms = ("cpu", "cuda", "tpu")
    exported = jax.export.export(GRADIENT, platforms=platforms)(*data)
    assert exported.platforms == platforms
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13),
        exported.call(*data),
        wanted(),
    )


def test_half_precision_runs_in_float32():
    score = jr.additive_score(A)
    layer = jr.attention_cell(jr.elman(H), score, S, M)
    params = layer.init(jax.random.key(0), D)
    memory = jr.source_memory(score, params.score, jnp.ones((S, M), jnp.bfloat16))
    carry = layer.initial_carry(params)._replace(memory=memory)
    xs = jax.random.normal(jax.random.key(1), (T, D), jnp.bfloat16)
    rollout = jr.unroll(layer, params, xs, carry=carry)
    assert {leaf.dtype for leaf in (memory.values, rollout.carry.cell.h)} == {jnp.dtype("float32")}
    assert jr.attention_weights(rollout).dtype == jnp.float32
    assert rollout.outputs.dtype == jnp.bfloat16
    exact = jr.unroll(layer, params, xs.astype(jnp.float32), carry=carry)
    np.testing.assert_array_equal(rollout.outputs, exact.outputs.astype(jnp.bfloat16))
    np.testing.assert_array_equal(rollout.carry.cell.h, exact.carry.cell.h)
