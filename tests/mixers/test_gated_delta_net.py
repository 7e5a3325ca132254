import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

D, HEADS, K, V, T = 4, 2, 3, 2, 11
FORMS = {"recurrent": 1, "chunks of 4": 4, "one chunk": None}


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def oracle(params, xs, largest_beta=1, num_heads=HEADS):
    """One row, head after head, with the matrices of the definition."""
    params = jax.tree.map(np.asarray, params)
    key_width = params.key_kernel.shape[1] // num_heads
    value_width = params.value_kernel.shape[1] // num_heads
    memories = [np.zeros((value_width, key_width)) for _ in range(num_heads)]
    outputs = []
    for x in np.asarray(xs):
        y = []
        for head in range(num_heads):
            keys = slice(head * key_width, (head + 1) * key_width)
            values = slice(head * value_width, (head + 1) * value_width)
            k, q, v = (
                u * sigmoid(u)
                for u in (
                    x @ params.key_kernel[:, keys],
                    x @ params.query_kernel[:, keys],
                    x @ params.value_kernel[:, values],
                )
            )
            k, q = k / np.linalg.norm(k), q / np.linalg.norm(q)
            step = np.log1p(np.exp(x @ params.gate_kernel[:, head] + params.step_bias[head]))
            alpha = np.exp(-np.exp(params.log_rate[head]) * step)
            beta = largest_beta * sigmoid(x @ params.gate_kernel[:, num_heads + head])
            erase = np.eye(key_width) - beta * np.outer(k, k)
            memories[head] = alpha * memories[head] @ erase + beta * np.outer(v, k)
            y.append(memories[head] @ q)
        outputs.append(np.concatenate(y))
    return np.array(outputs), np.array(memories)


def make(chunk_size, **options):
    layer = jr.gated_delta_net(
        HEADS, K, V, evaluator=jr.chunkwise(chunk_size), param_dtype=jnp.float64, **options
    )
    params = layer.init(jax.random.key(0), D)
    return layer, params._replace(log_rate=params.log_rate - 1.0, step_bias=params.step_bias + 2)


@pytest.mark.parametrize("chunk_size", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("largest_beta", [1, 2])
def test_every_form_is_the_definition(x64, chunk_size, largest_beta):
    layer, params = make(chunk_size, negative_eigenvalues=largest_beta == 2)
    xs = jax.random.normal(jax.random.key(5), (T, D), jnp.float64)
    rollout = jax.jit(lambda params, xs: jr.unroll(layer, params, xs))(params, xs)
    outputs, memories = oracle(params, xs, largest_beta)
    np.testing.assert_allclose(rollout.outputs, outputs, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(rollout.carry.s, memories, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("chunk_size", FORMS.values(), ids=FORMS)
def test_what_is_written_is_read_back(x64, chunk_size):
    # x = (address, content, 1): α = 1 and β = 1 up to rounding, and queries are the keys.
    layer = jr.gated_delta_net(1, 3, 3, evaluator=jr.chunkwise(chunk_size), param_dtype=jnp.float64)
    eye, zeros = jnp.eye(3), jnp.zeros((3, 3))
    address = jnp.concatenate([eye, zeros, zeros[:1]])
    params = jr.mixers.GatedDeltaNetParams(
        key_kernel=address,
        query_kernel=address,
        value_kernel=jnp.concatenate([zeros, eye, zeros[:1]]),
        gate_kernel=jnp.zeros((7, 2)).at[6].set(jnp.array([-60.0, 60.0])),
        log_rate=jnp.zeros(1),
        step_bias=jnp.zeros(1),
    )
    rng = np.random.default_rng(0)
    xs = np.concatenate([rng.standard_normal((9, 6)), np.ones((9, 1))], axis=1)
    outputs = jr.unroll(layer, params, xs).outputs
    values = xs[:, 3:6] * sigmoid(xs[:, 3:6])
    np.testing.assert_allclose(outputs, values, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("num_steps", [5, 64])
def test_one_key_written_again_and_again(x64, num_steps):
    # α = β = 1 and equal keys: the system of a chunk is as badly scaled as it gets.
    layer, params = make(None)
    params = params._replace(
        gate_kernel=jnp.zeros((D, 4)).at[0].set(jnp.array([-60.0, -60.0, 60.0, 60.0]))
    )
    params = params._replace(key_kernel=params.key_kernel.at[1:].set(0))
    xs = np.random.default_rng(0).standard_normal((num_steps, D))
    xs[:, 0] = 1
    outputs, memories = oracle(params, xs)
    rollout = jr.unroll(layer, params, xs)
    np.testing.assert_allclose(rollout.outputs, outputs, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rollout.carry.s, memories, rtol=1e-9, atol=1e-12)


def test_laws():
    evaluator = jr.chunkwise(3)
    check_layer(jr.gated_delta_net(2, 2, 3, evaluator=evaluator, negative_eigenvalues=True))


def test_a_key_of_zeros_writes_nothing_and_has_a_derivative():
    layer = jr.gated_delta_net(1, 3)
    params = layer.init(jax.random.key(0), D)
    gradient = jax.jit(jax.grad(lambda xs: jnp.sum(jr.unroll(layer, params, xs).outputs)))
    xs = jnp.ones((4, D)).at[1].set(0)
    assert jnp.isfinite(gradient(xs)).all()
    assert not jr.unroll(layer, params, jnp.zeros((4, D))).carry.s.any()


def test_bfloat16_parameters_and_extreme_gates():
    options = {"negative_eigenvalues": True, "param_dtype": jnp.bfloat16}
    layer = jr.gated_delta_net(1, 2, evaluator=jr.chunkwise(4), **options)
    params = layer.init(jax.random.key(0), 4)
    params = params._replace(gate_kernel=jnp.eye(4, 2, dtype=jnp.bfloat16))
    signs = jax.random.rademacher(jax.random.key(2), (3, 70, 4))
    xs = (50 * signs).astype(jnp.bfloat16)

    def loss(params):
        rollout = jr.unroll(layer, params, xs)
        return jnp.sum(rollout.outputs.astype(jnp.float32)), rollout

    gradients, rollout = jax.jit(jax.grad(loss, has_aux=True))(params)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((gradients, rollout)))
    assert rollout.outputs.dtype == jnp.bfloat16
    assert rollout.carry.s.dtype == jnp.float32


def test_wrong_sizes_raise():
    with pytest.raises(TypeError, match="value_width"):
        jr.gated_delta_net(2, 3, 2.0)
