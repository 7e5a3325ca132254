"""Layers side by side, and functions as layers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

KEY = jax.random.key(0)


def test_it_joins_what_the_layers_give_alone():
    layers = jr.recurrent(jr.elman(2), reverse=True), jr.gru(3), jr.dropout(0.5)
    layer = jr.concatenate(*layers)
    params = layer.init(KEY, 4)
    xs = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    flags = {"mask": jnp.array([[1, 1, 0, 1, 1]] * 2), "reset": jnp.array([[0, 0, 0, 1, 0]] * 2)}
    rollout = jr.unroll(layer, params, xs, key=KEY, **flags)
    keys = jax.random.split(KEY, 3)
    alone = [
        jr.unroll(one, own, xs, key=key, **flags)
        for one, own, key in zip(layers, params, keys, strict=True)
    ]
    want = np.concatenate([one.outputs for one in alone], axis=-1)
    np.testing.assert_allclose(rollout.outputs, want, rtol=1e-6, atol=1e-7)
    assert layer.num_outputs(4) == 9 and not layer.causal and jr.concatenate(jr.gru(3)).causal
    np.testing.assert_allclose(rollout.carry[1].h, alone[1].carry.h, rtol=1e-6)


def test_branches_that_change_the_steps():
    xs, mask = jnp.arange(10.0).reshape(2, 5, 1), jnp.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]])
    layer = jr.concatenate(jr.subsample(2, "mean"), jr.subsample(2, "last"))
    rollout = jr.unroll(layer, ((), ()), xs, mask=mask)
    np.testing.assert_array_equal(rollout.flags.mask, [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(rollout.outputs[1], [[6.5, 7], [8, 8], [0, 0]])
    layer = jr.concatenate(jr.subsample(2, "mean"), jr.lift(jnp.tanh))
    with pytest.raises(
        ValueError, match="must make the same steps, got 3 of subsample.* 5 of lift"
    ):
        jr.unroll(layer, ((), ()), xs, mask=mask)


def test_a_function_is_a_layer():
    layer = jr.lift(jnp.tanh)
    np.testing.assert_allclose(
        jr.unroll(layer, (), jnp.ones((2, 1))).outputs, np.tanh(np.ones((2, 1)))
    )
    assert layer == jr.lift(jnp.tanh) != jr.lift(jnp.sin)
    clip = functools.partial(jnp.clip, min=0.0, max=1.0)
    assert jr.lift(clip) == jr.lift(functools.partial(jnp.clip, min=0.0, max=1.0))
    assert jr.lift(jnp.atleast_1d).num_outputs(3) == 3 and jr.lift(jax.nn.glu).num_outputs(4) == 2
    lookup = jr.lift(
        functools.partial(jax.nn.one_hot, num_classes=5), num_outputs=5, num_feature_axes=0
    )
    np.testing.assert_array_equal(
        jr.unroll(lookup, (), jnp.array([[0, 3]])).outputs, np.eye(5)[[[0, 3]]]
    )


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="layers must hold at least one"):
        jr.concatenate()
    with pytest.raises(ValueError, match=r"layers\[1\] must take the same inputs as layers\[0\]"):
        jr.concatenate(jr.gru(2), jr.embed(2))
    with pytest.raises(TypeError, match="function must be a function, got 3"):
        jr.lift(3)
    two = jr.lift(lambda x: (x, x), num_outputs=3)
    with pytest.raises(TypeError, match=r"outputs of lift\(.* must be one array, got \("):
        jr.unroll(jr.concatenate(two), ((),), jnp.ones((2, 5, 3)))
    for function in (lambda x: (x, x), lambda x: x.sum(-1)):
        with pytest.raises(ValueError, match="num_outputs must be given .* one array .* got"):
            jr.lift(function).num_outputs(3)
    with pytest.raises(ValueError, match="num_outputs must be given where num_feature_axes"):
        jr.lift(jnp.tanh, num_feature_axes=0)
    with pytest.raises(ValueError, match="function must keep the leading axes .5, 2. of x"):
        jr.unroll(jr.lift(jnp.sum, num_outputs=1), (), jnp.ones((2, 5, 3)))
