import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiler import temporary_bytes

import jaxrnn as jr
from jaxrnn.testing import check_layer

D, N, R, WIDTH, T, BATCH = 3, 2, 2, 3, 11, 3


def silu(u):
    return u / (1 + np.exp(-u))


def oracle(params, xs, mask, reset):
    """One row: the published code's `step`, with padding left out and everything new at a reset."""
    params = jax.tree.map(np.asarray, params)
    ssm, outputs = params.ssm, []
    zero = np.zeros(1)
    bias, conv_bias, output_bias = (
        zero if bias is None else bias
        for bias in (params.bias, params.conv.bias, params.output_bias)
    )
    rank, num_units = ssm.dt_kernel.shape
    past, h = [], np.zeros(ssm.a_log.shape)
    for x, real, new in zip(np.asarray(xs), mask, reset, strict=True):
        if new:
            past, h = [], 0 * h
        if not real:
            outputs.append(0 * x)
            continue
        u, z = np.split(x @ params.kernel + bias, 2)
        past.append(u)
        filled = [np.zeros(num_units)] * WIDTH + past
        u = silu(np.sum(params.conv.kernel * np.array(filled[-WIDTH:]), axis=0) + conv_bias)
        delta, b, c = np.split(u @ ssm.kernel, [rank, rank + N])
        dt = np.log1p(np.exp(delta @ ssm.dt_kernel + ssm.dt_bias))
        h = np.exp(dt[:, None] * -np.exp(ssm.a_log)) * h + np.outer(dt * u, b)
        y = (h @ c + ssm.skip * u) * silu(z) @ params.output_kernel
        outputs.append(y + output_bias)
    return np.array(outputs), h


def make(dtype=jnp.float64, **options):
    layer = jr.mamba(N, dt_rank=R, conv_width=WIDTH, param_dtype=dtype, **options)
    params = layer.init(jax.random.key(0), D)
    if params.conv.bias is not None:
        bias = jax.random.normal(jax.random.key(5), params.conv.bias.shape, dtype)
        params = params._replace(conv=params.conv._replace(bias=bias))
    params = params._replace(
        ssm=params.ssm._replace(dt_bias=params.ssm.dt_bias + 2),
    )
    xs = jax.random.normal(jax.random.key(1), (BATCH, T, D), dtype)
    generator = np.random.default_rng(0)
    return layer, params, xs, generator.random((BATCH, T)) < 0.7, generator.random((BATCH, T)) < 0.2


def test_masks_and_resets_anywhere(x64):
    layer, params, xs, mask, reset = make()
    rollout = jr.unroll(layer, params, xs, mask=mask, reset=reset)
    for row in range(BATCH):
        want, h = oracle(params, xs[row], mask[row], reset[row])
        np.testing.assert_allclose(rollout.outputs[row], want, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(rollout.carry.ssm.h[row], h, rtol=1e-10)


def test_biases_anywhere(x64):
    layer, params, xs, mask, reset = make(use_bias=True)
    assert not params.bias.any() and not params.output_bias.any()
    keys = jax.random.split(jax.random.key(6))
    params = params._replace(
        bias=jax.random.normal(keys[0], params.bias.shape),
        output_bias=jax.random.normal(keys[1], params.output_bias.shape),
    )
    plain, *_ = make(use_bias=True, use_conv_bias=False)
    unbiased = params._replace(conv=params.conv._replace(bias=None))
    for model, values in ((layer, params), (plain, unbiased)):
        rollout = jr.unroll(model, values, xs, mask=mask, reset=reset)
        for row in range(BATCH):
            want, h = oracle(values, xs[row], mask[row], reset[row])
            np.testing.assert_allclose(rollout.outputs[row], want, rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(rollout.carry.ssm.h[row], h, rtol=1e-10)


def test_any_evaluator_gives_the_same(x64):
    _, params, xs, mask, reset = make()

    def run(evaluator):
        layer, *_ = make(evaluator=evaluator)

        def loss(params, xs):
            rollout = jr.unroll(layer, params, xs, mask=mask, reset=reset)
            return jnp.sum(jnp.sin(rollout.outputs)) + jnp.sum(rollout.carry.ssm.h), rollout[:2]

        return jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, xs)

    want = run(None)
    for evaluator in (jr.sequential(), jr.associative(), jr.newton()):
        jax.tree.map(
            lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12),
            run(evaluator),
            want,
        )


def test_zero_order_hold_is_another_function(x64):
    layer, params, xs, *_ = make()
    held, *_ = make(discretization="zoh")
    ys, held_ys = (jr.unroll(which, params, xs).outputs for which in (layer, held))
    assert jnp.abs(ys - held_ys).max() > 1e-3


def test_the_laws():
    check_layer(jr.mamba(N, dt_rank=R, conv_width=WIDTH))


def test_it_keeps_the_width_and_its_parameters_are_those_of_the_paper():
    layer = jr.mamba()
    shapes = jax.tree.map(jnp.shape, layer.init(jax.random.key(0), 40))
    assert layer.num_outputs(40) == 40
    assert shapes.kernel == (40, 160)
    assert shapes.conv == jr.mixers.CausalConvParams((4, 80), (80,))
    assert shapes.ssm == jr.cells.S6Params((80, 3 + 32), (3, 80), (80,), (80, 16), (80,))
    assert shapes.output_kernel == (80, 40)


def test_states_of_all_steps_are_never_stored():
    """Sixteen times the states cost less than half of what all of them would take."""
    num_steps, num_inputs = 1024, 8

    def temporary(state_size):
        layer = jr.mamba(state_size)
        params = layer.init(jax.random.key(0), num_inputs)
        xs = jax.ShapeDtypeStruct((num_steps, num_inputs), jnp.float32)
        loss = jax.grad(lambda params, xs: jr.unroll(layer, params, xs).outputs.sum())
        return temporary_bytes(loss, params, xs)

    all_states = num_steps * 2 * num_inputs * 128 * 4
    assert temporary(128) - temporary(8) < all_states / 2


def test_bfloat16_inputs_run_in_float32():
    layer, params, xs, *_ = make(jnp.float32)
    xs = xs.astype(jnp.bfloat16)

    def loss(params, xs):
        rollout = jr.unroll(layer, params, xs)
        return rollout.outputs.astype(jnp.float32).sum(), rollout

    result = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, xs)
    (_, rollout), _ = result
    assert rollout.outputs.dtype == jnp.bfloat16
    assert {leaf.dtype.name for leaf in jax.tree.leaves(rollout.carry)} == {"float32", "int32"}
    assert all(jnp.isfinite(leaf.astype(jnp.float32)).all() for leaf in jax.tree.leaves(result))
    wide = jr.unroll(layer, params, xs.astype(jnp.float32)).outputs
    np.testing.assert_allclose(rollout.outputs.astype(jnp.float32), wide, rtol=2**-8)


def test_errors():
    for option in ("expansion", "conv_width", "dt_rank", "state_size"):
        with pytest.raises(ValueError, match=f"{option} must be at least 1"):
            jr.mamba(**{option: 0})
