import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

MASK = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]], bool)


def test_padding_has_no_share(x64):
    """Against a softmax over the real steps alone; large scores, and NaN in padding."""
    draw = np.random.default_rng(0)
    ys, scores = draw.standard_normal((4, 4, 2)), 800 * draw.standard_normal((4, 4))
    want = np.zeros((4, 2))
    for row, real in enumerate(MASK):
        if real.any():
            terms = np.exp(scores[row, real] - scores[row, real].max())
            want[row] = terms @ ys[row, real] / terms.sum()
    dirty = np.where(MASK[..., None], ys, np.nan), np.where(MASK, scores, np.nan)

    @jax.jit
    def run(ys, scores, mask):
        def loss(ys, scores):
            pooled = jr.attention_valid({"ys": ys}, scores / 800, mask)["ys"]
            return (pooled**2).sum(), jr.attention_valid(ys, scores, mask)

        return jax.grad(loss, (0, 1), has_aux=True)(ys, scores)

    gradients, pooled = run(*dirty, MASK)
    np.testing.assert_allclose(pooled, want, rtol=1e-12)
    for gradient in gradients:
        assert jnp.isfinite(gradient).all() and not gradient[~MASK].any()
    clean, _ = run(ys, scores, MASK)
    jax.tree.map(np.testing.assert_array_equal, gradients, clean)
    size = 1e-6 * draw.standard_normal(scores.shape)
    above, below = (
        (jr.attention_valid(ys, (scores + s) / 800, MASK) ** 2).sum() for s in (size, -size)
    )
    np.testing.assert_allclose((above - below) / 2, (gradients[1] * size).sum(), rtol=1e-3)


def test_no_steps_and_nan_in_a_real_step():
    assert jr.attention_valid(jnp.zeros((2, 0, 4), jnp.bfloat16), jnp.zeros((2, 0))).shape == (2, 4)
    ys, scores = jnp.ones((2, 3, 4), jnp.bfloat16), jnp.zeros((2, 3)).at[0, 1].set(jnp.nan)
    pooled = jr.attention_valid(ys, scores)
    assert pooled.dtype == jnp.bfloat16 and jnp.isnan(pooled[0]).all()
    np.testing.assert_array_equal(pooled[1].astype(float), np.ones(4))


def test_wrong_arguments_raise():
    ys = jnp.ones((2, 3, 4))
    with pytest.raises(TypeError, match="scores must be floating, got the dtype int32"):
        jr.attention_valid(ys, jnp.ones((2, 3), int))
    with pytest.raises(
        ValueError, match=r"scores must have the axes .* got \(2, 4\) for \(2, 3, 4\)"
    ):
        jr.attention_valid(ys, jnp.ones((2, 4)))
    with pytest.raises(ValueError, match=r"mask must have the shape \(2, 3\), got \(2,\)"):
        jr.attention_valid(ys, jnp.ones((2, 3)), jnp.ones(2))
    with pytest.raises(TypeError, match="ys must be floating or complex"):
        jr.attention_valid(ys.astype(int), jnp.ones((2, 3)))
