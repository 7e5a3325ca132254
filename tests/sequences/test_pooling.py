import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.test_util import check_grads

from jaxrnn.sequences._pooling import last_valid, max_valid, mean_valid

POOLS = {
    last_valid: lambda steps: steps[-1],
    mean_valid: lambda steps: np.mean(steps, axis=0),
    max_valid: lambda steps: np.max(steps, axis=0),
}
JITTED = {pool: jax.jit(pool) for pool in POOLS}
every_pool = pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.__name__)


def pooled_row_by_row(pool, ys, mask):
    rows = [row[flags] for row, flags in zip(ys, mask, strict=True)]
    return np.stack([POOLS[pool](row) if len(row) else np.zeros(ys.shape[2:]) for row in rows])


@every_pool
@settings(max_examples=60, deadline=None)
@given(
    mask=hnp.arrays(bool, st.sampled_from([(3, 4), (3, 1)])),
    offset=st.sampled_from([-1e4, 0.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_any_mask_gives_what_the_real_steps_alone_give(pool, mask, offset, seed):
    ys = np.random.default_rng(seed).normal(size=(*mask.shape, 2)).astype(np.float32) + offset
    dirty = np.where(mask[..., None], ys, np.nan).astype(np.float32)
    expected = pooled_row_by_row(pool, ys.astype(np.float64), mask)
    np.testing.assert_allclose(JITTED[pool](dirty, mask), expected, rtol=1e-5, atol=1e-5)


@every_pool
def test_without_a_mask_all_steps_are_real(pool):
    ys = np.random.default_rng(0).normal(size=(2, 3, 2)).astype(np.float32)
    expected = pooled_row_by_row(pool, ys, np.ones((2, 3), bool))
    np.testing.assert_allclose(pool(ys), expected, rtol=1e-6)
    np.testing.assert_array_equal(pool(ys[0]), pool(ys)[0])


@every_pool
def test_length_0_and_no_steps_give_zeros(pool):
    """pytorch issue 11514, jax issue 17966: a sequence without steps is legal."""
    ys = jnp.full((2, 3, 4), 7.0)
    mask = np.array([[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(pool(ys, mask), [[0] * 4, [7] * 4])
    for flags in (None, np.zeros((2, 0), bool)):
        empty = pool(jnp.zeros((2, 0, 4), jnp.bfloat16), flags)
        assert empty.shape == (2, 4) and empty.dtype == jnp.bfloat16
        assert (empty == 0).all()


@every_pool
def test_nan_in_masked_steps_reaches_no_gradient_and_real_nan_stays(pool):
    mask = np.array([[0, 1, 1, 0], [0, 0, 0, 0]])
    ys = np.where(mask[..., None], 1.5, np.nan) * np.ones((2, 4, 2))
    ys[0, 3], ys[1, 0] = np.inf, -np.inf
    gradient = jax.grad(lambda ys: (pool(ys, mask) ** 2).sum())(jnp.asarray(ys))
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[mask == 0], 0)
    # Each pool of equal steps is a mean with weights that sum to one.
    np.testing.assert_allclose(gradient[0].sum(0), 2 * 1.5, rtol=1e-6)
    ys[0, 2, 0] = np.nan
    np.testing.assert_array_equal(np.isnan(pool(ys, mask)), [[True, False], [False, False]])


@every_pool
def test_gradients_agree_with_finite_differences(pool, x64):
    mask = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    ys = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 2)))
    check_grads(jax.jit(lambda ys: jnp.sin(pool(ys, mask))), (ys,), order=1)


@every_pool
def test_the_axes_of_the_mask_say_where_time_is(pool):
    """Leaves with no, one and two feature axes in one tree, and the same under jit and vmap."""
    ys = {
        "scalar": jnp.arange(6.0).reshape(2, 3),
        "matrix": jnp.arange(24.0).reshape(2, 3, 2, 2),
    }
    mask = jnp.array([[1, 1, 0], [0, 1, 0]])
    pooled = pool(ys, mask)
    assert pooled["scalar"].shape == (2,) and pooled["matrix"].shape == (2, 2, 2)
    assert float(pooled["scalar"][1]) == 4.0
    for other in (jax.jit(pool)(ys, mask), jax.vmap(pool)(ys, mask)):
        jax.tree.map(np.testing.assert_array_equal, pooled, other)


def test_the_largest_of_very_negative_values_is_no_padding():
    ys = jnp.array([[-1e30], [-2e30], [0.0]])
    np.testing.assert_array_equal(max_valid(ys, np.array([1, 1, 0])), np.float32([-1e30]))


def test_a_bfloat16_mean_accumulates_in_float32():
    """255 + 254 + 254 = 763 is no bfloat16: from 764 the mean would come out as 255."""
    ys = jnp.array([[255], [254], [254]], jnp.bfloat16)
    mean = mean_valid(ys)
    assert mean.dtype == jnp.bfloat16
    assert float(mean[0]) == 254
    assert jax.grad(lambda ys: mean_valid(ys)[0])(ys).dtype == jnp.bfloat16


def test_last_valid_takes_any_dtype_and_the_others_say_what_they_need():
    tokens = jnp.array([[4, 5, 6]])
    mask = jnp.array([[1, 1, 0]])
    assert last_valid(tokens, mask).tolist() == [5]
    with pytest.raises(TypeError, match="floating or complex.*int32"):
        mean_valid(tokens, mask)
    with pytest.raises(TypeError, match="floating.*int32"):
        max_valid(tokens, mask)
    with pytest.raises(TypeError, match="floating.*complex64"):
        max_valid(jnp.ones((1, 3, 2), complex), mask)
    mean = mean_valid(jnp.array([[1j, 3j, 9]]), mask)
    assert mean.dtype == jnp.complex64 and complex(mean[0]) == 2j


@every_pool
def test_masks_that_do_not_fit_raise(pool):
    ys = jnp.ones((2, 3, 4))
    with pytest.raises(ValueError, match=r"mask must have the shape \(2, 3\), got \(2, 1\)"):
        pool(ys, np.ones((2, 1)))
    with pytest.raises(ValueError, match="mask_from_lengths"):
        pool(ys, np.array([3, 2]))
    with pytest.raises(ValueError, match="mask"):
        pool({"ys": ys, "short": jnp.ones(2)}, np.ones((2, 3)))
    with pytest.raises(ValueError, match="time axis"):
        pool(ys, True)
    with pytest.raises(ValueError, match=r"ys must be \[..., T, D\]"):
        pool(jnp.ones(3))
