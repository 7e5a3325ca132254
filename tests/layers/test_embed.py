import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

LAYER = jr.embed(2)
PARAMS = jr.layers.EmbedParams(jnp.array([[1.0, -1.0], [2.0, -2.0], [4.0, -4.0]]))


def test_tokens_take_their_rows():
    xs = jnp.array([[2, 0], [1, 1]])
    np.testing.assert_array_equal(
        jr.unroll(LAYER, PARAMS, xs).outputs, [[[4, -4], [1, -1]], [[2, -2], [2, -2]]]
    )
    np.testing.assert_array_equal(jr.unroll(LAYER, PARAMS, jnp.int32(2)[None]).outputs, [[4, -4]])


def test_init_takes_the_vocabulary():
    params = jr.embed(200, param_dtype=jnp.bfloat16).init(jax.random.key(0), 100)
    assert params.table.shape == (100, 200) and params.table.dtype == jnp.bfloat16
    # 20,000 draws: five sigma of their deviation are 0.025.
    assert abs(params.table.astype(jnp.float32).std() - 1) < 0.03
    assert LAYER.num_outputs(100) == 2


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_tokens_outside_of_the_table_give_nan(dtype):
    unsigned = dtype.startswith("u")
    outside = [3, 100, 255 if unsigned else -1, 250 if unsigned else -3]
    xs = jnp.array([[2, token, 0] for token in outside], dtype)
    outputs = jr.unroll(LAYER, PARAMS, xs).outputs
    assert jnp.isnan(outputs[:, 1]).all()
    np.testing.assert_array_equal(outputs[:, ::2], [[[4, -4], [1, -1]]] * 4)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_vocabulary_may_be_larger_than_the_dtype_of_tokens(dtype):
    params = jr.layers.EmbedParams(jnp.arange(600.0).reshape(300, 2))
    last = jnp.iinfo(dtype).max
    outputs = jr.unroll(LAYER, params, jnp.array([0, last], dtype)).outputs
    np.testing.assert_array_equal(outputs, [[0, 1], [2 * last, 2 * last + 1]])


@pytest.mark.parametrize("token", [3, -1])
def test_visible_tokens_outside_of_the_table_raise(token):
    xs = jnp.array([0, 2, token])
    match = rf"xs must be tokens in 0 \.\.\. 2.*got {min(token, 0)} \.\.\. {max(token, 2)}"
    with pytest.raises(ValueError, match=match):
        LAYER.unroll(PARAMS, (), jr.Steps(xs), None)
    with jax.disable_jit(), pytest.raises(ValueError, match=match):
        jr.unroll(LAYER, PARAMS, xs)
    with jax.disable_jit():
        jr.unroll(LAYER, PARAMS, xs, mask=xs == 0)
        jr.unroll(LAYER, PARAMS, xs[:0])


def test_the_gradient_counts_tokens_and_stays_finite():
    xs = jnp.array([[2, 0, 2, -1], [2, 1, 3, 1]])
    mask = jnp.array([[1, 1, 1, 0], [1, 0, 0, 0]])

    def total(params, xs, mask=None):
        return jr.unroll(LAYER, params, xs, mask=mask).outputs.sum()

    counts = jax.grad(total)(PARAMS, xs, mask).table
    np.testing.assert_array_equal(counts, [[1, 1], [0, 0], [3, 3]])
    # Tokens outside have no row to send a gradient to.
    counts = jax.grad(total)(PARAMS, xs).table
    np.testing.assert_array_equal(counts, [[1, 1], [2, 2], [3, 3]])


def test_a_token_outside_harms_its_own_sequence_alone():
    layer = jr.serial(LAYER, jr.elman(2))
    params = layer.init(jax.random.key(0), 3)
    xs, reset = jnp.array([0, 7, 1, 2]), jnp.array([0, 0, 1, 0])
    outputs = jr.unroll(layer, params, xs, reset=reset).outputs
    np.testing.assert_array_equal(jnp.isnan(outputs).all(-1), [False, True, False, False])
    alone = jr.unroll(layer, params, xs[2:]).outputs
    np.testing.assert_allclose(outputs[2:], alone, rtol=1e-6)


@pytest.mark.parametrize("xs", [np.zeros(3, np.float32), np.full(3, np.nan), np.ones(3, bool)])
def test_tokens_must_be_ints(xs):
    with pytest.raises(TypeError, match="xs must be integer tokens, got the dtype"):
        jr.unroll(LAYER, PARAMS, xs)


def test_errors_name_the_argument():
    with pytest.raises(TypeError, match="num_outputs must be an int"):
        jr.embed("2")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="num_outputs must be at least 1"):
        jr.embed(-1)
