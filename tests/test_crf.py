"""The conditional random field against a sum over all taggings, for any mask and any reset."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.crf import CRFParams

NUM_CLASSES = 3
MASK = np.array(
    [
        [1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1],
        [0, 1, 0, 1, 1],
        [0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1],
        [1, 1, 0, 1, 1],
        [0, 1, 0, 0, 1],
    ]
)
RESET = np.zeros_like(MASK)
RESET[4, 2] = RESET[5, [0, 3]] = RESET[6, 2] = RESET[7, [0, 1, 3]] = 1  # also on masked steps
ROWS = np.random.default_rng(0)
LOGITS = 2 * ROWS.normal(size=(*MASK.shape, NUM_CLASSES))
LABELS = ROWS.integers(0, NUM_CLASSES, MASK.shape)
PARAMS = CRFParams(*[ROWS.normal(size=shape) for shape in ((3, 3), (3,), (3,))])
ALLOWED = np.array([[1, 0, 1], [1, 1, 1], [0, 1, 0]], bool)
FORBIDDING = CRFParams(
    np.where(ALLOWED, PARAMS.transitions, -np.inf), np.array([0.3, -np.inf, 1.0]), PARAMS.end
)
# Labels that the forbidding parameters allow, in every chain: 0 2 1 1 0 from any real start.
ALLOWED_LABELS = np.array(
    [
        [0, 2, 1, 1, 0],
        [2, 1, 0, 9, 9],
        [9, 9, 0, 0, 2],
        [9, 2, 9, 1, 1],
        [9, 9, 9, 9, 9],
        [0, 0, 2, 2, 1],
        [0, 2, 9, 2, 1],
        [9, 0, 9, 9, 2],
    ]
)


def chains(mask, reset):
    """The places of the real steps of each chain of a row."""
    sequence = np.cumsum(reset)
    groups = [np.flatnonzero(mask * (sequence == one)) for one in range(sequence.max() + 1)]
    return [group for group in groups if len(group)]


def brute_force(params, logits, labels, mask, reset):
    """Log-likelihood, its gradients, and marginals of a row, by a sum over all its taggings."""
    total, of_logits, of_params = 0.0, np.zeros_like(logits), jax.tree.map(np.zeros_like, params)
    marginals, best = np.zeros_like(logits), 0.0
    for places in chains(mask, reset):
        taggings = np.array(list(itertools.product(range(NUM_CLASSES), repeat=len(places))))
        scores = np.array([score(params, logits[places], one) for one in taggings])
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        told = labels[places]
        total += score(params, logits[places], told) - np.log(np.exp(scores).sum())
        best += scores.max()
        for one, share in [*zip(taggings, -shares, strict=True), (told, 1.0)]:
            of_logits[places, one] += share
            of_params.start[one[0]] += share
            of_params.end[one[-1]] += share
            np.add.at(of_params.transitions, (one[:-1], one[1:]), share)
        for one, share in zip(taggings, shares, strict=True):
            marginals[places, one] += share
    return total, of_params, of_logits, marginals, best


def score(params, logits, tagging):
    inside = params.transitions[tagging[:-1], tagging[1:]].sum()
    unary = logits[np.arange(len(tagging)), tagging].sum()
    return params.start[tagging[0]] + inside + unary + params.end[tagging[-1]]


@jax.jit
def everything(params, logits, labels, mask, reset):
    def total(params, logits):
        each = jr.crf_log_likelihood(params, logits, labels, mask, reset=reset)
        return each.sum(), each

    gradients, each = jax.grad(total, argnums=(0, 1), has_aux=True)(params, logits)
    marginals = jr.crf_marginals(params, logits, mask, reset=reset)
    return each, *gradients, marginals, jr.viterbi(params, logits, mask, reset=reset)


@pytest.mark.parametrize(
    ("params", "labels"),
    [(PARAMS, LABELS), (FORBIDDING, ALLOWED_LABELS)],
    ids=["all allowed", "some forbidden"],
)
def test_it_is_the_sum_over_all_taggings(params, labels, x64):
    dirty = np.where(MASK[..., None], LOGITS, np.nan)
    came = everything(params, dirty, np.where(MASK, labels, -7), MASK == 1, RESET == 1)
    each, of_params, of_logits, marginals, best = came
    rows = [brute_force(params, *row) for row in zip(LOGITS, labels, MASK, RESET, strict=True)]
    for row, (total, *_, of_row, shares, highest) in enumerate(rows):
        np.testing.assert_allclose(each[row], total, rtol=1e-12)
        np.testing.assert_allclose(of_logits[row], of_row, atol=1e-12)
        np.testing.assert_allclose(marginals[row], shares, atol=1e-12)
        told = [
            score(params, LOGITS[row][places], best[row][places])
            for places in chains(MASK[row], RESET[row])
        ]
        np.testing.assert_allclose(sum(told), highest, rtol=1e-12)
    summed = jax.tree.map(lambda *leaves: sum(leaves), *[row[1] for row in rows])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), of_params, summed)
    assert each[4] == 0 and (best[MASK == 0] == 0).all() and best.dtype == jnp.int32
    # The derivative of log Z is the marginals: that of the log-likelihood is what they lack.
    missing = np.eye(NUM_CLASSES)[np.where(MASK, labels, 0)] * MASK[..., None] - marginals
    np.testing.assert_allclose(of_logits, missing, atol=1e-12)


def test_what_is_forbidden_has_no_probability_and_no_nan(x64):
    forbidden = jnp.full((3, 3), -jnp.inf)
    cases = (
        (forbidden, LABELS),  # no tagging of two steps or more at all
        (FORBIDDING.transitions, np.tile([0, 1, 1, 1, 1], (8, 1))),  # a 1 may not follow a 0
    )
    for transitions, labels in cases:
        params = CRFParams(transitions, jnp.zeros(3), jnp.zeros(3))
        each, *gradients, marginals, best = everything(
            params, LOGITS, labels, MASK == 1, RESET == 1
        )
        assert each[0] == -jnp.inf and each[4] == 0 and not jnp.isnan(each).any()
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((gradients, marginals)))
        assert (marginals[0].sum(-1) == 0).all() == (transitions is forbidden)
    impossible = LOGITS.copy()
    impossible[..., 0] = -np.inf  # a class that is impossible by the logits
    each, *gradients, marginals, best = everything(
        PARAMS, impossible, 1 + LABELS % 2, MASK == 1, RESET == 1
    )
    assert jnp.isfinite(each).all() and (marginals[..., 0] == 0).all()
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert (np.asarray(best)[MASK == 1] > 0).all()


def test_before_training_the_steps_are_independent():
    """And a row of 500 steps in bfloat16 loses nothing of float32."""
    logits = jnp.asarray(np.random.default_rng(1).normal(size=(2, 500, 3)), jnp.bfloat16)
    labels, mask = jnp.ones((2, 500), jnp.uint8), jr.mask_from_lengths(jnp.array([500, 321]), 500)
    each, _, of_logits, marginals, best = everything(jr.crf_init(3), logits, labels, mask, None)
    assert each.dtype == marginals.dtype == jnp.float32 and of_logits.dtype == jnp.bfloat16
    np.testing.assert_allclose(each, -jr.cross_entropy(logits, labels, mask).sum(-1), rtol=1e-5)
    wide = logits.astype(jnp.float32)
    shares = jax.nn.softmax(wide) * mask[..., None]
    np.testing.assert_allclose(marginals, shares, atol=1e-5)
    np.testing.assert_array_equal(best, wide.argmax(-1) * mask)


def test_nan_in_a_real_step_and_labels_out_of_range_stay_visible(x64):
    logits, labels = LOGITS.copy(), LABELS.copy()
    logits[0, 2, 1], labels[1, 1] = np.nan, 3
    each, *_, marginals, best = everything(PARAMS, logits, labels, MASK == 1, RESET == 1)
    assert np.flatnonzero(np.isnan(each)).tolist() == [0, 1]
    assert np.isnan(marginals[0]).all() and np.isfinite(marginals[1:]).all()
    assert best[0, 1] >= 0 and (best[0, 2:] == -1).all() and (best[1:] >= 0).all()


def test_what_does_not_fit():
    params, logits, labels = jr.crf_init(3), jnp.zeros((2, 4, 3)), np.zeros((2, 4), int)
    with pytest.raises(TypeError, match="params must be CRFParams, got tuple"):
        jr.viterbi(tuple(params), logits)
    with pytest.raises(ValueError, match=r"params.end must have the shape \(3,\).*got \(2,\)"):
        jr.crf_marginals(params._replace(end=jnp.zeros(2)), logits)
    with pytest.raises(ValueError, match="labels must lie in 0 ... 2 on real steps, got 3"):
        jr.crf_log_likelihood(params, logits, labels + 3)
    with pytest.raises(TypeError, match="labels must be integer"):
        jr.crf_log_likelihood(params, logits, labels.astype(float))
    with pytest.raises(ValueError, match=r"mask must have the shape \(2, 4\)"):
        jr.crf_log_likelihood(params, logits, labels, labels.T)
    with pytest.raises(ValueError, match=r"reset must have the shape \(2, 4\)"):
        jr.viterbi(params, logits, reset=labels.T)
    with pytest.raises(ValueError, match=r"logits must be \[..., T, D\]"):
        jr.viterbi(params, logits[0, 0])
    with pytest.raises(ValueError, match="num_classes must be at least 1, got 0"):
        jr.crf_init(0)
