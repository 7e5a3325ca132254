"""Dtypes, axes and padding of every layer; `test_contract.py` holds them to the laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

STATELESS = {
    "dense": jr.dense(2, jnp.tanh),
    "dense without bias": jr.dense(2, use_bias=False),
    "embed": jr.embed(2),
    "layer_norm": jr.layer_norm(),
    "dropout": jr.dropout(0.5),
    "variational dropout": jr.dropout(0.5, variational=True),
}
LAYERS = STATELESS | {
    "residual": jr.residual(jr.elman(3)),
    "bidirectional": jr.bidirectional(jr.elman(2), jr.lstm(1)),
    "serial": jr.serial(
        jr.embed(3), jr.lstm(3), jr.layer_norm(), jr.residual(jr.elman(3)), jr.dense(2)
    ),
    "serial around bidirectional": jr.serial(
        jr.bidirectional(jr.elman(2), merge="sum"), jr.dropout(0.3), jr.dense(1)
    ),
}


def inputs(layer, key, shape, dtype=jnp.float32):
    if layer.num_feature_axes == 0:
        return jax.random.randint(key, shape, 0, 3)
    return jax.random.normal(key, (*shape, 3), dtype)


@pytest.mark.parametrize("name", STATELESS)
def test_a_layer_without_memory_ignores_flags_and_order(name):
    layer = STATELESS[name]
    params = layer.init(jax.random.key(0), 3)
    xs = inputs(layer, jax.random.key(1), (4, 6))
    reset = jax.random.bernoulli(jax.random.key(2), 0.5, (4, 6))
    plain = jr.unroll(layer, params, xs)
    flagged = jr.unroll(layer, params, xs, carry=(), reset=reset, reverse=True)
    assert plain.carry == flagged.carry == layer.initial_carry(params, (4,)) == ()
    np.testing.assert_array_equal(flagged.outputs, plain.outputs)


@pytest.mark.parametrize(("leading", "num_steps"), [((), 0), ((2, 3), 0), ((2, 3), 1)])
@pytest.mark.parametrize("name", STATELESS)
def test_any_leading_axes_and_few_steps_with_a_key(name, leading, num_steps):
    layer = STATELESS[name]
    params = layer.init(jax.random.key(0), 3)
    shape = (*leading, num_steps)
    xs = inputs(layer, jax.random.key(1), shape)
    mask, reset = jnp.ones(shape, bool), jnp.zeros(shape, bool)
    key = jax.random.key(2)
    outputs = jr.unroll(layer, params, xs, mask=mask, reset=reset, key=key).outputs
    assert outputs.shape == (*shape, layer.num_outputs(3))
    assert jnp.isfinite(outputs).all()


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_have_the_dtype_of_inputs_and_carries_stay_wide(name):
    layer = LAYERS[name]
    params = layer.init(jax.random.key(0), 3)
    xs = inputs(layer, jax.random.key(1), (2, 4), jnp.bfloat16)
    rollout = jax.eval_shape(lambda: jr.unroll(layer, params, xs, key=jax.random.key(2)))
    tokens = layer.num_feature_axes == 0
    assert rollout.outputs.dtype == (jnp.float32 if tokens else jnp.bfloat16)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(rollout.carry))


@pytest.mark.parametrize("name", LAYERS)
def test_padding_reaches_no_value_and_no_gradient_of_the_noisy_model(name):
    layer = LAYERS[name]
    params = layer.init(jax.random.key(0), 3)
    clean = inputs(layer, jax.random.key(1), (3, 5))
    mask = jnp.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
    poison = jnp.nan if jnp.issubdtype(clean.dtype, jnp.floating) else 99
    dirty = jnp.where(jnp.expand_dims(mask, tuple(range(2, clean.ndim))), clean, poison)

    @jax.jit
    def run(params, xs):
        def loss(params, xs):
            outputs = jr.unroll(layer, params, xs, mask=mask, key=jax.random.key(2)).outputs
            return (outputs**2).sum(), outputs

        return jax.value_and_grad(loss, (0, 1), has_aux=True, allow_int=True)(params, xs)

    (_, outputs), _ = got = run(params, dirty)
    assert not outputs[~mask].any()
    assert outputs[mask].any()
    for leaf, want in zip(*map(jax.tree.leaves, (got, run(params, clean))), strict=True):
        np.testing.assert_array_equal(leaf, want)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(got) if leaf.dtype.kind == "f")
