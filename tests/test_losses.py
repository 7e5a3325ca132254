import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.test_util import check_grads

from jaxrnn.losses import (
    binary_cross_entropy,
    cross_entropy,
    gaussian_nll,
    mean_over_sequences,
    mean_over_steps,
    squared_error,
    sum_over_steps,
)
from jaxrnn.sequences._masks import mask_from_lengths
from jaxrnn.sequences._pooling import last_valid

REDUCTIONS = (sum_over_steps, mean_over_steps, mean_over_sequences)
MEANS = REDUCTIONS[1:]
JITTED = {reduce: jax.jit(reduce) for reduce in REDUCTIONS}


def named(argument, functions):
    return pytest.mark.parametrize(argument, functions, ids=lambda function: function.__name__)


every_reduction = named("reduce", REDUCTIONS)
every_mean = named("mean", MEANS)


def by_hand(reduce, losses, mask):
    rows = [row[flags] for row, flags in zip(losses, mask, strict=True) if flags.any()]
    if reduce is mean_over_sequences:
        return np.mean([row.mean() for row in rows])
    steps = np.concatenate(rows)
    return steps.sum() if reduce is sum_over_steps else steps.mean()


@every_reduction
@settings(max_examples=60, deadline=None)
@given(mask=hnp.arrays(bool, (3, 4)).filter(np.any), seed=st.integers(0, 99))
def test_any_mask_gives_what_the_real_steps_alone_give(reduce, mask, seed):
    losses = np.random.default_rng(seed).normal(size=mask.shape).astype(np.float32)
    dirty = np.where(mask, losses, np.nan)
    np.testing.assert_allclose(
        reduce(dirty, mask), by_hand(reduce, losses, mask), rtol=1e-5, atol=1e-5
    )


def test_the_reductions_differ_on_unequal_lengths():
    """Three steps of loss 1 and one of loss 5: neither mean may stand in for the other."""
    losses, mask = jnp.array([[1.0, 1, 1], [5, 9, 9]]), mask_from_lengths([3, 1], 3)
    assert float(sum_over_steps(losses, mask)) == 8
    assert float(mean_over_steps(losses, mask)) == 2
    assert float(mean_over_sequences(losses, mask)) == 3
    for reduce, weights in (
        (sum_over_steps, [[1, 1, 1], [1, 0, 0]]),
        (mean_over_steps, [[1 / 4, 1 / 4, 1 / 4], [1 / 4, 0, 0]]),
        (mean_over_sequences, [[1 / 6, 1 / 6, 1 / 6], [1 / 2, 0, 0]]),
    ):
        np.testing.assert_allclose(jax.grad(reduce)(losses, mask), weights, rtol=1e-6)


@every_reduction
def test_without_a_mask_every_step_counts_and_one_row_is_one_sequence(reduce):
    losses = jnp.arange(6.0).reshape(2, 3)
    expected = 15 if reduce is sum_over_steps else 2.5
    assert float(reduce(losses)) == expected
    assert float(reduce(losses.reshape(2, 1, 3))) == expected
    np.testing.assert_allclose(reduce(losses[1]), reduce(losses[1:]))


@every_mean
def test_sequences_of_length_0_do_not_count(mean):
    losses = jnp.array([[2.0, 4.0], [7.0, 7.0]])
    assert float(mean(losses, mask_from_lengths([2, 0], 2))) == 3


@every_reduction
def test_masked_nan_contributes_nothing_and_real_nan_stays(reduce):
    """WeatherGenerator issue 2723: a product with the mask is NaN."""
    losses = jnp.array([[1.0, jnp.nan, 3.0], [jnp.inf, jnp.nan, -jnp.inf]])
    mask = jnp.array([[1, 0, 1], [0, 0, 0]])
    assert jnp.isnan((losses * mask).sum())
    assert float(reduce(losses, mask)) == (4 if reduce is sum_over_steps else 2)
    gradient = jax.grad(reduce)(losses, mask)
    np.testing.assert_array_equal(gradient[mask == 0], 0)
    assert (gradient[mask == 1] > 0).all()
    assert jnp.isnan(reduce(losses, mask.at[0, 1].set(1)))


