import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.testing import check_layer

D, H, HEADS, T, BATCH = 4, 8, 2, 7, 2


def test_the_laws_of_the_mlstm_block():
    # In the form that compiles fastest; the equations are checked in all of them.
    options = {"block_width": 2, "conv_width": 2, "use_bias": True}
    check_layer(jr.mlstm_block(4, 2, evaluator=jr.sequential(), **options))


def test_the_laws_of_the_slstm_block():
    check_layer(jr.slstm_block(6, 2, conv_width=2), num_inputs=4)


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def silu(u):
    return u * sigmoid(u)


def headwise(x, kernel):
    """A product of each part of x with its own matrix."""
    parts = np.split(x, len(kernel))
    return np.concatenate([part @ block for part, block in zip(parts, kernel, strict=True)])


def per_head(h, scale):
    heads = h.reshape(HEADS, -1)
    centred = heads - heads.mean(1, keepdims=True)
    return (centred / np.sqrt(heads.var(1, keepdims=True) + 1e-5)).reshape(-1) * scale


class Start:
    """A convolution of one sequence that begins."""

    def __init__(self, params):
        self.kernel, self.bias = params
        self.seen = [np.zeros(self.kernel.shape[1])] * len(self.kernel)

    def __call__(self, x):
        self.seen = [*self.seen[1:], x]
        return silu((np.array(self.seen) * self.kernel).sum(0) + self.bias)


def mlstm_sequence(params, xs):
    conv, width, outputs = Start(params.conv), H // HEADS, []
    memory = [[np.zeros((width, width)), np.zeros(width), 0.0] for _ in range(HEADS)]
    for x in xs:
        u, z = np.split(x @ params.kernel + params.bias, 2)
        c = conv(u)
        q, k, v = (headwise(a, w) for a, w in zip((c, c, u), params.qkv_kernel, strict=True))
        qkv = np.concatenate([q, k, v]) + params.qkv_bias
        i, f = np.split(qkv @ params.memory.gate_kernel + params.memory.gate_bias, 2)
        q, k, v = (part.reshape(HEADS, width) for part in np.split(qkv, 3))
        h = []
        for head, (s, n, m) in enumerate(memory):
            kept = np.log(sigmoid(f[head])) + m
            m = max(kept, i[head], 0)
            old, new = np.exp(kept - m), np.exp(i[head] - m)
            key = k[head] / np.sqrt(width)
            s, n = old * s + new * np.outer(key, v[head]), old * n + new * key
            memory[head] = [s, n, m]
            h.append(q[head] @ s / (max(abs(q[head] @ n), np.exp(-m)) + 0.01))
        h = per_head(np.concatenate(h), params.memory.norm_scale) + params.skip * c
        outputs.append((h * silu(z)) @ params.output_kernel + params.output_bias)
    return outputs


def slstm_sequence(params, xs):
    conv, outputs = Start(params.conv), []
    h, s, n, m = np.zeros(H), np.zeros(H), np.zeros(H), np.full(H, -1e30)
    kernel, recurrent_kernel, bias = params.slstm
    for x in xs:
        c = conv(x)
        z = [headwise(a, w) for a, w in zip((c, c, x, x), kernel, strict=True)]
        reads = np.split(recurrent_kernel, 4, axis=2)
        i, f, g, o = (
            one + headwise(h, read) + b
            for one, read, b in zip(z, reads, np.split(bias, 4), strict=True)
        )
        kept = np.log(sigmoid(f)) + m
        m = np.maximum(kept, i)
        s = np.exp(kept - m) * s + np.exp(i - m) * np.tanh(g)
        n = np.exp(kept - m) * n + np.exp(i - m)
        h = sigmoid(o) * s / n
        outputs.append(per_head(h, params.norm_scale))
    return outputs


BLOCKS = {
    "mlstm": (
        lambda **options: jr.mlstm_block(
            H, HEADS, conv_width=3, use_bias=True, denominator_epsilon=0.01, **options
        ),
        mlstm_sequence,
        (jr.sequential(), jr.chunkwise(3), jr.newton()),
    ),
    "slstm": (
        lambda **options: jr.slstm_block(H, HEADS, conv_width=3, **options),
        slstm_sequence,
        (jr.sequential(checkpoint=2), jr.newton()),
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_it_is_the_equations_of_the_paper_in_every_evaluation(x64, name):
    """Two sequences in a row, then padding."""
    make, loop, evaluators = BLOCKS[name]
    params = make(param_dtype=jnp.float64).init(jax.random.key(0), D)
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    params = tree.unflatten(
        leaf + 0.3 * jax.random.normal(key, leaf.shape, leaf.dtype)
        for leaf, key in zip(leaves, keys, strict=True)
    )
    xs = np.random.default_rng(0).standard_normal((BATCH, T, D))
    reset, mask = np.zeros((BATCH, T), bool), np.ones((BATCH, T), bool)
    reset[:, 3], mask[1, 6] = True, False
    numbers = jax.tree.map(np.asarray, params)
    want = [[*loop(numbers, row[:3]), *loop(numbers, row[3:])] for row in xs]
    want = np.where(mask[..., None], want, 0)
    for evaluator in (None, *evaluators):
        layer = make(evaluator=evaluator, param_dtype=jnp.float64)
        got = jr.unroll(layer, params, xs, mask=mask, reset=reset)
        np.testing.assert_allclose(got.outputs, want, atol=1e-10)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="num_heads must divide num_units = 8, got 3"):
        jr.mlstm_block(8, 3)
    with pytest.raises(ValueError, match="block_width must divide num_units = 8, got 3"):
        jr.mlstm_block(8, 2, block_width=3)
    with pytest.raises(TypeError, match="use_bias must be True or False"):
        jr.mlstm_block(8, 2, use_bias=1)
    with pytest.raises(ValueError, match="num_heads must divide num_units = 8, got 3"):
        jr.slstm_block(8, 3)
    with pytest.raises(ValueError, match="num_heads must divide D = 3, got 2"):
        jr.slstm_block(8, 2).init(jax.random.key(0), 3)
    for layer, width in ((jr.mlstm_block(8, 2), 4), (jr.slstm_block(8, 2), 4)):
        params = layer.init(jax.random.key(0), width)
        with pytest.raises(ValueError, match="width"):
            jr.unroll(layer, params, jnp.ones((3, 6)))
    for make in (jr.mlstm_block, jr.slstm_block):
        with pytest.raises((TypeError, ValueError), match="to be a convolution|linear cell"):
            make(8, 2, evaluator=jr.convolution())
