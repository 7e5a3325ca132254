import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compiler import temporary_bytes

import jaxrnn as jr
from jaxrnn.mixers._ssd import ssd
from jaxrnn.testing import check_layer

D, N, P, WIDTH, T, BATCH = 3, 2, 3, 3, 11, 3
FORMS = [1, 4, 5, 64, None]


def softplus(u):
    return np.log1p(np.exp(u))


def silu(u):
    return u / (1 + np.exp(-u))


def recurrence(params, xs, groups=1, dt_limit=(0, np.inf)):
    """(u, B, C, δ) of one row, head after head."""
    num_heads = len(params.a_log)
    width = (xs.shape[1] - 2 * groups * N - num_heads) // num_heads
    states = np.zeros((num_heads, width, N))
    skips = params.skip.reshape(num_heads, -1)
    outputs = []
    for x in xs:
        u, b, c, delta = np.split(x, np.cumsum([num_heads * width, groups * N, groups * N]))
        b, c = b.reshape(groups, N), c.reshape(groups, N)
        y = np.zeros((num_heads, width))
        for h in range(num_heads):
            dt = min(max(softplus(delta[h] + params.dt_bias[h]), dt_limit[0]), dt_limit[1])
            head = u[h * width : (h + 1) * width]
            group = h * groups // num_heads
            decay = np.exp(-dt * np.exp(params.a_log[h]))
            states[h] = decay * states[h] + np.outer(dt * head, b[group])
            y[h] = states[h] @ c[group] + skips[h] * head
        outputs.append(y.ravel())
    return np.array(outputs), states


def masked_attention(params, xs):
    """The same as (L ∘ C Bᵀ) Δ u, with every entry of L a product of decays."""
    num_heads = len(params.a_log)
    width = (xs.shape[1] - 2 * N - num_heads) // num_heads
    u, b, c, delta = np.split(xs, np.cumsum([num_heads * width, N, N]), axis=1)
    ys = []
    for h, head in enumerate(np.split(u, num_heads, axis=1)):
        dt = softplus(delta[:, h] + params.dt_bias[h])
        a = np.exp(-dt * np.exp(params.a_log[h]))
        lower = np.zeros((len(xs), len(xs)))
        for t in range(len(xs)):
            for s in range(t + 1):
                lower[t, s] = np.prod(a[s + 1 : t + 1])
        ys.append((lower * (c @ b.T)) @ (dt[:, None] * head) + params.skip[h] * head)
    return np.concatenate(ys, axis=1)


def normalised(y, groups, epsilon):
    y = y.reshape(groups, -1)
    return (y / np.sqrt(np.mean(y**2, axis=1, keepdims=True) + epsilon)).ravel()


def oracle(
    params, xs, mask, reset, groups=1, norm="after_gate", epsilon=1e-5, dt_limit=(0, np.inf)
):
    """One row of the mixer, sequence after sequence, over their real steps alone."""
    params = jax.tree.map(np.asarray, params)
    zero = np.zeros(1)
    bias, conv_bias, output_bias = (
        zero if bias is None else bias
        for bias in (params.bias, params.conv.bias, params.output_bias)
    )
    num_units, num_mixed = len(params.output_kernel), params.conv.kernel.shape[1]
    outputs, last = np.zeros_like(xs), np.zeros((len(params.ssm.a_log), P, N))
    for sequence in np.split(np.arange(len(xs)), np.flatnonzero(reset)):
        steps = sequence[mask[sequence]]
        blocks = [num_units, num_units + num_mixed]
        z, v, delta = np.split(xs[steps] @ params.kernel + bias, blocks, 1)
        padded = np.concatenate([np.zeros((WIDTH - 1, num_mixed)), v])
        windows = [padded[t : t + WIDTH] for t in range(len(steps))]
        v = [silu((window * params.conv.kernel).sum(0) + conv_bias) for window in windows]
        joined = np.concatenate([np.reshape(v, (len(steps), num_mixed)), delta], axis=1)
        ys, last = recurrence(params.ssm, joined, groups, dt_limit)
        for t, y, gate in zip(steps, ys, silu(z), strict=True):
            if norm == "after_gate":
                y = normalised(y * gate, groups, epsilon) * params.norm_scale
            elif norm == "before_gate":
                y = normalised(y, groups, epsilon) * params.norm_scale * gate
            else:
                y = y * gate
            outputs[t] = y @ params.output_kernel + output_bias
    return outputs, last


