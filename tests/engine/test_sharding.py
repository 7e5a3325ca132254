"""Batches split over a mesh: what `shard_map` runs is what runs without it."""

import chex
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

import jaxrnn as jr

MODELS = {
    "cell": (jr.gru(3), None),
    "learned carry": (jr.learned_initial_carry(jr.lstm(3)), None),
    "two levels": (jr.lstm(3), jr.sequential(checkpoint=2)),
    "linear": (jr.ema(0.5), jr.associative()),
    "gated": (jr.min_gru(3), jr.associative(method="sequential")),
    "newton": (jr.elman(3), jr.newton()),
    "layers": (jr.serial(jr.bidirectional(jr.elman(3)), jr.residual(jr.lstm(6))), None),
}


@pytest.mark.parametrize("name", MODELS)
def test_shard_map_over_the_batch(name):
    model, evaluator = MODELS[name]
    params = model.init(jax.random.key(0), 2)
    keys = jax.random.split(jax.random.key(1), 3)
    xs = jax.random.normal(keys[0], (4, 5, 2))
    mask = jax.random.bernoulli(keys[1], 0.8, (4, 5))
    reset = jax.random.bernoulli(keys[2], 0.3, (4, 5))

    def run(params, xs, mask, reset):
        return jr.unroll(model, params, xs, mask=mask, reset=reset, evaluator=evaluator).outputs

    mesh = jax.make_mesh((1,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, whole = PartitionSpec("batch"), PartitionSpec()
    sharded = jax.shard_map(run, mesh=mesh, in_specs=(whole, rows, rows, rows), out_specs=rows)
    got, want = jax.jit(sharded)(params, xs, mask, reset), jax.jit(run)(params, xs, mask, reset)
    chex.assert_trees_all_close(got, want, rtol=1e-6, atol=1e-6)

    def loss(function):
        return lambda params: jnp.sum(function(params, xs, mask, reset) ** 2)

    gradients = jax.jit(jax.grad(loss(sharded)))(params), jax.jit(jax.grad(loss(run)))(params)
    chex.assert_trees_all_close(*gradients, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["sequential", "associative", "chunked"])
def test_a_linear_scan_without_a_start(method):
    a = jax.random.uniform(jax.random.key(0), (4, 5, 2))
    reset = jax.random.bernoulli(jax.random.key(1), 0.3, (4, 5))

    def run(a, reset):
        return jr.linear_scan(a, a, reset=reset, method=method)

    mesh = jax.make_mesh((1,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = PartitionSpec("batch")
    sharded = jax.shard_map(run, mesh=mesh, in_specs=(rows, rows), out_specs=rows)
    chex.assert_trees_all_close(jax.jit(sharded)(a, reset), run(a, reset), rtol=1e-6)
