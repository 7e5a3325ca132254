import enum
import math

import numpy as np
import pytest
from support.pages import DOCS, run

import jaxrnn as jr
from jaxrnn.interop import from_recurrentgemma

# Widths of the model, the recurrence and the perceptron; heads and their width; kernel; tokens.
# Three pairs of features of a head rotate, so that their order matters.
D, H, M, HEADS, K, W, V, T = 24, 6, 5, 2, 12, 3, 7, 10
KINDS = ["recurrent", "recurrent", "attention"] * 2 + ["recurrent"]
WINDOW = 3
PACKAGE = {
    "vocab_size": V,
    "width": D,
    "mlp_expanded_width": M,
    "num_heads": HEADS,
    "block_types": tuple(KINDS),
    "embeddings_scale_by_sqrt_dim": True,
    "attention_window_size": WINDOW - 1,
    "logits_soft_cap": 2.0,
    "lru_width": H,
    "scan_type": 1,
}
TRANSFORMERS = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": 2 * M,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "num_hidden_layers": len(KINDS),
    "block_types": KINDS[:3],
    "attention_window_size": WINDOW,
    "logits_soft_cap": 2.0,
    "lru_width": H,
    "rope_parameters": {
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "rope_type": "default",
    },
    "model_type": "recurrent_gemma",
    "torch_dtype": "float32",
}
RECURRENT = {
    "linear_x": {"kernel": (D, H), "bias": (H,)},
    "linear_y": {"kernel": (D, H), "bias": (H,)},
    "linear_out": {"kernel": (H, D), "bias": (D,)},
    "conv_1d": {"w": (W, H), "b": (H,)},
    "rg_lru": {
        "a_param": (H,),
        "a_gate": {"w": (HEADS, H // HEADS, H // HEADS), "b": (HEADS, H // HEADS)},
        "input_gate": {"w": (HEADS, H // HEADS, H // HEADS), "b": (HEADS, H // HEADS)},
    },
}
ATTENTION = {
    "proj_q": {"kernel": (D, D)},
    "proj_k": {"kernel": (D, K)},
    "proj_v": {"kernel": (D, K)},
    "proj_final": {"kernel": (D, D), "bias": (D,)},
}


def flax_arrays(dtype=np.float64):
    """The parameters of `Griffin` of recurrentgemma, with its names and layouts."""
    generator = np.random.default_rng(0)

    def draw(tree):
        if isinstance(tree, dict):
            return {name: draw(part) for name, part in tree.items()}
        return (generator.normal(size=tree) / 2).astype(dtype)

    blocks = {
        f"blocks.{index}": {
            "temporal_pre_norm": {"scale": (D,)},
            f"{kind}_block": RECURRENT if kind == "recurrent" else ATTENTION,
            "channel_pre_norm": {"scale": (D,)},
            "mlp_block": {
                "ffw_up": {"w": (2, D, M), "b": (2, 1, 1, M)},
                "ffw_down": {"kernel": (M, D), "bias": (D,)},
            },
        }
        for index, kind in enumerate(KINDS)
    }
    final = {"final_norm": {"scale": (D,)}, "embedder": {"input_embedding": (V, D)}}
    return draw(blocks | final)


def flat(tree, before=""):
    for name, part in tree.items():
        if isinstance(part, dict):
            yield from flat(part, f"{before}{name}.")
        else:
            yield before + name, part


def torch_arrays():
    """The same with the names and layouts of the package's torch module."""
    return {
        name.replace("kernel", "weight"): array.T if "kernel" in name else array
        for name, array in flat(flax_arrays())
    }


def transformers_arrays():
    """The same as a `RecurrentGemmaForCausalLM` of transformers has them."""
    arrays = {}
    for name, array in torch_arrays().items():
        if name.endswith(("ffw_up.w", "ffw_up.b")):
            prefix = "model.layers." + name.split(".")[1] + ".mlp_block."
            for part, own in zip(("gate", "up"), array, strict=True):
                end = "weight" if name.endswith("w") else "bias"
                arrays[f"{prefix}{part}_proj.{end}"] = own.T if end == "weight" else own[0, 0]
            continue
        name = name.replace("rg_lru.a_param", "rg_lru.recurrent_param")
        name = name.replace("a_gate.w", "recurrent_gate_weight")
        name = name.replace("a_gate.b", "recurrent_gate_bias")
        name = name.replace("input_gate.w", "input_gate_weight")
        name = name.replace("input_gate.b", "input_gate_bias")
        if "conv_1d" in name:
            array = array.T[:, None] if name.endswith("w") else array
            name = name.replace("conv_1d.w", "conv_1d.weight").replace("conv_1d.b", "conv_1d.bias")
        name = name.replace("proj_final", "o_proj").replace("ffw_down", "down_proj")
        for part in "qkv":
            name = name.replace(f"proj_{part}.", f"{part}_proj.")
        name = name.replace("scale", "weight").replace("blocks.", "layers.")
        name = name.replace("recurrent_block.", "temporal_block.")
        name = name.replace("attention_block.", "temporal_block.")
        name = name.replace("embedder.input_embedding", "embed_tokens.weight")
        arrays[f"model.{name}"] = array
    return arrays | {"lm_head.weight": arrays["model.embed_tokens.weight"]}


def sigmoid(u):
    return 1 / (1 + np.exp(-u))


def gelu(u):
    return u / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))


def dense(arrays, x):
    return x @ arrays["kernel"] + arrays.get("bias", 0)


def norm(arrays, x):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * (1 + arrays["scale"])


def recurrent_block(arrays, xs, starts):
    """`RecurrentBlock` of the package, on one row, step by step."""
    u, lru = dense(arrays["linear_x"], xs), arrays["rg_lru"]
    h, outputs, start = np.zeros(H), [], 0
    for t in range(len(xs)):
        start = t if t in starts else start
        x = arrays["conv_1d"]["b"].copy()
        for back in range(min(W, t - start + 1)):
            x += arrays["conv_1d"]["w"][W - 1 - back] * u[t - back]
        heads = x.reshape(HEADS, -1)
        r, i = (
            sigmoid(np.einsum("hi,hij->hj", heads, lru[gate]["w"]) + lru[gate]["b"]).ravel()
            for gate in ("a_gate", "input_gate")
        )
        log_a = -8 * r * np.log1p(np.exp(lru["a_param"]))
        factor = 1 if t == start else np.sqrt(1 - np.exp(2 * log_a))
        h = (t != start) * np.exp(log_a) * h + factor * i * x
        outputs.append(h)
    return dense(arrays["linear_out"], np.array(outputs) * gelu(dense(arrays["linear_y"], xs)))


def rotated(x, position):
    """`_apply_rope` of the package: the halves of the first half of the features rotate."""
    first, second, rest = x[: K // 4], x[K // 4 : K // 2], x[K // 2 :]
    angle = position * 10000.0 ** (-2 * np.arange(K // 4) / (K // 2))
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest])


def attention_block(arrays, xs, starts):
    """`LocalAttentionBlock` of the package, on one row, step by step."""
    q, k, v = (dense(arrays[f"proj_{part}"], xs) for part in "qkv")
    outputs, start = [], 0
    for t in range(len(xs)):
        start = t if t in starts else start
        seen = range(max(start, t - WINDOW + 1), t + 1)
        heads = []
        for head in q[t].reshape(HEADS, K):
            scores = [rotated(head, t) @ rotated(k[s], s) / math.sqrt(K) for s in seen]
            weights = np.exp(scores)
            heads.append(weights @ v[seen] / weights.sum())
        outputs.append(np.concatenate(heads))
    return dense(arrays["proj_final"], np.array(outputs))


def griffin(arrays, tokens, starts):
    """`Griffin` of the package, on one row."""
    x = arrays["embedder"]["input_embedding"][tokens] * 4.90625  # √24 in bfloat16
    for index, kind in enumerate(KINDS):
        block = arrays[f"blocks.{index}"]
        mix = recurrent_block if kind == "recurrent" else attention_block
        x = x + mix(block[f"{kind}_block"], norm(block["temporal_pre_norm"], x), starts)
        up = norm(block["channel_pre_norm"], x)
        weights, biases = (block["mlp_block"]["ffw_up"][part] for part in "wb")
        gate, value = (
            up @ weight + bias[0, 0] for weight, bias in zip(weights, biases, strict=True)
        )
        x = x + dense(block["mlp_block"]["ffw_down"], gelu(gate) * value)
    logits = norm(arrays["final_norm"], x) @ arrays["embedder"]["input_embedding"].T
    return 2.0 * np.tanh(logits / 2.0)


def test_it_is_the_equations_of_its_code_by_all_names(x64):
    arrays = flax_arrays()
    tokens = np.random.default_rng(1).integers(0, V, T)
    want = griffin(arrays, tokens, {0, 4, 5})
    reset = np.isin(np.arange(T), [4, 5])
    model, params, carry = from_recurrentgemma({"params": arrays}, PACKAGE, prefix="params.")
    assert carry is None
    np.testing.assert_allclose(
        jr.unroll(model, params, tokens, reset=reset).outputs, want, atol=1e-10
    )
    kind = enum.Enum("Kind", ["RECURRENT", "ATTENTION"])
    enums = PACKAGE | {"block_types": [kind[word.upper()] for word in KINDS]}
    for source in (
        from_recurrentgemma(torch_arrays(), enums),
        from_recurrentgemma(transformers_arrays(), TRANSFORMERS),
    ):
        assert source.model == model
        np.testing.assert_equal(source.params, params)


def without(tree, name):
    return {key: value for key, value in tree.items() if key != name}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (without(PACKAGE, "logits_soft_cap"), "must have the key 'logits_soft_cap'"),
        (without(PACKAGE, "attention_window_size"), "'attention_window_size' for blocks.2"),
        (PACKAGE | {"num_heads": 4}, "says there are 4 heads, but by the gates .* there are 2"),
        (PACKAGE | {"width": 9}, f"'width' is 9, but by the arrays it is {D}"),
        (PACKAGE | {"mlp_expanded_width": 9}, "'mlp_expanded_width' is 9"),
        (PACKAGE | {"block_types": KINDS[:-1]}, "'block_types' is"),
        (PACKAGE | {"rope_scaling": {}}, "unknown key 'rope_scaling'"),
        (PACKAGE | {"attention_bias": True}, "'attention_bias': True, which has no counterpart"),
        (PACKAGE | {"rope_parameters": {"rope_type": "yarn"}}, "'rope_type': 'yarn'"),
    ],
)
def test_a_config_that_does_not_fit_says_so(config, message):
    with pytest.raises(ValueError, match=message):
        from_recurrentgemma(flax_arrays(np.float32), config)


def test_arrays_that_do_not_fit_say_so():
    arrays = dict(flat(flax_arrays(np.float32)))
    lru = "blocks.0.recurrent_block.rg_lru."
    for changed, message in (
        (without(arrays, f"{lru}a_gate.b"), "has no array 'blocks.0.recurrent_block.rg_lru.a_gate"),
        (arrays | {f"{lru}a_imag_param": np.ones(3, np.float32)}, "no place for: .*a_imag_param"),
        (
            arrays | {"final_norm.scale": np.ones(3, np.float32)},
            rf"must have the shape \[{D}\], got \[3\]",
        ),
        (
            arrays | {"lm_head.weight": np.ones((V, D), np.float32)},
            "must be the table of the tokens",
        ),
        (arrays | {f"{lru}a_gate.w": np.ones((2, 3, 4), np.float32)}, r"shapes \[heads, K, K\]"),
    ):
        with pytest.raises(ValueError, match=message):
            from_recurrentgemma(changed, PACKAGE)
    for wrong in ((None, PACKAGE), (arrays, None)):
        with pytest.raises(TypeError, match="must be a mapping"):
            from_recurrentgemma(*wrong)


def test_the_page():
    run(DOCS / "interop.md", "python recurrentgemma")