@every_mean
def test_a_mean_over_nothing_raises_when_that_can_be_seen(mean):
    losses = jnp.ones((2, 3))
    for mask in (np.zeros((2, 3)), jnp.zeros((2, 3), bool)):
        with pytest.raises(ValueError, match="mask must have a real step.*empty="):
            mean(losses, mask)
    with pytest.raises(ValueError, match="empty="):
        jax.jit(lambda losses: mean(losses, np.zeros((2, 3))))(losses)
    with pytest.raises(ValueError, match="losses must have a step"):
        mean(losses[:, :0])
    for shape in ((2, 0), (0, 3), (0,)):
        with pytest.raises(ValueError, match="empty="):
            mean(jnp.ones(shape))
        with pytest.raises(ValueError, match="empty="):
            jax.jit(mean)(jnp.ones(shape), jnp.ones(shape, int))


@every_mean
def test_a_mean_over_nothing_is_nan_under_jit(mean):
    assert jnp.isnan(jax.jit(mean)(jnp.ones((2, 3)), jnp.zeros((2, 3), bool)))


@every_mean
def test_a_value_for_nothing(mean):
    losses, nothing = jnp.full((2, 3), jnp.nan), jnp.zeros((2, 3), int)
    for run in (mean, jax.jit(mean)):
        assert float(run(losses, nothing, empty=0.5)) == 0.5
        gradient = jax.grad(lambda losses, run=run: run(losses, nothing, empty=0.5))(losses)
        np.testing.assert_array_equal(gradient, 0)
        assert float(run(jnp.ones((2, 3)), nothing.at[0].set(1), empty=0.5)) == 1
    assert float(mean(jnp.ones((2, 0)), empty=0)) == 0
    with pytest.raises(ValueError, match="empty must be a scalar"):
        mean(losses, nothing, empty=jnp.zeros(2))


def test_a_sum_over_nothing_is_zero():
    assert float(sum_over_steps(jnp.full((2, 3), jnp.nan), jnp.zeros((2, 3)))) == 0
    assert float(sum_over_steps(jnp.ones((2, 0)))) == 0


@every_reduction
def test_bfloat16_losses_accumulate_in_float32(reduce):
    """In bfloat16 a running sum of ones stops at 256."""
    losses = jnp.ones((4, 1024), jnp.bfloat16)
    value = reduce(losses)
    assert value.dtype == jnp.float32
    assert float(value) == (4096 if reduce is sum_over_steps else 1)
    assert jax.grad(reduce)(losses).dtype == jnp.bfloat16


@every_reduction
def test_losses_that_do_not_fit_raise(reduce):
    losses = jnp.ones((2, 3))
    with pytest.raises(ValueError, match=r"mask must have the shape \(2, 3\), got \(2, 1\)"):
        reduce(losses, jnp.ones((2, 1)))
    with pytest.raises(ValueError, match="mask_from_lengths"):
        reduce(losses, jnp.array([3, 2]))
    with pytest.raises(ValueError, match="only 0 and 1, got nan"):
        reduce(losses, losses.at[0].set(jnp.nan))
    with pytest.raises(ValueError, match=r"losses must be \[..., T\]"):
        reduce(jnp.float32(1))
    for dtype in (int, complex):
        with pytest.raises(TypeError, match="losses must be floating or bool"):
            reduce(jnp.ones((2, 3), dtype))


def test_the_mean_of_hits_is_an_accuracy():
    hits = jnp.array([[1, 2, 3]]) == jnp.array([[1, 0, 3]])
    np.testing.assert_allclose(mean_over_steps(hits, jnp.array([[1, 1, 0]])), 0.5)


def example(name, shape=(2, 3, 4), dtype=np.float64):
    """The arguments of a loss, floating ones first, and which of them are floating."""
    random = np.random.default_rng(0)
    normal = [random.normal(size=shape).astype(dtype) for _ in range(3)]
    return {
        "categorical": (normal[:1], [random.integers(0, shape[-1], shape[:-1])]),
        "binary": (normal[:1], [random.integers(0, 2, shape)]),
        "squared": (normal[:2], []),
        "gaussian": (normal, []),
    }[name]


