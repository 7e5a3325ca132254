"""What `weights=` of losses and reductions mean: of sequences, of steps and of features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_losses import MEANS, REDUCTIONS, STEP_LOSSES, every_loss, every_mean, example, named

import jaxrnn as jr

every_reduction = named("reduce", REDUCTIONS)
MASK = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 0]])
LOSSES = np.random.default_rng(0).normal(size=MASK.shape)
OF_STEPS = np.random.default_rng(1).uniform(0.1, 2, MASK.shape)
OF_SEQUENCES = OF_STEPS[:, 0]
JITTED = {reduce: jax.jit(reduce) for reduce in (*REDUCTIONS, jr.mean_valid)}


def eager_and_jitted(function):
    return function, JITTED[function]


def test_the_weighted_mean_of_the_users():
    losses, weights = jnp.array([1.0, 2.0, 4.0]), jnp.array([1, 0.5, 0.25])
    for reduce in (*MEANS, jr.mean_valid):
        ys = losses[:, None] if reduce is jr.mean_valid else losses
        for run in eager_and_jitted(reduce):
            np.testing.assert_allclose(run(ys, weights=weights).squeeze(), 3 / 1.75, rtol=1e-6)


def by_hand(reduce, weights):
    """The formulas, sequence by sequence, over real steps."""
    spread = np.broadcast_to(weights.reshape(3, -1), MASK.shape)
    rows = [(LOSSES[row][MASK[row] == 1], spread[row][MASK[row] == 1]) for row in range(2)]
    losses, factors = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    if reduce is jr.sum_over_steps:
        return (losses * factors).sum()
    if reduce is jr.mean_over_steps:
        return np.average(losses, weights=factors)
    means = [np.average(losses, weights=factors) for losses, factors in rows]
    return np.average(means, weights=weights[:2] if weights.ndim == 1 else None)


@every_reduction
@pytest.mark.parametrize("weights", [OF_STEPS, OF_SEQUENCES], ids=["steps", "sequences"])
def test_the_formulas_and_nothing_from_masked_steps(reduce, weights, x64):
    real = MASK if weights.ndim == 2 else MASK.any(1)
    losses, dirty = np.where(MASK, LOSSES, np.nan), np.where(real, weights, np.nan)
    run = jax.jit(jax.value_and_grad(lambda x, w: reduce(x, MASK, weights=w), argnums=(0, 1)))
    np.testing.assert_allclose(reduce(losses, MASK, weights=dirty), by_hand(reduce, weights))
    value, (of_losses, of_weights) = run(losses, jnp.asarray(dirty))
    np.testing.assert_allclose(value, by_hand(reduce, weights), rtol=1e-12)
    assert np.isfinite(of_losses).all() and np.isfinite(of_weights).all()
    assert (np.asarray(of_losses)[MASK == 0] == 0).all() and (of_weights[real == 0] == 0).all()


def test_the_derivative_by_a_weight_of_0_is_that_of_the_formula(x64):
    losses, weights = jnp.array([1.0, 2.0, 4.0]), jnp.array([1.0, 0.0, 3.0])
    for reduce, expected in (
        (jr.mean_over_steps, (losses - 13 / 4) / 4),
        (jr.sum_over_steps, losses),
    ):
        came = jax.grad(lambda w, reduce=reduce: reduce(losses, weights=w))(weights)
        np.testing.assert_allclose(came, expected)


@every_loss
def test_a_loss_is_multiplied(name):
    """Per sequence, per step and, where a step has several terms, per feature."""
    loss, (floats, ints) = STEP_LOSSES[name], example(name, dtype=np.float32)
    mask, random = np.array([[1, 1, 0], [0, 1, 0]]), np.random.default_rng(2)
    alone = loss(*floats, *ints, mask)
    for shape in ((2,), (2, 3)):
        weights = random.uniform(size=shape).astype(np.float32)
        expected = alone * weights.reshape(2, -1)
        dirty = weights if shape == (2,) else np.where(mask, weights, np.nan)
        came = jax.jit(loss)(*floats, *ints, mask, weights=dirty)
        np.testing.assert_allclose(came, expected, rtol=1e-6)
        assert came.dtype == jnp.float32
    if name == "categorical":
        with pytest.raises(ValueError, match=r"weights must have the shape \(2, 3\) or \(2,\)"):
            loss(*floats, *ints, mask, weights=np.ones((2, 3, 4)))
        return
    weights = random.uniform(size=(2, 3, 4)).astype(np.float32)
    weights[..., 0] = 0
    dirty = np.where(mask[..., None], weights, np.nan)
    one_by_one = [leaf[..., None] for leaf in (*floats, *ints)]
    expected = (loss(*one_by_one) * weights).sum(-1) * mask
    np.testing.assert_allclose(loss(*floats, *ints, mask, weights=dirty), expected, rtol=1e-5)


def test_flags_of_features_are_steps_of_their_own():
    """A missing number is NaN in the target; only the numbers that are there count."""
    predictions, targets = jnp.zeros((2, 3, 2)), jnp.full((2, 3, 2), 2.0).at[0, 1, 1].set(jnp.nan)
    there = jnp.isfinite(targets)

    def loss(predictions):
        losses = jr.squared_error(predictions[..., None], targets[..., None], there)
        return jr.mean_over_steps(losses, there)

    value, gradient = jax.value_and_grad(loss)(predictions)
    assert float(value) == 4.0
    np.testing.assert_allclose(gradient, np.where(there, -4 / 11, 0), rtol=1e-6)
    ys = jnp.array([[1.0, jnp.nan], [3.0, 5.0]])
    turned = [jnp.swapaxes(array, -1, -2) for array in (ys, jnp.isfinite(ys))]
    assert jr.mean_valid(*turned).tolist() == [2.0, 5.0]


def test_packed_sequences_are_weighed_step_by_step():
    lengths, of_sequences = [3, 1, 2], np.array([1.0, 5.0, 0.5])
    losses = [np.arange(length) + 1.0 for length in lengths]
    packed = jr.pack(losses, 4)
    means = np.array([one.mean() for one in losses])
    own_length = np.array(lengths)[packed.segment_ids]
    assert packed.mask.shape == (2, 4)
    same = jr.mean_over_steps(packed.xs, packed.mask, weights=1 / own_length)
    np.testing.assert_allclose(same, means.mean(), rtol=1e-6)
    weighed = jr.mean_over_steps(
        packed.xs, packed.mask, weights=(of_sequences / lengths)[packed.segment_ids]
    )
    np.testing.assert_allclose(weighed, np.average(means, weights=of_sequences), rtol=1e-6)


@every_mean
def test_no_weight_is_as_no_step(mean):
    losses, nothing = jnp.ones((2, 3)), np.zeros((2, 3))
    for weights, mask in (
        (nothing, None),
        (nothing[:, 0], None),
        ([[1, 0, 0], [0] * 3], 1 - MASK[:2]),
    ):
        with pytest.raises(ValueError, match="must have a weight above 0 on a real step.*empty="):
            mean(losses, mask, weights=weights)
        assert float(mean(losses, mask, weights=weights, empty=0.5)) == 0.5
        value, gradient = jax.jit(jax.value_and_grad(lambda x, w, m: mean(x, m, weights=w)))(
            losses, jnp.asarray(weights), mask
        )
        assert np.isnan(value) and (gradient == 0).all()
    assert float(jr.sum_over_steps(losses, weights=nothing)) == 0
    assert jr.mean_valid(losses, weights=nothing[:, :1].reshape(2)).tolist() == [0, 0, 0]
    # Nor has one without a step, whatever its weight.
    assert float(jr.mean_over_sequences(jnp.ones((2, 0)), weights=[1, 1], empty=0.5)) == 0.5
    # A sequence without weight has no mean and is left out, as one without a real step.
    assert float(jr.mean_over_sequences(jnp.array([[2.0], [8.0]]), weights=[[1], [0]])) == 2


@every_reduction
def test_wrong_weights(reduce):
    losses, mask = jnp.ones((2, 3)), np.array([[1, 1, 0], [0, 0, 0]])
    for wrong in (-1.0, np.nan, np.inf):
        weights = np.ones((2, 3))
        weights[0, 1] = wrong
        with pytest.raises(ValueError, match=rf"weights must be finite and not below 0.*{wrong}"):
            reduce(losses, mask, weights=weights)
        with pytest.raises(ValueError, match="weights must be finite"):
            reduce(losses, mask, weights=weights[:, 1])
        assert not np.isfinite(JITTED[reduce](losses, mask, weights=weights))
        assert np.isfinite(reduce(losses, mask, weights=np.where(mask, 1, wrong)))
        assert np.isfinite(reduce(losses, mask, weights=[1, wrong]))
    for shape in ((3,), (2, 1), (1, 3), (), (2, 3, 1)):
        with pytest.raises(ValueError, match=r"weights must have the shape .*\(2,\), got"):
            reduce(losses, mask, weights=np.ones(shape))
    with pytest.raises(TypeError, match="weights must be floating"):
        reduce(losses, mask, weights=np.ones((2, 3), complex))


def test_weights_of_pooling():
    ys, weights = jnp.array([[1.0, 8.0], [3.0, 2.0], [jnp.nan] * 2]), jnp.array([1.0, 3.0, jnp.nan])
    mask = jnp.array([1, 1, 0])
    by_number = jnp.array([[1.0, 3.0], [3.0, 1.0], [jnp.nan] * 2])
    for run in eager_and_jitted(jr.mean_valid):
        np.testing.assert_allclose(run(ys, mask, weights=weights), [2.5, 3.5])
        np.testing.assert_allclose(run(ys, mask, weights=by_number), [2.5, 6.5])
    assert jr.mean_valid(ys * 1j, mask, weights=weights)[0] == 2.5j
    gradient = jax.grad(lambda ys, w: jr.mean_valid(ys, mask, weights=w).sum(), (0, 1))(ys, weights)
    assert all(np.isfinite(leaf).all() and (leaf[2] == 0).all() for leaf in gradient)
    with pytest.raises(ValueError, match="weights must be finite and not below 0"):
        jr.mean_valid(ys, mask, weights=[1, -1, 0])
    with pytest.raises(
        ValueError, match=r"weights must have the shape \(3, 2\) or \(3,\), got \(2,\)"
    ):
        jr.mean_valid(ys, mask, weights=jnp.ones(2))
