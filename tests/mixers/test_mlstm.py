import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

D, HEADS, K, T = 3, 2, 3, 11
OPTIONS = {
    "value_width": 2,
    "gate_soft_cap": 1.5,
    "norm_epsilon": 0.1,
    "denominator_epsilon": 0.05,
}
FORMS = {"recurrent": 1, "chunks of 4": 4, "parallel": None}


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def oracle(params, xs):
    """One row, head after head, with the gates as they are: no stabiliser."""
    params = jax.tree.map(np.asarray, params)
    num_heads = params.gate_bias.size // 2
    outputs = []
    memories = None
    for x in np.asarray(xs):
        k, v = np.split(x @ params.write_kernel + params.write_bias, 2)
        q, o = np.split(x @ params.read_kernel + params.read_bias, 2)
        i, f = np.split(x @ params.gate_kernel + params.gate_bias, 2)
        width = k.size // num_heads
        if memories is None:
            memories = [(np.zeros((width, width)), np.zeros(width)) for _ in range(num_heads)]
        y = []
        for head in range(num_heads):
            part = slice(head * width, (head + 1) * width)
            c, n = memories[head]
            key = k[part] / np.sqrt(width)
            c = sigmoid(f[head]) * c + np.exp(i[head]) * np.outer(key, v[part])
            n = sigmoid(f[head]) * n + np.exp(i[head]) * key
            memories[head] = c, n
            y.append(q[part] @ c / max(abs(q[part] @ n), 1.0))
        outputs.append(sigmoid(o) * np.concatenate(y))
    return np.array(outputs), memories


def make(chunk_size, gate_scale=1.0, seed=0):
    layer = jr.mlstm(HEADS, K, evaluator=jr.chunkwise(chunk_size), param_dtype=jnp.float64)
    params = layer.init(jax.random.key(seed), D)
    keys = jax.random.split(jax.random.key(seed + 1), 6)
    noise = [
        jax.random.normal(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, params[:6], strict=True)
    ]
    params = params._replace(
        write_bias=noise[1], read_bias=noise[3], gate_kernel=gate_scale * noise[4]
    )
    return layer, params


def test_worked_numbers():
    # K = 1 and all inputs 1: i = e^0, f = 1/2, q = v = 1, k = 2, o -> 1.
    # c = 2, n = 2, y = 2 / max(2, 1) = 1;  c = 3, n = 3, y = 1;  with v = 4 then c = 3/2 + 8 and
    # n = 3/2 + 2, y = 9.5 / 3.5.
    layer = jr.mlstm(1, 1)
    params = jr.mixers.MLSTMParams(
        write_kernel=jnp.array([[0.0, 1.0]]),
        write_bias=jnp.array([2.0, 0.0]),
        read_kernel=jnp.zeros((1, 2)),
        read_bias=jnp.array([1.0, 50.0]),
        gate_kernel=jnp.zeros((1, 2)),
        gate_bias=jnp.zeros(2),
    )
    outputs = jr.unroll(layer, params, jnp.array([[1.0], [1.0], [4.0]])).outputs
    np.testing.assert_allclose(outputs[:, 0], [1.0, 1.0, 9.5 / 3.5], rtol=1e-6)