STEP_LOSSES = {
    "categorical": cross_entropy,
    "binary": binary_cross_entropy,
    "squared": squared_error,
    "gaussian": gaussian_nll,
}
every_loss = pytest.mark.parametrize("name", STEP_LOSSES)


def softplus(x):
    return np.log1p(np.exp(x))


FORMULAS = {
    "categorical": lambda logits, labels: (
        np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    ),
    "binary": lambda logits, labels: np.where(labels, softplus(-logits), softplus(logits)).sum(-1),
    "squared": lambda predictions, targets: ((predictions - targets) ** 2).sum(-1),
    "gaussian": lambda means, log_scales, targets: (
        -np.log(
            np.exp(-(((targets - means) / np.exp(log_scales)) ** 2) / 2)
            / (np.exp(log_scales) * math.sqrt(2 * math.pi))
        ).sum(-1)
    ),
}


@every_loss
def test_values_and_gradients_in_float64(name, x64):
    loss, (floats, ints) = STEP_LOSSES[name], example(name)
    values = loss(*floats, *ints)
    assert values.shape == (2, 3) and values.dtype == jnp.float64
    np.testing.assert_allclose(values, FORMULAS[name](*floats, *ints), rtol=1e-12)
    mask = np.array([[1, 0, 1], [1, 1, 0]])
    for reduce in REDUCTIONS:
        run = jax.jit(lambda *floats, reduce=reduce: reduce(loss(*floats, *ints, mask), mask))
        check_grads(run, tuple(map(jnp.asarray, floats)), order=1, modes=["rev"])


@every_loss
def test_padding_of_any_kind_reaches_no_value_and_no_gradient(name):
    """NaN targets in padding must not make the gradient of a readout NaN."""
    loss, (floats, ints) = STEP_LOSSES[name], example(name, dtype=np.float32)
    mask = np.array([[1, 1, 0], [0, 1, 0]])

    def value(scale, floats, ints):
        return sum_over_steps(loss(*[scale * leaf for leaf in floats], *ints, mask), mask)

    def padded_with(number, label):
        dirty = [np.where(mask[..., None], leaf, np.float32(number)) for leaf in floats]
        labels = [
            np.where(mask.reshape(2, 3, *[1] * (leaf.ndim - 2)), leaf, label) for leaf in ints
        ]
        return [jnp.asarray(leaf) for leaf in dirty], labels

    run = jax.jit(jax.value_and_grad(value, argnums=1))
    clean = run(1.0, *padded_with(0, 0))
    for number, label in ((np.nan, -1), (np.inf, 99), (-1e38, -100)):
        came = run(1.0, *padded_with(number, label))
        jax.tree.map(np.testing.assert_array_equal, came, clean)
        losses = loss(*padded_with(number, label)[0], *padded_with(number, label)[1], mask)
        np.testing.assert_array_equal(losses[mask == 0], 0)
    # The readout's own gradient, with finite predictions and NaN targets.
    if name in ("squared", "gaussian"):
        *predictions, targets = padded_with(0, 0)[0]
        targets = jnp.where(mask[..., None], targets, jnp.nan)

        def by_scale(scale):
            return loss(*[scale * leaf for leaf in predictions], targets, mask).sum()

        assert jnp.isfinite(jax.grad(by_scale)(1.0))


@every_loss
def test_padding_makes_no_nan_on_the_way_either(name):
    """Otherwise `jax_debug_nans` could not be used on padded batches."""
    loss, (floats, ints) = STEP_LOSSES[name], example(name, dtype=np.float32)
    mask = jnp.array([[1, 1, 0], [0, 0, 0]])
    floats = [jnp.where(mask[..., None] == 1, leaf, jnp.inf) for leaf in floats]
    labels = [jnp.where(mask.reshape(2, 3, *[1] * (leaf.ndim - 2)) == 1, leaf, -1) for leaf in ints]

    def value(first, mask):
        losses = loss(first, *floats[1:], *labels, mask)
        return sum(mean(losses, mask, empty=0.0) for mean in MEANS)

    with jax.debug_nans(True):
        for flags in (mask, jnp.zeros_like(mask)):
            gradient = jax.grad(value)(floats[0], flags)
            np.testing.assert_array_equal(gradient[flags == 0], 0)


