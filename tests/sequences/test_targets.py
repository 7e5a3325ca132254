import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxrnn.sequences._batching import stream_batches
from jaxrnn.sequences._packing import pack
from jaxrnn.sequences._targets import shift_targets

shapes = st.shared(st.sampled_from([(2, 6), (6,), (2, 1), (1, 0)]), key="shape")


@pytest.mark.parametrize("num_feature_axes", ["1", {"a": 1}, True])
def test_feature_axes_that_are_no_int_raise(num_feature_axes):
    with pytest.raises(TypeError, match="num_feature_axes must be an int"):
        shift_targets(np.ones((2, 3)), num_feature_axes=num_feature_axes)


@settings(max_examples=100, deadline=None)
@given(mask=shapes.flatmap(lambda s: hnp.arrays(bool, s)), seed=st.integers(0, 99))
def test_a_step_has_a_target_when_the_next_step_is_real_and_goes_on(mask, seed):
    random = np.random.default_rng(seed)
    reset = random.random(mask.shape) < 0.3
    xs = np.where(mask, random.integers(1, 100, mask.shape), -1)
    targets, has_target = shift_targets(xs, mask, reset)
    assert has_target.dtype == bool and targets.dtype == jnp.asarray(xs).dtype
    num_steps = mask.shape[-1]
    for at in np.ndindex(mask.shape):
        after = (*at[:-1], at[-1] + 1)
        expected = at[-1] + 1 < num_steps and mask[at] and mask[after] and not reset[after]
        assert has_target[at] == expected
        assert targets[at] == (xs[after] if expected else 0)


def test_the_output_after_a_token_predicts_the_next_one():
    """Not the token it has just seen."""
    targets, mask = shift_targets(np.array([[3, 1, 4, 1]]), num_feature_axes=0)
    np.testing.assert_array_equal(targets, [[1, 4, 1, 0]])
    np.testing.assert_array_equal(mask, [[1, 1, 1, 0]])


def test_a_missing_observation_is_no_target_and_has_none():
    xs = jnp.array([1.0, 2.0, jnp.nan, 4.0, 5.0])
    targets, mask = shift_targets(xs, jnp.array([1, 1, 0, 1, 1]))
    np.testing.assert_array_equal(mask, [1, 0, 0, 1, 0])
    np.testing.assert_array_equal(targets, [2, 0, 0, 5, 0])


def test_padding_and_packed_rows():
    packed = pack([np.array([1, 2, 3]), np.array([4]), np.array([5, 6])], 7)
    targets, mask = shift_targets(packed.xs, packed.mask, packed.reset)
    np.testing.assert_array_equal(packed.xs, [[1, 2, 3, 5, 6, 4, 0]])
    np.testing.assert_array_equal(targets, [[2, 3, 0, 6, 0, 0, 0]])
    np.testing.assert_array_equal(mask, [[1, 1, 0, 1, 0, 0, 0]])


def test_any_tree_and_any_feature_axes():
    xs = {"x": jnp.arange(12.0).reshape(1, 3, 2, 2), "token": jnp.array([[7, 8, 9]])}
    targets, mask = shift_targets(xs, np.ones((1, 3)))
    np.testing.assert_array_equal(targets["x"][0, :2], xs["x"][0, 1:])
    np.testing.assert_array_equal(targets["x"][0, 2], 0)
    np.testing.assert_array_equal(targets["token"], [[8, 9, 0]])
    by_reset = shift_targets(xs, reset=np.zeros((1, 3)))
    jax.tree.map(np.testing.assert_array_equal, by_reset.targets, targets)
    jitted = jax.jit(shift_targets)(xs, np.ones((1, 3), bool))
    jax.tree.map(np.testing.assert_array_equal, tuple(jitted), (targets, mask))


def test_floating_features_have_one_axis_and_integers_must_say():
    xs = np.arange(12.0).reshape(2, 3, 2)
    targets, mask = shift_targets(xs)
    assert mask.shape == (2, 3)
    np.testing.assert_array_equal(targets[:, :2], xs[:, 1:])
    with pytest.raises(ValueError, match="num_feature_axes must be given for integer xs"):
        shift_targets(np.arange(6).reshape(2, 3))


def test_shapes_that_do_not_agree_raise():
    with pytest.raises(ValueError, match=r"mask must have the shape \(3, 4\), got \(2, 4\)"):
        shift_targets(np.ones((3, 4, 1)), np.ones((2, 4)))
    with pytest.raises(ValueError, match="reset must have the shape"):
        shift_targets(np.ones((3, 4, 1)), np.ones((3, 4)), np.ones(4))
    with pytest.raises(ValueError, match="leaves of xs must share"):
        shift_targets({"a": np.ones((3, 4)), "b": np.ones((3, 5))}, np.ones((3, 4)))
    with pytest.raises(ValueError, match="mask must have the shape"):
        shift_targets(np.ones((3, 4, 1)), np.ones((3, 4)), num_feature_axes=0)
    for xs in (np.float32(1), np.ones(3)):
        with pytest.raises(ValueError, match="time axis"):
            shift_targets(xs)
    with pytest.raises(ValueError, match="at least one array"):
        shift_targets({})


def test_targets_cut_with_their_stream_lose_none():
    stream = np.arange(1.0, 8.0)[:, None]
    targets, mask = shift_targets(stream)
    tree = {"x": stream, "target": np.asarray(targets), "mask": np.asarray(mask)}
    chunks = list(stream_batches([tree], 1, 3))
    supervised = np.concatenate([chunk.xs["mask"][0] for chunk in chunks])
    assert supervised.sum() == 6
    ahead = [chunk.xs["target"] - chunk.xs["x"] for chunk in chunks]
    np.testing.assert_array_equal(np.concatenate(ahead, axis=1)[0, supervised], 1)
