import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.engine.keys import MissingKey

BOTH = pytest.mark.parametrize("variational", [False, True])


def kept(layer, key, shape, reset=None):
    """Which features of ones were kept."""
    outputs = jr.unroll(layer, (), jnp.ones(shape), reset=reset, key=key).outputs
    return np.asarray(outputs) != 0


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
@BOTH
def test_a_share_of_rate_is_dropped_and_the_rest_scaled_up(rate, variational):
    xs = jax.random.normal(jax.random.key(0), (400, 5, 20))
    layer = jr.dropout(rate, variational)
    outputs = np.asarray(jr.unroll(layer, (), xs, key=jax.random.key(1)).outputs)
    keep = outputs != 0
    np.testing.assert_array_equal(outputs, np.where(keep, xs / (1 - rate), 0))
    num_draws = keep.size / (5 if variational else 1)
    sigma = np.sqrt(rate * (1 - rate) / num_draws)
    assert abs(keep.mean() - (1 - rate)) < 5 * sigma


@BOTH
def test_without_a_key_or_a_rate_it_is_the_identity(variational):
    xs = jax.random.normal(jax.random.key(0), (3, 4, 5))
    layer = jr.dropout(0.5, variational)
    np.testing.assert_array_equal(jr.unroll(layer, (), xs).outputs, xs)
    layer = jr.dropout(0.0, variational)
    outputs = jr.unroll(layer, (), xs, key=jax.random.key(1)).outputs
    np.testing.assert_array_equal(outputs, xs)


@BOTH
def test_a_key_fixes_the_mask(variational):
    layer, shape = jr.dropout(0.5, variational), (4, 6, 8)
    first = kept(layer, jax.random.key(0), shape)
    np.testing.assert_array_equal(first, kept(layer, jax.random.key(0), shape))
    differ = first != kept(layer, jax.random.key(1), shape)
    # 4 · 8 draws at the least, each of which differs with probability 1/2.
    assert 0.05 < differ.mean() < 0.95


def test_steps_rows_and_features_have_draws_of_their_own():
    keep = kept(jr.dropout(0.5), jax.random.key(0), (5, 6, 40))
    assert len({row.tobytes() for row in keep.reshape(-1, 40)}) == 30


def test_a_variational_mask_is_constant_in_a_row():
    keep = kept(jr.dropout(0.5, variational=True), jax.random.key(0), (5, 6, 40))
    np.testing.assert_array_equal(keep, np.broadcast_to(keep[:, :1], keep.shape))
    assert len({row.tobytes() for row in keep[:, 0]}) == 5


@pytest.mark.parametrize("start", [False, True])
def test_a_variational_mask_is_drawn_anew_at_every_reset(start):
    reset = np.zeros((3, 7), bool)
    reset[:, 0] = start
    reset[0, [2, 5]] = reset[1, 4] = True
    keep = kept(jr.dropout(0.5, variational=True), jax.random.key(0), (3, 7, 40), reset)
    segments = [keep[0, :2], keep[0, 2:5], keep[0, 5:], keep[1, :4], keep[1, 4:], keep[2]]
    for segment in segments:
        np.testing.assert_array_equal(segment, np.broadcast_to(segment[:1], segment.shape))
    assert len({segment[0].tobytes() for segment in segments}) == len(segments)


def test_a_variational_mask_holds_for_a_sequence_read_backwards():
    drop = jr.dropout(0.5, variational=True)
    both = jr.bidirectional(drop, drop, merge="concat")
    reset = jnp.array([0, 0, 0, 1, 0, 0])
    params = jr.layers.Directions((), ())
    outputs = jr.unroll(both, params, jnp.ones((6, 40)), reset=reset, key=jax.random.key(0)).outputs
    keep = np.asarray(outputs) != 0
    for segment in (keep[:3], keep[3:]):
        np.testing.assert_array_equal(segment, np.broadcast_to(segment[:1], segment.shape))
    masks = {keep[step, part].tobytes() for step in (0, 3) for part in (np.s_[:40], np.s_[40:])}
    assert len(masks) == 4


@BOTH
def test_the_gradient_is_the_mask(variational):
    layer, xs = jr.dropout(0.25, variational), jnp.ones((3, 4, 5))

    def total(xs):
        return jr.unroll(layer, (), xs, key=jax.random.key(0)).outputs.sum()

    outputs = jr.unroll(layer, (), xs, key=jax.random.key(0)).outputs
    np.testing.assert_array_equal(jax.grad(total)(xs), outputs)


def test_nan_that_is_dropped_is_gone():
    xs = jnp.full((50, 4), jnp.nan)
    outputs = jr.unroll(jr.dropout(0.5), (), xs, key=jax.random.key(0)).outputs
    assert 0.2 < np.mean(np.asarray(outputs) == 0) < 0.8


def test_training_without_a_key_raises():
    for layer in (jr.dropout(0.5), jr.serial(jr.elman(3), jr.dropout(0.5, True))):
        params = layer.init(jax.random.key(0), 3)
        with pytest.raises(ValueError, match="dropout draws noise but train_step got no key"):
            jr.unroll(layer, params, jnp.ones((4, 3)), key=MissingKey("train_step"))


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\), got 1"):
        jr.dropout(1.0)
    with pytest.raises(ValueError, match=r"rate must lie in \[0, 1\), got -0.1"):
        jr.dropout(-0.1)
    with pytest.raises(TypeError, match="rate must be a float"):
        jr.dropout("0.5")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="xs must be floating to be scaled, got the dtype int32"):
        jr.unroll(jr.dropout(0.5), (), jnp.ones((4, 3), jnp.int32))
