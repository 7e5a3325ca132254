import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxrnn as jr
from jaxrnn.engine.masking import as_mask, zero_masked
from jaxrnn.sequences._masks import (
    lengths_from_mask,
    mask_from_lengths,
    reset_from_done,
    reset_from_segments,
)

FLAG_DTYPES = [bool, np.int8, np.int32, np.uint8, np.float32, np.float64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("num_steps", [5.0, "5", True])
def test_a_number_of_steps_that_is_no_int_raises(num_steps):
    with pytest.raises(TypeError, match="num_steps must be an int"):
        mask_from_lengths([1], num_steps)


def test_a_traced_number_of_steps_raises():
    with pytest.raises(TypeError, match="num_steps must be an int"):
        jax.jit(lambda num_steps: mask_from_lengths([1], num_steps))(5)


def test_segment_ids_of_64_bits():
    assert reset_from_segments([2**40, 2**40 + 1]).all()


@pytest.mark.parametrize("dtype", FLAG_DTYPES)
def test_a_mask_of_zeros_and_ones_becomes_bool(dtype):
    for flags in (np.array([[1, 0, 1]], dtype), jnp.array(np.array([[1, 0, 1]], dtype))):
        mask = as_mask(flags, (1, 3))
        assert mask.dtype == bool
        np.testing.assert_array_equal(mask, [[True, False, True]])


def test_lists_and_scalars_are_arrays_too():
    np.testing.assert_array_equal(as_mask([1, 0], (2,)), [True, False])
    assert as_mask(True, ()).shape == ()


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan, np.inf, 1 + 1e-12])
def test_other_values_raise(value):
    with pytest.raises(ValueError, match="mask must hold only 0 and 1, got"):
        as_mask(np.array([1, value, 0]), (3,))


def test_a_value_that_32_bits_would_cut_to_zero_raises():
    with pytest.raises(ValueError, match="4294967296"):
        as_mask(np.array([2**32, 0]), (2,))
    with pytest.raises(ValueError, match="only 0 and 1"):
        as_mask(np.array([1e-60, 0]), (2,))


def test_a_bad_constant_raises_under_jit_too():
    with pytest.raises(ValueError, match="mask_from_lengths"):
        jax.jit(lambda x: x * as_mask(np.array([3, 0]), (2,)))(1.0)


def test_lengths_passed_as_a_mask_name_mask_from_lengths():
    with pytest.raises(ValueError, match="mask_from_lengths"):
        as_mask(np.array([4, 2]), (2, 5))
    with pytest.raises(ValueError, match="mask_from_lengths"):
        as_mask(jnp.array([4, 2]), (5, 2))
    with pytest.raises(ValueError, match="mask_from_lengths"):
        as_mask(np.array([[4, 2]]), (1, 2))
    with pytest.raises(ValueError) as other:
        as_mask(np.array([-1, 0]), (2,))
    assert "mask_from_lengths" not in str(other.value)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 1), (1, 3), (3, 2)])
def test_a_mask_never_broadcasts(shape):
    with pytest.raises(ValueError, match=r"reset must have the shape \(2, 3\), got"):
        as_mask(np.zeros(shape, bool), (2, 3), "reset")


@pytest.mark.parametrize(
    "flags",
    [
        np.ones(2, complex),
        jax.random.split(jax.random.key(0), 2),
        np.array(["a", "b"]),
        [None, 1],
        None,
    ],
    ids=["complex", "keys", "strings", "objects", "none"],
)
def test_what_is_no_flag_raises_a_type_error(flags):
    with pytest.raises(TypeError, match="mask must be"):
        as_mask(flags, (2,))


def test_traced_flags_mean_not_zero():
    mask = jax.jit(lambda flags: as_mask(flags, (4,)))(jnp.array([0, 1, 2, -1]))
    np.testing.assert_array_equal(mask, [False, True, True, True])


def test_traced_flags_that_are_floating_raise():
    """A weight of 0.25 and NaN would both mean True."""
    for name, function in (
        ("mask", lambda flags: as_mask(flags, (4,))),
        ("mask", lambda flags: jr.mean_over_steps(jnp.ones(4), flags)),
        ("mask", lambda flags: jr.last_valid(jnp.ones((4, 2)), flags)),
        ("mask", lambda flags: jr.unroll(jr.ema(0.5), (), jnp.ones((4, 2)), mask=flags)),
        ("reset", lambda flags: jr.unroll(jr.ema(0.5), (), jnp.ones((4, 2)), reset=flags)),
        ("reset", lambda flags: jr.shift_targets(jnp.ones((4, 2)), reset=flags)),
        ("done", jr.reset_from_done),
        ("mask", jr.lengths_from_mask),
    ):
        match = f"^{name} must be bool, .* traced, got .*float.*weights="
        with pytest.raises(TypeError, match=match):
            jax.eval_shape(function, jnp.array([0.0, 1.0, 0.25, jnp.nan]))


def test_traced_flags_of_another_shape_raise():
    with pytest.raises(ValueError, match="shape"):
        jax.jit(lambda flags: as_mask(flags, (4,)))(jnp.ones(3))