@every_loss
def test_nan_in_a_real_step_stays_visible(name):
    loss, (floats, ints) = STEP_LOSSES[name], example(name, dtype=np.float32)
    floats[0][0, 1, 2] = np.nan
    losses = loss(*floats, *ints, np.ones((2, 3)))
    np.testing.assert_array_equal(np.isnan(losses), [[0, 1, 0], [0, 0, 0]])


@every_loss
def test_bfloat16_predictions_give_float32_losses(name):
    """64 features of loss near 1 each: a sum in bfloat16 is off by up to 0.25."""
    loss, (floats, ints) = STEP_LOSSES[name], example(name, (2, 3, 64), np.float32)
    narrow = [jnp.asarray(leaf, jnp.bfloat16) for leaf in floats]
    losses = loss(*narrow, *ints)
    assert losses.dtype == jnp.float32
    exact = loss(*[leaf.astype(jnp.float32) for leaf in narrow], *ints)
    np.testing.assert_allclose(losses, exact, rtol=1e-6)
    assert jax.grad(lambda first: loss(first, *narrow[1:], *ints).sum())(narrow[0]).dtype == (
        jnp.bfloat16
    )


@every_loss
def test_float32_stays_float32_in_64_bit_mode(name, x64):
    floats, ints = example(name, dtype=np.float32)
    assert STEP_LOSSES[name](*floats, *ints).dtype == jnp.float32


@every_loss
def test_no_shape_broadcasts(name):
    loss, (floats, ints) = STEP_LOSSES[name], example(name, dtype=np.float32)
    arguments = [*floats, *ints]
    for position in range(len(arguments)):
        for short in (arguments[position][:1], arguments[position][:, :1]):
            changed = [*arguments[:position], short, *arguments[position + 1 :]]
            with pytest.raises(ValueError, match="must have the shape"):
                loss(*changed)
    if name != "categorical":
        with pytest.raises(ValueError, match="must have the shape"):
            loss(*arguments[:-1], arguments[-1][..., :1])
    for mask in (np.ones((2, 1)), np.ones((2, 3, 1)), np.ones((2, 3, 4))):
        with pytest.raises(ValueError, match="mask must have the shape"):
            loss(*arguments, mask)
    with pytest.raises(ValueError, match=r"must be \[..., T, D\]"):
        loss(*[leaf[0, 0] for leaf in arguments])
    with pytest.raises(TypeError, match="must be floating"):
        loss(arguments[0].astype(int), *arguments[1:])
    with pytest.raises(TypeError, match="dtype complex"):
        loss(*arguments[:-1], arguments[-1].astype(np.complex64))


@every_loss
def test_no_steps(name):
    floats, ints = example(name, (2, 0, 4))
    assert STEP_LOSSES[name](*floats, *ints).shape == (2, 0)


@pytest.mark.parametrize("label", [4, -1, -100])
def test_labels_out_of_range_raise_or_show(label):
    """Neither wrapped to the last class nor taken as a sign to ignore the step."""
    logits, labels = jnp.zeros((1, 3, 4)), np.array([[0, label, 3]])
    with pytest.raises(ValueError, match=rf"labels must lie in 0 ... 3 on real steps, got {label}"):
        cross_entropy(logits, labels)
    with pytest.raises(ValueError, match="labels must lie in"):
        cross_entropy(logits, labels, np.ones((1, 3)))
    masked = cross_entropy(logits, labels, np.array([[1, 0, 1]]))
    np.testing.assert_allclose(masked, [[np.log(4), 0, np.log(4)]], rtol=1e-6)
    traced = jax.jit(cross_entropy)(logits, labels)
    np.testing.assert_array_equal(np.isnan(traced), [[0, 1, 0]])