@pytest.mark.parametrize("chunk_size", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("gate_scale", [0.3, 6.0])
def test_every_form_is_the_unstabilised_memory(x64, chunk_size, gate_scale):
    layer, params = make(chunk_size, gate_scale)
    xs = jax.random.normal(jax.random.key(5), (T, D), jnp.float64)
    rollout = jax.jit(lambda params, xs: jr.unroll(layer, params, xs))(params, xs)
    outputs, memories = oracle(params, xs)
    np.testing.assert_allclose(rollout.outputs, outputs, rtol=1e-10, atol=1e-13)
    scale = np.exp(rollout.carry.m)
    for head, (c, n) in enumerate(memories):
        np.testing.assert_allclose(rollout.carry.c[head] * scale[head], c, rtol=1e-10)
        np.testing.assert_allclose(rollout.carry.n[head] * scale[head], n, rtol=1e-10)


@pytest.mark.parametrize("chunk_size", FORMS.values(), ids=FORMS)
def test_the_start_of_m_changes_nothing(x64, chunk_size):
    layer, params = make(chunk_size)
    xs = jax.random.normal(jax.random.key(5), (T, D), jnp.float64)
    carry = layer.initial_carry(params)
    run = jax.jit(lambda carry: jr.unroll(layer, params, xs, carry=carry).outputs)
    want = oracle(params, xs)[0]
    for m in (0.0, -1e30, -7.0, 5.0):
        outputs = run(carry._replace(m=jnp.full_like(carry.m, m)))
        np.testing.assert_allclose(outputs, want, rtol=1e-10, atol=1e-13)
    # The same memory over another m, in the middle of a sequence.
    middle = jr.unroll(layer, params, xs[:4]).carry
    moved = middle._replace(c=middle.c * np.exp(2), n=middle.n * np.exp(2), m=middle.m - 2)
    outputs = jr.unroll(layer, params, xs[4:], carry=moved).outputs
    np.testing.assert_allclose(outputs, want[4:], rtol=1e-10, atol=1e-13)


def test_laws():
    check_layer(jr.mlstm(2, 1, evaluator=jr.chunkwise(3), **OPTIONS))


@pytest.mark.parametrize("chunk_size", FORMS.values(), ids=FORMS)
def test_the_options_of_xlstm_7b(x64, chunk_size):
    """Values wider than keys, bounded gates, an ε in the denominator and a norm of each head."""
    width, cap = OPTIONS["value_width"], OPTIONS["gate_soft_cap"]
    layer = jr.mlstm(
        HEADS, K, evaluator=jr.chunkwise(chunk_size), param_dtype=jnp.float64, **OPTIONS
    )
    params = layer.init(jax.random.key(0), D)
    assert params.norm_scale.shape == (HEADS * width,)
    params = params._replace(
        gate_kernel=jax.random.normal(jax.random.key(1), (D, 2 * HEADS), jnp.float64),
        norm_scale=1 + jax.random.normal(jax.random.key(2), (HEADS * width,), jnp.float64),
    )
    xs = jax.random.normal(jax.random.key(5), (T, D), jnp.float64)
    outputs = []
    memories = [(np.zeros((K, width)), np.zeros(K), 0.0) for _ in range(HEADS)]
    for x in np.asarray(xs):
        k, v = np.split(x @ params.write_kernel + params.write_bias, [HEADS * K])
        q, o = np.split(x @ params.read_kernel + params.read_bias, [HEADS * K])
        gates = cap * np.tanh((x @ params.gate_kernel + params.gate_bias) / cap)
        y = []
        for head, (c, n, m) in enumerate(memories):
            i, f = gates[head], np.log(sigmoid(gates[HEADS + head]))
            keys = slice(head * K, (head + 1) * K)
            new_m = max(f + m, i, 0)
            key = np.exp(i - new_m) * k[keys] / np.sqrt(K)
            c = np.exp(f + m - new_m) * c + np.outer(key, v[head * width : (head + 1) * width])
            n = np.exp(f + m - new_m) * n + key
            memories[head] = c, n, new_m
            denominator = max(abs(q[keys] @ n), np.exp(-new_m)) + OPTIONS["denominator_epsilon"]
            mean = q[keys] @ c / denominator
            y.append((mean - mean.mean()) / np.sqrt(mean.var() + OPTIONS["norm_epsilon"]))
        outputs.append(sigmoid(o) * np.concatenate(y) * params.norm_scale)
    got = jr.unroll(layer, params, xs)
    np.testing.assert_allclose(got.outputs, outputs, rtol=1e-10, atol=1e-12)
    assert got.carry.c.shape == (HEADS, K, width)


def test_wrong_options():
    for options, error in (
        ({"value_width": 0}, ValueError),
        ({"gate_soft_cap": 0.0}, ValueError),
        ({"norm_epsilon": -1.0}, ValueError),
        ({"denominator_epsilon": -1.0}, ValueError),
        ({"value_width": 1.5}, TypeError),
    ):
        with pytest.raises(error, match=next(iter(options))):
            jr.mlstm(1, 2, **options)


@pytest.mark.parametrize("chunk_size", FORMS.values(), ids=FORMS)
def test_bfloat16_parameters_and_gates_of_fifty(chunk_size):
    layer = jr.mlstm(1, 2, evaluator=jr.chunkwise(chunk_size), param_dtype=jnp.bfloat16)
    params = layer.init(jax.random.key(0), 4)
    params = params._replace(gate_kernel=jnp.eye(4, 2, dtype=jnp.bfloat16))
    signs = jax.random.rademacher(jax.random.key(2), (3, 12, 4))
    xs = (50 * signs).astype(jnp.bfloat16).at[:, :, 2:].divide(50)
    # All that q reads is zero in a row of zeros, and in masked steps.
    xs = xs.at[0].set(jnp.array([50, -50, 0, 0], jnp.bfloat16)).at[0, 5:].set(0)
    mask = jnp.ones((3, 12), bool).at[1, 6:].set(False)
    zero_queries = params._replace(read_kernel=params.read_kernel.at[:2].set(0))

    def loss(params, xs):
        rollout = jr.unroll(layer, params, xs, mask=mask)
        return jnp.sum(rollout.outputs.astype(jnp.float32)), rollout

    run = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    for result in (run(params, xs), run(zero_queries, xs)):
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(result))
        assert result[1].outputs.dtype == jnp.bfloat16
        assert result[1].carry.c.dtype == jnp.float32


@pytest.mark.parametrize("chunk_size", FORMS.values(), ids=FORMS)
def test_a_query_of_zeros_reads_zeros_however_large_the_memory(chunk_size):
    """exp(-100) is not a number of float32 that can divide."""
    layer = jr.mlstm(1, 2, evaluator=jr.chunkwise(chunk_size), norm_epsilon=1e-5)
    params = layer.init(jax.random.key(0), 2)
    params = params._replace(
        gate_kernel=jnp.array([[0.0, 0.0], [1.0, 0.0]]),
        read_kernel=params.read_kernel.at[1].set(0),
    )
    xs = jnp.array([[0.0, 100.0], [0.0, 100.0], [1.0, 100.0]])

    def total(params, xs):
        ys = jr.unroll(layer, params, xs).outputs
        return ys.sum(), ys

    gradients, ys = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(params, xs)
    np.testing.assert_array_equal(ys[:2], 0)
    assert (ys[2] != 0).any()
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


def test_wrong_sizes_raise():
    with pytest.raises(TypeError, match="head_width"):
        jr.mlstm(2, 3.0)
