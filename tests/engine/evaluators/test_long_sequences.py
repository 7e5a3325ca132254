"""Two-level rematerialisation gives the plain gradient and needs little memory."""

import chex
import jax
import jax.numpy as jnp
import pytest
from support.compiler import compiled_with_defaults

import jaxrnn as jr


def gradient_fn(cell, evaluator):
    def loss(params, xs):
        return (jr.unroll(cell, params, xs, evaluator=evaluator).outputs ** 2).mean()

    return jax.jit(jax.grad(loss, argnums=(0, 1)))


@pytest.mark.parametrize("checkpoint", ["sqrt", 100])
def test_equals_the_plain_gradient_at_4096_steps(x64, checkpoint):
    cell = jr.lstm(32, param_dtype=jnp.float64)
    params = cell.init(jax.random.key(0), 32)
    xs = jax.random.normal(jax.random.key(1), (1, 4096, 32), jnp.float64)
    plain = gradient_fn(cell, jr.sequential())(params, xs)
    two_levels = gradient_fn(cell, jr.sequential(checkpoint=checkpoint))(params, xs)
    scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(plain))
    chex.assert_trees_all_close(two_levels, plain, rtol=1e-10, atol=1e-12 * scale)


def test_memory_of_a_million_steps_stays_under_a_gibibyte():
    """What XLA plans, inputs included; `python -m experiments long_gradient` runs it."""
    cell = jr.lstm(32)
    params = cell.init(jax.random.key(0), 32)
    xs = jax.ShapeDtypeStruct((1, 1_000_000, 32), jnp.float32)

    def planned(evaluator):
        def loss(params, xs):
            return (jr.unroll(cell, params, xs, evaluator=evaluator).outputs ** 2).mean()

        analysis = compiled_with_defaults(jax.grad(loss), params, xs).memory_analysis()
        return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes

    two_levels = planned(jr.sequential(checkpoint="sqrt"))
    assert two_levels < 2**30
    assert planned(jr.sequential()) > 2**30
    assert planned(jr.sequential(derivative="autodiff")) > 1.5 * 2**30