def test_labels_of_any_int_width_and_more_classes_than_they_hold():
    logits = jnp.zeros((1, 300)).at[0, 200].set(5.0)
    for dtype in (np.uint8, np.int16, np.uint32, np.int64):
        for run in (cross_entropy, jax.jit(cross_entropy)):
            loss = run(logits, np.array([200], dtype))
            np.testing.assert_allclose(loss, np.log(299 + np.exp(5.0)) - 5, rtol=1e-5)
    for dtype in (bool, float):
        with pytest.raises(TypeError, match="labels must be integer"):
            cross_entropy(logits, np.array([1], dtype))


def test_binary_labels_may_be_bool_or_probabilities_and_nothing_else():
    logits = jnp.array([[0.5, -1.0]])
    sure = binary_cross_entropy(logits, jnp.array([[True, False]]))
    np.testing.assert_array_equal(sure, binary_cross_entropy(logits, jnp.array([[1, 0]])))
    np.testing.assert_allclose(
        binary_cross_entropy(logits, jnp.full((1, 2), 0.5)),
        (sure + binary_cross_entropy(logits, jnp.array([[0, 1]]))) / 2,
        rtol=1e-6,
    )
    for label in (2, -1, 1.5, np.nan):
        labels = np.array([[1, label]])
        with pytest.raises(ValueError, match="labels must lie in 0 ... 1"):
            binary_cross_entropy(logits, labels)
        assert jnp.isnan(jax.jit(binary_cross_entropy)(logits, labels)).all()


def test_a_small_scale_does_not_overflow():
    """exp(-2 log σ) is infinite in float32 from log σ = -45 on; a perfect forecast is no NaN."""
    loss = gaussian_nll(jnp.ones((1, 1)), jnp.full((1, 1), -60.0), jnp.ones((1, 1)))
    np.testing.assert_allclose(loss, [-60 + 0.5 * math.log(2 * math.pi)], rtol=1e-6)


def test_a_final_state_objective_is_a_sum_with_one_supervised_step(x64):
    """h = tanh(w h + x): the same value and gradient by pooling and by a mask, NaN in padding."""
    seq_lengths, num_steps = np.array([4, 2, 1]), 4
    real = mask_from_lengths(seq_lengths, num_steps)
    last = np.arange(num_steps) == seq_lengths[:, None] - 1
    random = np.random.default_rng(0)
    xs, goals = random.normal(size=(3, num_steps, 2)), random.normal(size=(3, 2))

    def states(w):
        def step(h, x):
            h = jnp.tanh(w * h + x)
            return h, h

        _, ys = jax.lax.scan(step, jnp.zeros((3, 2)), jnp.swapaxes(xs, 0, 1))
        return jnp.swapaxes(ys, 0, 1)

    def by_mask(w):
        targets = jnp.where(last[..., None], goals[:, None], jnp.nan)
        return sum_over_steps(squared_error(states(w), targets, last), last)

    def by_pooling(w):
        final = last_valid(states(w), real)
        return sum_over_steps(squared_error(final, goals))

    for one, other in zip(
        jax.value_and_grad(by_mask)(0.7), jax.value_and_grad(by_pooling)(0.7), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    expected = ((states(0.7)[np.arange(3), seq_lengths - 1] - goals) ** 2).sum()
    np.testing.assert_allclose(by_mask(0.7), expected, rtol=1e-12)


def test_a_whole_loss_works_under_vmap():
    """Row by row with vmap, the mean over steps of a row is what the row alone gives."""
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 4)), jnp.float32)
    labels, mask = jnp.array([[0, 1, 9], [2, 9, 9]]), mask_from_lengths([2, 1], 3)

    def row_loss(logits, labels, mask):
        return mean_over_steps(cross_entropy(logits, labels, mask), mask)

    rows = jax.vmap(row_loss)(logits, labels, mask)
    for row in range(2):
        np.testing.assert_allclose(
            rows[row], row_loss(logits[row], labels[row], mask[row]), rtol=1e-6
        )
