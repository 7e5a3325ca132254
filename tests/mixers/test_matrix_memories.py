"""What every matrix memory must keep in its recurrent, chunkwise and all-pairs forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.mixers._ssd import ssd

D = 4
MEMORIES = {
    "mlstm": lambda chunk_size: jr.mlstm(
        2, 3, evaluator=jr.chunkwise(chunk_size), param_dtype=jnp.float64
    ),
    "gated_delta_net": lambda chunk_size: jr.gated_delta_net(
        2,
        3,
        2,
        evaluator=jr.chunkwise(chunk_size),
        negative_eigenvalues=True,
        param_dtype=jnp.float64,
    ),
}
FORMS = {"recurrent": 1, "chunks of 4": 4, "one chunk": None}

every_memory = pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
every_form = pytest.mark.parametrize("chunk_size", FORMS.values(), ids=FORMS)


def random_params(layer):
    """Parameters with every gate at work."""
    params = layer.init(jax.random.key(0), D)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    return tree.unflatten(
        leaf + 0.5 * jax.random.normal(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    )


def assert_close(got, want, rtol=1e-9, atol=1e-11):
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, rtol=rtol, atol=atol), got, want)


@every_memory
def test_forms_agree_with_masks_resets_and_gradients(x64, memory):
    num_steps = 7
    rng = np.random.default_rng(num_steps)
    mask = rng.random((4, num_steps)) < 0.6
    mask[0], mask[1] = False, True
    reset = rng.random((4, num_steps)) < 0.3
    xs = rng.standard_normal((4, num_steps, D))
    recurrent = memory(1)
    params = random_params(recurrent)
    carry = jr.unroll(recurrent, params, rng.standard_normal((4, 3, D))).carry

    def compiled(layer):
        def loss(params, xs, carry):
            rollout = jr.unroll(layer, params, xs, carry=carry, mask=mask, reset=reset)
            result = rollout.outputs, rollout.carry
            return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(result)), result

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))

    want = compiled(recurrent)(params, xs, carry)
    for chunk_size in (3, None):
        assert_close(compiled(memory(chunk_size))(params, xs, carry), want)


@every_memory
def test_no_steps_and_one_step(x64, memory):
    layer = memory(4)
    params = random_params(layer)
    one = jr.unroll(layer, params, jnp.ones((1, D)))
    assert one.info == jr.sequential()
    none = jr.unroll(layer, params, jnp.zeros((0, D)), carry=one.carry)
    assert none.outputs.shape == (0, layer.num_outputs(D))
    assert_close(none.carry, one.carry, 0, 0)


@every_memory
@every_form
def test_nan_goes_forward_to_the_next_reset_and_nowhere_else(x64, memory, chunk_size):
    layer = memory(chunk_size)
    params = random_params(layer)
    xs = np.random.default_rng(0).standard_normal((1, 8, D))
    reset = np.zeros((1, 8), bool)
    reset[0, 6] = True

    @jax.jit
    def run(xs, carry):
        return jr.unroll(layer, params, xs, reset=reset, carry=carry)[:2]

    initial = layer.initial_carry(params, (1,))
    carry, outputs = run(xs, initial)
    poisoned = xs.copy()
    poisoned[0, 2] = np.nan
    dirty_carry, dirty_outputs = run(poisoned, initial)
    assert np.isnan(dirty_outputs[0, 2:6]).all()
    np.testing.assert_array_equal(dirty_outputs[0, :2], outputs[0, :2])
    np.testing.assert_array_equal(dirty_outputs[0, 6:], outputs[0, 6:])
    assert_close(dirty_carry, carry, 0, 0)

    _, dirty_outputs = run(xs, jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), initial))
    assert np.isnan(dirty_outputs[0, :6]).all()
    np.testing.assert_array_equal(dirty_outputs[0, 6:], outputs[0, 6:])


@every_memory
def test_wrong_chunk_sizes_raise(memory):
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        memory(0)
    with pytest.raises(TypeError, match="size must be an int"):
        memory(2.0)


@pytest.mark.parametrize("chunk_size", [4, None])
@every_memory
def test_a_nan_carry_of_the_layer_in_front_ends_at_the_reset(x64, memory, chunk_size):
    """At the masked step 3 the GRU hands on its carry, which is NaN since step 2."""
    mask, reset = np.array([1, 1, 1, 0, 1, 1]), np.array([0, 0, 0, 0, 1, 0])
    xs = jax.random.normal(jax.random.key(2), (6, D), jnp.float64).at[2].set(jnp.nan)

    def run(chunk_size):
        layer = jr.serial(jr.gru(D, param_dtype=jnp.float64), memory(chunk_size))
        params = layer.init(jax.random.key(0), D)
        return jr.unroll(layer, params, xs, mask=mask, reset=reset)

    got, want = run(chunk_size), run(1)
    np.testing.assert_array_equal(
        np.isfinite(got.outputs).all(axis=-1), np.array([1, 1, 0, 1, 1, 1]) > 0
    )
    assert_close((got.outputs, got.carry[1]), (want.outputs, want.carry[1]))


@pytest.mark.parametrize("chunk_size", [1, 2, None])
@pytest.mark.parametrize("make", [lambda size: jr.mlstm(1, D, evaluator=jr.chunkwise(size)), "ssd"])
def test_an_overflow_ends_at_the_reset(make, chunk_size):
    layer = jr.recurrent(ssd(2, 2), jr.chunkwise(chunk_size)) if make == "ssd" else make(chunk_size)
    num_inputs = 7 if make == "ssd" else D
    params = layer.init(jax.random.key(0), num_inputs)
    xs = jnp.ones((6, num_inputs)).at[1, :4].set(1e30)
    rollout = jr.unroll(layer, params, xs, reset=jnp.arange(6) == 3)
    assert jnp.isfinite(rollout.outputs[3:]).all()
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(rollout.carry))


@pytest.mark.parametrize("chunk_size", [1, None])
def test_an_overflow_reaches_no_earlier_step(chunk_size):
    layer = jr.mlstm(1, 2, evaluator=jr.chunkwise(chunk_size))
    kernel = jnp.concatenate([jnp.eye(2), jnp.eye(2)], axis=1)
    params = layer.init(jax.random.key(0), 2)._replace(write_kernel=kernel, read_kernel=kernel)
    xs = jnp.ones((5, 2)).at[0].set(1e12).at[3].set(1e27)
    assert jnp.isfinite(jr.unroll(layer, params, xs).outputs[:3]).all()


@pytest.mark.parametrize("chunk_size", [1, None])
def test_keys_of_zeros_have_slopes_that_can_be_followed(chunk_size):
    """Blank inputs behind dense and layer_norm, as in the frame of `classifier`."""
    layer = jr.serial(
        jr.dense(8), jr.layer_norm(), jr.gated_delta_net(1, 4, evaluator=jr.chunkwise(chunk_size))
    )
    params = layer.init(jax.random.key(0), 1)
    xs = jnp.zeros((6, 1)).at[1].set(1.0)

    def loss(params):
        ys = jr.unroll(layer, params, xs).outputs
        return (ys**2 + ys).sum()

    # The norm alone has a slope of 300 at zeros.
    assert all(abs(leaf).max() < 1e5 for leaf in jax.tree.leaves(jax.jit(jax.grad(loss))(params)))