def test_zero_masked_stops_nan_in_values_and_gradients():
    xs = {"a": jnp.array([[1.0, 2.0], [jnp.nan, jnp.inf]]), "b": jnp.array([3, 4])}
    mask = jnp.array([True, False])
    zeroed = zero_masked(mask, xs)
    np.testing.assert_array_equal(zeroed["a"], [[1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(zeroed["b"], [3, 0])
    gradient = jax.grad(lambda a: jnp.sqrt(zero_masked(mask, a) + 1).sum())(xs["a"])
    assert np.isfinite(gradient).all() and (gradient[1] == 0).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_lengths_and_masks_are_inverse(seq_lengths):
    mask = mask_from_lengths(np.array(seq_lengths), 4)
    expected = [[step < length for step in range(4)] for length in seq_lengths]
    np.testing.assert_array_equal(mask, expected)
    lengths = lengths_from_mask(mask)
    assert lengths.dtype == jnp.int32
    np.testing.assert_array_equal(lengths, seq_lengths)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_lengths_of_any_int_width(dtype):
    mask = mask_from_lengths(np.array([[100, 0]], dtype), 300)
    assert mask.shape == (1, 2, 300)
    np.testing.assert_array_equal(mask.sum(-1), [[100, 0]])


@pytest.mark.parametrize("seq_lengths", [4, -1, [0, 4], 2**32 + 1])
def test_lengths_above_T_or_below_0_raise(seq_lengths):
    with pytest.raises(ValueError, match=r"seq_lengths must lie in 0 ... num_steps = 3, got"):
        mask_from_lengths(np.array(seq_lengths), 3)
    with pytest.raises(ValueError, match="seq_lengths"):
        jax.jit(lambda x: x * mask_from_lengths(np.array(seq_lengths), 3).sum())(1.0)


@pytest.mark.parametrize("seq_lengths", [[1.0], [True], [1j]])
def test_lengths_that_are_no_ints_raise(seq_lengths):
    with pytest.raises(TypeError, match="seq_lengths must be ints"):
        mask_from_lengths(seq_lengths, 3)
    with pytest.raises(TypeError):
        mask_from_lengths([1], 3.0)


def test_no_steps_and_no_rows():
    assert mask_from_lengths(0, 0).shape == (0,)
    assert mask_from_lengths(np.zeros((0,), int), 3).shape == (0, 3)
    assert lengths_from_mask(np.zeros((2, 0), bool)).tolist() == [0, 0]
    assert lengths_from_mask([1]) == 1
    assert reset_from_segments(np.zeros((2, 0), int)).shape == (2, 0)
    assert reset_from_done(np.zeros((2, 0), bool)).shape == (2, 0)
    with pytest.raises(ValueError, match="num_steps"):
        mask_from_lengths(0, -1)


def test_traced_lengths_work():
    mask = jax.jit(lambda lengths: mask_from_lengths(lengths, 3))(jnp.array([2, 0]))
    np.testing.assert_array_equal(mask, [[1, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(jax.jit(lengths_from_mask)(mask), [2, 0])


@pytest.mark.parametrize("mask", [[0, 1], [[1, 1], [0, 1]], [1, 0, 1], [0.0, 1.0]])
def test_left_padding_and_holes_have_no_length(mask):
    with pytest.raises(ValueError, match="right-padded.*pooling"):
        lengths_from_mask(mask)


@pytest.mark.parametrize(
    "make",
    [lengths_from_mask, reset_from_segments, reset_from_done],
    ids=lambda make: make.__name__,
)
def test_a_scalar_has_no_time_axis(make):
    with pytest.raises(ValueError, match="time axis"):
        make(1)


def test_resets_stand_where_the_segment_changes():
    ids = np.array([[0, 0, 1, 1], [7, 5, 5, 7]])
    expected = [[1, 0, 1, 0], [1, 1, 0, 1]]
    np.testing.assert_array_equal(reset_from_segments(ids), expected)
    np.testing.assert_array_equal(jax.jit(reset_from_segments)(ids), expected)


def test_segment_ids_of_64_bits_keep_apart():
    np.testing.assert_array_equal(reset_from_segments(np.array([1, 2**32 + 1])), [True, True])


def test_segment_ids_must_be_ints():
    with pytest.raises(TypeError, match="segment_ids must be ints"):
        reset_from_segments([0.0, 1.0])


def test_reset_uses_the_last_done_and_not_the_new_one():
    """JaxMARL issue 119: the reset before x_t belongs to what ended at t - 1."""
    done = jnp.array([False, True, False, False])
    np.testing.assert_array_equal(reset_from_done(done), [False, False, True, False])


def test_a_chunk_boundary_hands_the_last_done_on():
    done = np.array([[0, 1, 0, 1, 0, 0], [1, 0, 1, 1, 1, 0]], bool)
    whole = reset_from_done(done, last_done=np.array([True, False]))
    np.testing.assert_array_equal(whole[:, 0], [True, False])
    first = reset_from_done(done[:, :4], last_done=np.array([True, False]))
    second = reset_from_done(done[:, 4:], last_done=done[:, 3])
    np.testing.assert_array_equal(whole, np.concatenate([first, second], axis=1))


def test_int_dones_are_flags_and_no_indices():
    """rsl_rl pull request 28: int dones that index rows reset the wrong rows."""
    done = np.array([[0, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(reset_from_done(done), reset_from_done(done.astype(bool)))
    with pytest.raises(ValueError, match="done must hold only 0 and 1, got 2"):
        reset_from_done(np.array([0, 2]))


def test_one_last_done_speaks_for_all_rows_and_other_shapes_raise():
    done = np.zeros((2, 3), bool)
    np.testing.assert_array_equal(reset_from_done(done, last_done=True)[:, 0], [True, True])
    with pytest.raises(ValueError, match=r"last_done must have the shape \(2,\), got \(3,\)"):
        reset_from_done(done, last_done=np.zeros(3, bool))
    with pytest.raises(ValueError, match="last_done"):
        reset_from_done(done[0], last_done=np.zeros(3, bool))
