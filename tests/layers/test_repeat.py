import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr

LAYER = jr.serial(jr.learned_initial_carry(jr.gru(3)), jr.residual(jr.zoneout(jr.elman(3), 0.3)))


def test_it_is_serial_in_values_gradients_carries_info_and_noise(x64):
    """With a mask, resets, starts, a carry and a key, under two batch axes."""
    num_layers, batch = 2, (2, 2)
    layer, stack = jr.repeat(LAYER, num_layers), jr.serial(*[LAYER] * num_layers)
    params = layer.init(jax.random.key(0), 3)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) + 0.1, params)
    initial = layer.initial_carry(params, batch)
    one = jr.broadcast_carry(layer.initial_carry(params), batch)
    jax.tree.map(np.testing.assert_array_equal, initial, one)
    carry = jax.tree.map(lambda leaf: leaf + 0.2, initial)
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf + i for i in range(4)], 2), initial)
    draw = np.random.default_rng(0)
    xs, weights = draw.standard_normal((2, *batch, 4, 3))
    mask, reset = draw.random((2, *batch, 4)) < 0.6

    def unstacked(tree, axis):
        return tuple(
            jax.tree.map(lambda leaf, i=i: jnp.take(leaf, i, axis), tree) for i in range(num_layers)
        )

    def loss(params, carry, xs, is_stack):
        if is_stack:
            model, params, carry = stack, unstacked(params, 0), unstacked(carry, len(batch))
            begin = {"carry": carry, "starts": unstacked(starts, len(batch) + 1)}
        else:
            model, begin = layer, {"carry": carry, "starts": starts}
        flags = {"mask": mask, "reset": reset, "key": jax.random.key(1)}
        rollout = jr.unroll(model, params, xs, **begin, **flags)
        last = rollout.carry
        if is_stack:
            last = jax.tree.map(lambda *leaves: jnp.stack(leaves, len(batch)), *last)
        return (weights * rollout.outputs).sum() + sum(map(jnp.sum, jax.tree.leaves(last))), (
            rollout.outputs,
            last,
        )

    run = jax.jit(jax.value_and_grad(loss, (0, 1, 2), has_aux=True), static_argnums=3)
    got, want = (run(params, carry, xs, is_stack) for is_stack in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), got, want)


def test_the_program_does_not_grow_with_depth():
    def size(num_layers):
        layer = jr.repeat(jr.elman(4), num_layers)
        params = layer.init(jax.random.key(0), 4)
        grad = jax.grad(lambda params, xs: jr.unroll(layer, params, xs).outputs.sum())
        return len(str(jax.make_jaxpr(grad)(params, jnp.ones((2, 5, 4)))).splitlines())

    assert size(8) == size(2)


def test_bfloat16_is_widened_once_and_layers_without_parameters_repeat():
    layer = jr.repeat(jr.serial(jr.dropout(0.5), jr.lift(jnp.tanh)), 2)
    xs = jnp.ones((2, 3, 4), jnp.bfloat16)
    assert layer.init(jax.random.key(0), 4) == ((), ())
    rollout = jr.unroll(layer, ((), ()), xs, key=jax.random.key(1))
    assert rollout.outputs.dtype == jnp.bfloat16
    dropped = jr.unroll(layer, ((), ()), xs, key=jax.random.key(2)).outputs
    assert (rollout.outputs != dropped).any() and (dropped == 0).any()
    wide = jr.repeat(jr.gru(4), 2)
    params = wide.init(jax.random.key(0), 4)
    inside = wide.unroll(params, wide.initial_carry(params, (3,)), jr.Steps(xs), None)
    assert inside.outputs.dtype == jnp.float32


def test_what_cannot_be_repeated():
    with pytest.raises(ValueError, match="must keep the width to be repeated, got the width 4"):
        jr.repeat(jr.gru(4), 2).init(jax.random.key(0), 3)
    with pytest.raises(ValueError, match="must keep the steps of its inputs to be repeated"):
        jr.unroll(jr.repeat(jr.subsample(2, "mean"), 2), (), jnp.ones((4, 3)))
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        jr.repeat(jr.gru(4), 0)
