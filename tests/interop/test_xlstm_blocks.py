import numpy as np
import pytest

import jaxrnn as jr
from jaxrnn.interop import from_xlstm

# Width, width inside, its heads and blocks, tokens, width of the perceptron, steps.
D, H, HEADS, BLOCK, VOCABULARY, M, T = 4, 8, 2, 2, 5, 3, 6
MLSTM = {
    "xlstm_norm.weight": (D,),
    "xlstm.learnable_skip": (H,),
    "xlstm.proj_up.weight": (2 * H, D),
    "xlstm.q_proj.weight": (H // BLOCK, BLOCK, BLOCK),
    "xlstm.k_proj.weight": (H // BLOCK, BLOCK, BLOCK),
    "xlstm.v_proj.weight": (H // BLOCK, BLOCK, BLOCK),
    "xlstm.conv1d.conv.weight": (H, 1, 3),
    "xlstm.conv1d.conv.bias": (H,),
    "xlstm.mlstm_cell.igate.weight": (HEADS, 3 * H),
    "xlstm.mlstm_cell.igate.bias": (HEADS,),
    "xlstm.mlstm_cell.fgate.weight": (HEADS, 3 * H),
    "xlstm.mlstm_cell.fgate.bias": (HEADS,),
    "xlstm.mlstm_cell.outnorm.weight": (H,),
    "xlstm.proj_down.weight": (D, H),
}
BIASES = {
    "xlstm.proj_up.bias": (2 * H,),
    "xlstm.q_proj.bias": (H,),
    "xlstm.k_proj.bias": (H,),
    "xlstm.v_proj.bias": (H,),
    "xlstm.proj_down.bias": (D,),
}
K = D // HEADS
SLSTM = {
    "xlstm_norm.weight": (D,),
    "xlstm.conv1d.conv.weight": (D, 1, 3),
    "xlstm.conv1d.conv.bias": (D,),
    "xlstm.fgate.weight": (HEADS, K, K),
    "xlstm.igate.weight": (HEADS, K, K),
    "xlstm.zgate.weight": (HEADS, K, K),
    "xlstm.ogate.weight": (HEADS, K, K),
    "xlstm.slstm_cell._recurrent_kernel_": (HEADS, 4 * K, K),
    "xlstm.slstm_cell._bias_": (4 * D,),
    "xlstm.group_norm.weight": (D,),
    "ffn_norm.weight": (D,),
    "ffn.proj_up.weight": (2 * M, D),
    "ffn.proj_up.bias": (2 * M,),
    "ffn.proj_down.weight": (D, M),
    "ffn.proj_down.bias": (D,),
}
BLOCKS = MLSTM | BIASES, SLSTM, MLSTM | BIASES
CONFIG = {
    "mlstm_block": {
        "mlstm": {"num_heads": HEADS, "qkv_proj_blocksize": BLOCK, "bias": True, "dropout": 0.0},
        "_num_blocks": 3,
    },
    "slstm_block": {
        "slstm": {"num_heads": HEADS, "backend": "vanilla", "function": "slstm"},
        "feedforward": {"act_fn": "swish", "bias": True},
    },
    "num_blocks": 3,
    "embedding_dim": D,
    "vocab_size": VOCABULARY,
    "slstm_at": [1],
    "tie_weights": False,
}


def draw(dtype=np.float64):
    shapes = {"token_embedding.weight": (VOCABULARY, D), "lm_head.weight": (VOCABULARY, D)}
    shapes["xlstm_block_stack.post_blocks_norm.weight"] = (D,)
    for index, block in enumerate(BLOCKS):
        shapes |= {f"xlstm_block_stack.blocks.{index}.{name}": own for name, own in block.items()}
    generator = np.random.default_rng(0)
    return {name: generator.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def silu(u):
    return u * sigmoid(u)


def norm(x, weight, groups=1):
    parts = x.reshape(groups, -1)
    centred = parts - parts.mean(1, keepdims=True)
    return (centred / np.sqrt(parts.var(1, keepdims=True) + 1e-5)).reshape(-1) * (1 + weight)


def headwise(x, weight):
    return np.einsum("hd,hod->ho", x.reshape(len(weight), -1), weight).reshape(-1)


def convolved(own, xs):
    weight, seen = own["xlstm.conv1d.conv.weight"][:, 0], np.pad(xs, ((2, 0), (0, 0)))
    windows = [(weight.T * seen[t : t + 3]).sum(0) for t in range(len(xs))]
    return silu(np.array(windows) + own["xlstm.conv1d.conv.bias"])


def mlstm_layer(own, xs):
    up = xs @ own["xlstm.proj_up.weight"].T + own["xlstm.proj_up.bias"]
    memory = [(np.zeros((H // HEADS, H // HEADS)), np.zeros(H // HEADS), 0.0)] * HEADS
    ys, weights = [], own["xlstm.mlstm_cell.outnorm.weight"]
    for u, c, z in zip(up[:, :H], convolved(own, up[:, :H]), up[:, H:], strict=True):
        qkv = [
            headwise(x, own[f"xlstm.{n}_proj.weight"]) + own[f"xlstm.{n}_proj.bias"]
            for n, x in zip("qkv", (c, c, u), strict=True)
        ]
        i, f = (
            own[f"xlstm.mlstm_cell.{n}gate.weight"] @ np.concatenate(qkv)
            + own[f"xlstm.mlstm_cell.{n}gate.bias"]
            for n in "if"
        )
        q, k, v = (part.reshape(HEADS, -1) for part in qkv)
        heads = []
        for head, (s, n, m) in enumerate(memory):
            kept = np.log(sigmoid(f[head])) + m
            new_m = max(kept, i[head])
            key = k[head] / np.sqrt(H // HEADS)
            s = np.exp(kept - new_m) * s + np.exp(i[head] - new_m) * np.outer(key, v[head])
            n = np.exp(kept - new_m) * n + np.exp(i[head] - new_m) * key
            memory[head] = s, n, new_m
            # The package adds ε on the scale of its m, and this library on that of max(m, 0).
            epsilon = 1e-6 * np.exp(max(new_m, 0) - new_m)
            heads.append(q[head] @ s / (max(abs(q[head] @ n), np.exp(-new_m)) + epsilon))
        h = norm(np.concatenate(heads), weights, HEADS) + own["xlstm.learnable_skip"] * c
        down = own["xlstm.proj_down.weight"] @ (h * silu(z))
        ys.append(down + own["xlstm.proj_down.bias"])
    return np.array(ys)


def slstm_layer(own, xs):
    h, s, n, m, ys = np.zeros(D), np.zeros(D), np.zeros(D), np.full(D, -1e30), []
    biases = own["xlstm.slstm_cell._bias_"].reshape(4, D)
    reads = own["xlstm.slstm_cell._recurrent_kernel_"].reshape(HEADS, 4, K, K)
    for x, c in zip(xs, convolved(own, xs), strict=True):
        # The layer passes its `fgate` where the cell reads i, and `igate` where it reads f.
        inputs = [
            headwise(value, own[f"xlstm.{name}gate.weight"])
            for name, value in zip(("f", "i", "z", "o"), (c, c, x, x), strict=True)
        ]
        i, f, g, o = (
            one + headwise(h, reads[:, gate]) + biases[gate] for gate, one in enumerate(inputs)
        )
        kept = np.log(sigmoid(f)) + m
        m = np.maximum(kept, i)
        s = np.exp(kept - m) * s + np.exp(i - m) * np.tanh(g)
        n = np.exp(kept - m) * n + np.exp(i - m)
        h = sigmoid(o) * s / n
        ys.append(norm(h, own["xlstm.group_norm.weight"], HEADS))
    return np.array(ys)


def language_model(arrays, tokens):
    stack = "xlstm_block_stack."
    xs = arrays["token_embedding.weight"][tokens]
    for index, block in enumerate(BLOCKS):
        own = {name: arrays[f"{stack}blocks.{index}.{name}"] for name in block}
        layer = slstm_layer if block is SLSTM else mlstm_layer
        xs = xs + layer(own, np.array([norm(x, own["xlstm_norm.weight"]) for x in xs]))
        if block is SLSTM:
            rows = np.array([norm(x, own["ffn_norm.weight"]) for x in xs])
            gate, value = np.split(
                rows @ own["ffn.proj_up.weight"].T + own["ffn.proj_up.bias"], 2, 1
            )
            xs = (
                xs
                + (silu(gate) * value) @ own["ffn.proj_down.weight"].T
                + own["ffn.proj_down.bias"]
            )
    xs = np.array([norm(x, arrays[f"{stack}post_blocks_norm.weight"]) for x in xs])
    return xs @ arrays["lm_head.weight"].T


def with_cuda_layout(arrays):
    """The recurrence of sLSTM as the other backend keeps it."""
    prefix = "xlstm_block_stack.blocks.1.xlstm.slstm_cell."
    kernel, bias = arrays[f"{prefix}_recurrent_kernel_"], arrays[f"{prefix}_bias_"]
    return arrays | {
        f"{prefix}_recurrent_kernel_": kernel.swapaxes(1, 2),
        f"{prefix}_bias_": bias.reshape(4, HEADS, K).swapaxes(0, 1).reshape(-1),
    }


def changed(config, path, value):
    key, *rest = path
    inside = changed(config.get(key, {}), rest, value) if rest else value
    return config | {key: inside}


def test_it_is_the_equations_of_its_code_in_every_form(x64):
    arrays, tokens = draw(), np.random.default_rng(1).integers(0, VOCABULARY, (2, T))
    model, params, carry = from_xlstm(arrays, CONFIG)
    assert carry is None
    want = [language_model(arrays, row) for row in tokens]
    np.testing.assert_allclose(jr.unroll(model, params, tokens).outputs, want, atol=1e-10)

    cuda = changed(CONFIG, ("slstm_block", "slstm", "backend"), "cuda")
    again = from_xlstm(with_cuda_layout(arrays), cuda)
    assert again.model == model
    np.testing.assert_equal(again.params, params)

    tied = arrays | {"lm_head.weight": arrays["token_embedding.weight"]}
    table = from_xlstm(tied, CONFIG | {"tie_weights": True})
    want = [language_model(tied, row) for row in tokens]
    got = jr.unroll(table.model, table.params, tokens).outputs
    np.testing.assert_allclose(got, want, atol=1e-10)

    stack = {
        name.removeprefix("xlstm_block_stack."): array
        for name, array in arrays.items()
        if "stack" in name
    }
    alone = from_xlstm(stack, CONFIG)
    xs = arrays["token_embedding.weight"][tokens]
    got = jr.unroll(alone.model, alone.params, xs).outputs @ arrays["lm_head.weight"].T
    np.testing.assert_allclose(got, jr.unroll(model, params, tokens).outputs, atol=1e-10)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("rope",), True, "unknown key 'rope'"),
        (("dropout",), 0.1, "'dropout': 0.1, which has no counterpart here; it must be 0.0"),
        (("mlstm_block", "mlstm", "dropout"), 0.1, "'dropout': 0.1"),
        (("mlstm_block", "mlstm", "num_heads"), 4, "'num_heads' is 4, but by the arrays it is 2"),
        (("mlstm_block", "mlstm", "bias"), False, "'bias' is False, but by the arrays"),
        (("slstm_block", "slstm", "function"), "lstm", "'function': 'lstm'"),
        (("slstm_block", "slstm", "backend"), "cuda", "'backend' is 'cuda', but by the arrays"),
        (("slstm_block", "feedforward", "act_fn"), "elu", "must be one of gelu, relu, relu.2"),
        (("num_blocks",), 4, "'num_blocks' is 4, but by the arrays it is 3"),
        (("add_post_blocks_norm",), False, "'add_post_blocks_norm' is False, but by the arrays"),
        (("vocab_size",), 6, "'vocab_size' is 6, but by the arrays it is 5"),
        (("tie_weights",), True, "config says the readout is the table"),
    ],
)
def test_a_config_that_does_not_fit_says_so(path, value, message):
    with pytest.raises(ValueError, match=message):
        from_xlstm(draw(np.float32), changed(CONFIG, path, value))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("blocks.0.xlstm.q_proj.weight", (2, 2, 2), "'proj_up.weight' has 16 rows"),
        ("blocks.0.xlstm.k_proj.weight", (2, 4, 4), r"must have the shape \[4, 2, 2\]"),
        ("blocks.1.xlstm.zgate.weight", (4, 1, 1), "must have the shape .num_heads, 4 / num_heads"),
        ("blocks.1.xlstm.slstm_cell._recurrent_kernel_", (2, 3, 3), "must have heads of the shape"),
        ("blocks.1.xlstm.slstm_cell._bias_", (4,), r"must have the shape \[16\]"),
        ("blocks.2.xlstm.igate.weight", (2, 2, 2), "no place for: .*blocks.2.xlstm.igate.weight"),
        ("blocks.4.xlstm_norm.weight", (4,), "no place for: .*blocks.4"),
    ],
)
def test_arrays_that_do_not_fit_say_so(name, shape, message):
    arrays = draw(np.float32) | {f"xlstm_block_stack.{name}": np.ones(shape, np.float32)}
    with pytest.raises(ValueError, match=message):
        from_xlstm(arrays, CONFIG)