def make(chunk_size, dtype=jnp.float64):
    layer = jr.mamba2(
        N, head_width=P, conv_width=WIDTH, evaluator=jr.chunkwise(chunk_size), param_dtype=dtype
    )
    params = layer.init(jax.random.key(0), D)
    keys = jax.random.split(jax.random.key(5), 3)
    params = params._replace(
        conv=params.conv._replace(bias=jax.random.normal(keys[0], (2 * D + 2 * N,), dtype)),
        ssm=params.ssm._replace(
            dt_bias=params.ssm.dt_bias + 2, skip=jax.random.normal(keys[1], (2,), dtype)
        ),
        norm_scale=jax.random.normal(keys[2], (2 * D,), dtype),
    )
    xs = jax.random.normal(jax.random.key(1), (BATCH, T, D), dtype)
    return layer, params, xs


@pytest.mark.parametrize("chunk_size", FORMS)
def test_masks_and_resets_anywhere(x64, chunk_size):
    layer, params, xs = make(chunk_size)
    generator = np.random.default_rng(0)
    mask, reset = generator.random((BATCH, T)) < 0.7, generator.random((BATCH, T)) < 0.2
    rollout = jr.unroll(layer, params, xs, mask=mask, reset=reset)
    for row in range(BATCH):
        want, h = oracle(params, np.asarray(xs[row]), mask[row], reset[row])
        np.testing.assert_allclose(rollout.outputs[row], want, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(rollout.carry.ssm.h[row], h, rtol=1e-9, atol=1e-14)


VARIANTS = {
    "groups and biases": {"num_groups": 2, "use_bias": True, "norm_epsilon": 0.1},
    "norm before the gate": {"num_groups": 2, "norm": "before_gate", "use_conv_bias": False},
    "all others": {"norm": None, "skip_per_feature": True, "dt_limit": (0.5, 1.5)},
}


def variant(name, evaluator, dtype=jnp.float64):
    """A model of four heads of width 3, with all parameters random."""
    options = VARIANTS[name] | {"evaluator": evaluator, "param_dtype": dtype}
    layer = jr.mamba2(N, head_width=P, expansion=4, conv_width=WIDTH, **options)
    leaves, tree = jax.tree.flatten(layer.init(jax.random.key(0), D))
    keys = jax.random.split(jax.random.key(1), len(leaves))
    drawn = [
        jax.random.normal(key, leaf.shape, dtype) for key, leaf in zip(keys, leaves, strict=True)
    ]
    return layer, jax.tree.unflatten(tree, drawn)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("evaluator", [jr.sequential(), jr.chunkwise(4)], ids=repr)
def test_variants_are_the_equations(x64, name, evaluator):
    layer, params = variant(name, evaluator)
    xs = jax.random.normal(jax.random.key(2), (2, T, D), jnp.float64)
    generator = np.random.default_rng(0)
    mask, reset = generator.random((2, T)) < 0.7, generator.random((2, T)) < 0.2
    rollout = jr.unroll(layer, params, xs, mask=mask, reset=reset)
    given = VARIANTS[name]
    options = {
        "groups": given.get("num_groups", 1),
        "norm": given.get("norm", "after_gate"),
        "epsilon": given.get("norm_epsilon", 1e-5),
        "dt_limit": given.get("dt_limit", (0, np.inf)),
    }
    for row in range(2):
        want, h = oracle(params, np.asarray(xs[row]), mask[row], reset[row], **options)
        np.testing.assert_allclose(rollout.outputs[row], want, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(rollout.carry.ssm.h[row], h, rtol=1e-9, atol=1e-12)


def test_the_laws():
    """All options that change the function at once."""
    options = VARIANTS["groups and biases"] | {"norm": "before_gate", "dt_limit": (0.5, 1.5)}
    options |= {"skip_per_feature": True, "evaluator": jr.chunkwise(3)}
    check_layer(jr.mamba2(N, head_width=P, expansion=4, conv_width=WIDTH, **options))


@pytest.mark.parametrize("chunk_size", FORMS)
def test_recurrence_attention_and_chunks_are_one_function(x64, chunk_size):
    num_heads = 2
    layer = jr.recurrent(ssd(N, P, jnp.float64), jr.chunkwise(chunk_size))
    num_inputs = num_heads * P + 2 * N + num_heads
    assert layer.num_outputs(num_inputs) == num_heads * P
    params = layer.init(jax.random.key(0), num_inputs)
    xs = jax.random.normal(jax.random.key(1), (T, num_inputs), jnp.float64)
    want, states = recurrence(params, np.asarray(xs))
    np.testing.assert_allclose(masked_attention(params, np.asarray(xs)), want, rtol=1e-10)
    rollout = jr.unroll(layer, params, xs)
    np.testing.assert_allclose(rollout.outputs, want, rtol=1e-10)
    np.testing.assert_allclose(rollout.carry.h, states, rtol=1e-10)


def test_decays_far_back_keep_their_digits_in_float32():
    """Behind a sum of 2000, a difference of sums would have lost the digits of 0.001."""
    layer = jr.recurrent(ssd(1, 1), jr.chunkwise(None))
    params = layer.init(jax.random.key(0), 4)._replace(
        a_log=jnp.zeros(1), dt_bias=jnp.zeros(1), skip=jnp.zeros(1)
    )
    num_steps = 2000
    xs = jnp.ones((num_steps, 4)).at[:, 3].set(jnp.log(jnp.expm1(1.0)))
    xs = xs.at[-3:, 3].set(jnp.log(jnp.expm1(1e-3)))
    got = jr.unroll(layer, params, xs).outputs[-1, 0]
    want, _ = recurrence_of_scalars(np.asarray(xs, np.float64))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def recurrence_of_scalars(xs):
    h = 0.0
    for u, b, _, delta in xs:
        dt = softplus(delta)
        h = np.exp(-dt) * h + dt * u * b
    return h * xs[-1, 2], h


def test_it_keeps_the_width_and_its_parameters_are_those_of_the_paper():
    layer = jr.mamba2()
    params = layer.init(jax.random.key(0), 96)
    shapes = jax.tree.map(jnp.shape, params)
    assert layer.num_outputs(96) == 96
    assert shapes.kernel == (96, 2 * 192 + 2 * 128 + 3)
    assert shapes.conv == jr.mixers.CausalConvParams((4, 192 + 256), (192 + 256,))
    assert shapes.ssm == jr.mixers.SSDParams((3,), (3,), (3,))
    assert shapes.output_kernel == (192, 96)
    assert layer.initial_carry(params, (5,)).ssm.h.shape == (5, 3, 64, 128)
    rates = jnp.exp(jr.mamba2(head_width=1).init(jax.random.key(0), 500).ssm.a_log)
    assert 1 <= rates.min() < 1.1 and 15.9 < rates.max() <= 16


def test_memory_grows_with_the_chunk_and_not_with_the_square_of_time():
    def temporary(num_steps):
        layer = jr.mamba2(4, head_width=4, evaluator=jr.chunkwise(16))
        params = layer.init(jax.random.key(0), 4)
        xs = jax.ShapeDtypeStruct((num_steps, 4), jnp.float32)
        loss = jax.grad(lambda params, xs: jr.unroll(layer, params, xs).outputs.sum())
        return temporary_bytes(loss, params, xs)

    # All pairs of 2048 steps would take 32 MiB for two heads.
    assert temporary(2048) < 4 * 2**20
    assert temporary(2048) < 2.5 * temporary(1024)


def test_bfloat16_parameters_and_inputs_run_in_float32():
    layer, params, xs = make(4, jnp.bfloat16)

    def loss(params, xs):
        rollout = jr.unroll(layer, params, xs)
        return rollout.outputs.astype(jnp.float32).sum(), rollout

    result = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, xs)
    (_, rollout), _ = result
    assert rollout.outputs.dtype == jnp.bfloat16
    assert rollout.carry.ssm.h.dtype == jnp.float32
    assert all(jnp.isfinite(leaf.astype(jnp.float32)).all() for leaf in jax.tree.leaves(result))


def test_errors():
    for option in ("expansion", "conv_width", "head_width", "state_size"):
        with pytest.raises(ValueError, match=f"{option} must be at least 1"):
            jr.mamba2(**{option: 0})
    with pytest.raises(ValueError, match="size must be at least 1"):
        jr.mamba2(evaluator=jr.chunkwise(0))
    with pytest.raises(ValueError, match="head_width must divide the width 6"):
        jr.mamba2(head_width=4).init(jax.random.key(0), 3)
    with pytest.raises(ValueError, match="num_groups must divide the 2 heads, got 3"):
        jr.mamba2(head_width=3, num_groups=3).init(jax.random.key(0), 3)
    with pytest.raises(ValueError, match="norm must be one of .* got 'rms'"):
        jr.mamba2(norm="rms")
    with pytest.raises(ValueError, match=r"lower < upper, got \(2.0, 1.0\)"):
        jr.mamba2(dt_limit=(2.0, 1.0))
    with pytest.raises(
        TypeError, match=r"dt_limit must be a tuple of two floats, got \[0.0, 1.0\]"
    ):
        jr.mamba2(dt_limit=[0.0, 1.0])
