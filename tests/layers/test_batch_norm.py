import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

LAYER = jr.batch_norm()
MASK = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]], bool)


def setting():
    draw = np.random.default_rng(0)
    params = jr.layers.BatchNormParams(*draw.uniform(0.5, 2, (4, 2)))
    return params, 3 + 2 * draw.standard_normal((3, 4, 2))


def formula(params, xs, mean, variance):
    return (xs - mean) / np.sqrt(variance + 1e-5) * params.scale + params.offset


def test_padding_does_not_count(x64):
    """Against the formula on the real steps alone, with gradients against a run without padding."""
    params, xs = setting()

    def loss(xs, mask):
        rollout = jr.unroll(LAYER, params, xs, mask=mask)
        return (rollout.outputs**3).sum(), rollout

    run = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, rollout), gradient = run(np.where(MASK[..., None], xs, np.nan), MASK)
    real = xs[MASK]
    mean, variance = real.mean(0), real.var(0)
    want = formula(params, real, mean, variance)
    np.testing.assert_allclose(rollout.outputs[MASK], want, rtol=1e-12)
    assert not rollout.outputs[~MASK].any() and not gradient[~MASK].any()
    np.testing.assert_allclose(rollout.info[:2], (mean, variance), rtol=1e-12)
    assert rollout.info.count == 4
    _, alone = run(real, np.ones(4, bool))
    np.testing.assert_allclose(gradient[MASK], alone, rtol=1e-10)


def test_without_a_real_step_nothing_is_folded(x64):
    params, xs = setting()
    rollout = jr.unroll(LAYER, params, xs, mask=np.zeros((3, 4)))
    assert not rollout.outputs.any() and rollout.info.count == 0
    folded = jr.fold_statistics(params, rollout)
    np.testing.assert_array_equal(folded.mean, params.mean)


def model(training):
    norm = jr.batch_norm(running=not training)
    return jr.serial(norm, jr.repeat(norm, 2), jr.concatenate(norm))


def test_running_statistics_at_any_depth(x64):
    """After a whole fold both forms agree on the batch; weight decay leaves statistics alone."""
    params = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64), model(True).init(jax.random.key(0), 2)
    )
    _, xs = setting()

    @jax.jit
    def run(params):
        rollout = jr.unroll(model(True), params, xs, mask=MASK)
        return (rollout.outputs**3).sum(), rollout

    gradient, rollout = jax.grad(run, has_aux=True)(params)
    half = jr.fold_statistics(params, rollout, 0.5)
    np.testing.assert_allclose(half[0].mean, 0.5 * xs[MASK].mean(0))
    np.testing.assert_allclose(half[0].variance, 0.5 + 0.5 * xs[MASK].var(0))
    assert half[1].mean.shape == (2, 2)
    folded = jr.fold_statistics(params, rollout, 1.0)
    got = jr.unroll(model(False), folded, xs, mask=MASK)
    np.testing.assert_allclose(got.outputs, rollout.outputs, rtol=1e-9, atol=1e-12)
    assert model(False).causal and not model(True).causal
    labels = jr.parameter_labels(params)
    trained = jax.tree.map(lambda label: label != "statistics", labels)
    optimizer = optax.adamw(0.1, weight_decay=1.0, mask=trained)
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    assert not updates[0].mean.any() and not updates[0].variance.any() and updates[0].scale.all()


def test_the_laws_of_the_running_form():
    check_layer(jr.batch_norm(running=True))


def test_what_is_refused():
    params, xs = setting()
    with pytest.raises(ValueError, match="model must be causal to stream, got batch_norm"):
        jr.step(LAYER, params, (), xs[0, 0])
    with pytest.raises(
        ValueError, match=r"params.scale must have the shape \(3,\) .* width 3, got \(2,\)"
    ):
        jr.unroll(LAYER, params, jnp.ones((4, 3)))
    rollout = jr.unroll(jr.batch_norm(running=True), params, xs)
    with pytest.raises(ValueError, match="BatchStatistics of every batch_norm .* got 0 for 1"):
        jr.fold_statistics(params, rollout)
    with pytest.raises(TypeError, match="rollout must be a Rollout, .* got None"):
        jr.fold_statistics(params, None)
    with pytest.raises(ValueError, match="rate must not be above 1, got 2"):
        jr.fold_statistics(params, rollout, 2.0)
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        jr.batch_norm(epsilon=0.0)
