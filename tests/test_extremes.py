"""bfloat16 inputs that saturate every gate: values and gradients stay finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import MODELS, NUM_INPUTS, make

import jaxrnn as jr

NUM_STEPS = 24


def extreme_inputs():
    """Signs, normal numbers, a jump from zero and one input alone, all of the size 10,000."""
    rng = np.random.default_rng(0)
    shape = (NUM_STEPS, NUM_INPUTS)
    jump = np.where(np.arange(NUM_STEPS) < 9, 0, 1)[:, None] * rng.choice([-1, 1], NUM_INPUTS)
    rows = (rng.choice([-1, 1], shape), rng.standard_normal(shape), jump, np.eye(*shape))
    return jnp.asarray(1e4 * np.stack(rows), jnp.bfloat16)


def with_noise(params):
    """Parameters of which none is zero, as gate kernels are that start closed."""
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(1)
    return tree.unflatten(
        leaf + jnp.asarray(0.3 * rng.standard_normal(leaf.shape), leaf.dtype) for leaf in leaves
    )


def cases():
    slow = [pytest.param(name, jnp.float32, marks=pytest.mark.slow) for name in MODELS]
    return [(name, jnp.bfloat16) for name in MODELS] + slow


@pytest.mark.parametrize(("name", "dtype"), cases())
def test_values_and_gradients_are_finite(name, dtype):
    model = make(name, dtype)
    params = with_noise(model.init(jax.random.key(0), NUM_INPUTS))

    def loss(params, carry, xs):
        rollout = jr.unroll(model, params, xs, carry=carry)
        leaves = [jnp.real(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(rollout[:2])]
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in leaves), rollout

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True, allow_int=True))
    xs = extreme_inputs()
    (_, rollout), gradients = run(params, model.initial_carry(params, (len(xs),)), xs)
    assert rollout.outputs.dtype == jnp.bfloat16
    floats = [
        leaf
        for leaf in jax.tree.leaves((rollout.carry, rollout.outputs, gradients))
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    assert all(jnp.isfinite(leaf).all() for leaf in floats)
    # The recurrence runs in float32, whatever x and params are.
    real = {
        jnp.finfo(leaf.dtype).dtype
        for leaf in jax.tree.leaves(rollout.carry)
        if leaf.dtype != jnp.int32
    }
    assert real == {jnp.dtype(jnp.float32)}
